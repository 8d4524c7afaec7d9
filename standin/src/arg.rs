#![expect(unsafe_code, reason = "follows the pointers that callers pass")]
//! Reading and writing what the pointers among the arguments lead to.
//!
//! C's functions follow them without a look; so do these, but null ends the process with a line instead of a signal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::call::Errno;
use crate::doom::doom;

/// What `pointer` leads to, which the caller of the C function has promised to be a `T`.
pub(crate) fn read<T: Copy>(what: &str, pointer: *const T) -> T {
    if pointer.is_null() || !pointer.is_aligned() {
        doom!("would follow the pointer {pointer:p} to {what}");
    }
    // SAFETY: the caller of the C function promises a valid pointer; that it is neither null nor crooked was just checked.
    unsafe { pointer.read() }
}

/// Writes to where `pointer` leads, which the caller of the C function has promised to be room for a `T`.
pub(crate) fn write<T>(what: &str, pointer: *mut T, value: T) {
    if pointer.is_null() || !pointer.is_aligned() {
        doom!("would follow the pointer {pointer:p} to {what}");
    }
    // SAFETY: as in `read`.
    unsafe { pointer.write(value) };
}

/// `length` bytes at `pointer`; none for null, as C's functions do it with private data.
pub(crate) fn bytes(pointer: *const u8, length: usize) -> Vec<u8> {
    if pointer.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: the caller of the C function promises `length` readable bytes.
    unsafe { std::slice::from_raw_parts(pointer, length) }.to_vec()
}

/// Writes `data` to registered memory.
pub(crate) fn put(address: u64, data: &[u8]) {
    let place = std::ptr::with_exposed_provenance_mut::<u8>(to_usize(address));
    // SAFETY: the address was looked up in a memory region that is registered, whose owner keeps the memory mapped and leaves
    // it to the device while a request on it is posted. It is not `data`, which is this library's own.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), place, data.len()) };
}

/// Reads registered memory.
pub(crate) fn take(address: u64, length: u32) -> Vec<u8> {
    let place = std::ptr::with_exposed_provenance::<u8>(to_usize(address));
    bytes(place, length as usize)
}

/// An address as wide as the machine's, which all are.
pub(crate) fn to_usize(address: u64) -> usize {
    usize::try_from(address).unwrap_or(usize::MAX)
}

/// A text from a test: its bytes are `length` at `pointer`.
pub(crate) fn text(pointer: *const u8, length: usize) -> String {
    String::from_utf8_lossy(&bytes(pointer, length)).into_owned()
}

/// The address at `pointer`, if it is of a family that is known here.
pub(crate) fn address(pointer: *const libc::sockaddr) -> Result<SocketAddr, Errno> {
    if pointer.is_null() {
        return Err(libc::EINVAL);
    }
    // The family is the first member on Linux.
    let family = pointer.cast::<libc::sa_family_t>();
    // SAFETY: not null; the caller of the C function promises an address.
    let family = unsafe { family.read_unaligned() };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is of this type.
            let v4 = unsafe { pointer.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is of this type.
            let v6 = unsafe { pointer.cast::<libc::sockaddr_in6>().read_unaligned() };
            Ok(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(v6.sin6_addr.s6_addr),
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            )))
        }
        _ => Err(libc::EINVAL),
    }
}

const _: () = assert!(std::mem::offset_of!(libc::sockaddr, sa_family) == 0);

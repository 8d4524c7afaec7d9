#![expect(unsafe_code, reason = "copies C socket addresses")]

use std::net::SocketAddr;

use libc::{sockaddr, sockaddr_storage};
use socket2::{SockAddr, SockAddrStorage};

/// The address in C's form, and a pointer to it for a call that only reads.
pub(super) struct CAddr(SockAddr);

impl CAddr {
    pub(super) fn new(addr: SocketAddr) -> Self {
        Self(SockAddr::from(addr))
    }

    /// For functions of librdmacm that take `struct sockaddr *` and do not write to it.
    pub(super) fn as_ptr(&self) -> *mut sockaddr {
        self.0.as_ptr().cast::<sockaddr>().cast_mut()
    }
}

/// The IPv4 or IPv6 address in `storage`; `None` when it is unset or of another family.
pub(super) fn from_storage(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let len = match i32::from(storage.ss_family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let len = libc::socklen_t::try_from(len).ok()?;
    let mut copy = SockAddrStorage::zeroed();
    // SAFETY: `view_as` wants the type that socket2 stores on this platform: `sockaddr_storage` on Unix.
    let view = unsafe { copy.view_as::<sockaddr_storage>() };
    *view = *storage;
    // SAFETY: the first `len` bytes are an address of the family that was just looked at.
    let addr = unsafe { SockAddr::new(copy, len) };
    addr.as_socket()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> Option<SocketAddr> {
        let addr = CAddr::new(text.parse().unwrap());
        // SAFETY: socket2 keeps a whole `sockaddr_storage` behind the pointer.
        let storage = unsafe { addr.as_ptr().cast::<sockaddr_storage>().read() };
        from_storage(&storage)
    }

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in [
            "10.9.0.1:7471",
            "1.2.3.4:0",
            "[fd09::1]:65535",
            "0.0.0.0:1",
            "[fe80::1%3]:5",
        ] {
            assert_eq!(round_trip(text), Some(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn an_unset_address_is_none() {
        // SAFETY: all zeros is a valid `sockaddr_storage`: family AF_UNSPEC.
        let unset: sockaddr_storage = unsafe { std::mem::MaybeUninit::zeroed().assume_init() };
        assert_eq!(from_storage(&unset), None);
    }
}

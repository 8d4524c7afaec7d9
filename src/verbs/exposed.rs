#![expect(unsafe_code, reason = "owns memory that a peer may touch at any time")]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rdma_sys::ibv_mr;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::pd::ProtectionDomain;
use super::remote::RemoteMemory;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs, pointer_of};

const OP: &str = "ibv_reg_mr";

/// What the peer may do with exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Read and write it.
    ReadWrite,
    /// Read and write it, and carry out atomic operations on it.
    ReadWriteAtomic,
}

/// Memory that the peer may touch at any time, with [`write`](super::SendQueue::write), [`read`](super::SendQueue::read) and
/// the atomic operations of its queue pair in the same protection domain.
///
/// The program copies in and out; there are no references to bytes that may change under it. That a write of the peer has
/// arrived is told by a completion (a message, or immediate data), never by the bytes.
///
/// # Invariants
///
/// `base` is `len` bytes from `mmap`, registered as `mr` in `pd`. They are touched by atomic accesses only, and by devices.
pub struct Exposed {
    mr: NonNull<ibv_mr>,
    base: NonNull<u8>,
    len: u32,
    access: Access,
    pd: ProtectionDomain,
}

// SAFETY: the memory is the value's own, and is touched by atomic accesses only.
unsafe impl Send for Exposed {}
// SAFETY: as for `Send`: through `&Exposed` bytes are read atomically.
unsafe impl Sync for Exposed {}

impl ProtectionDomain {
    /// Registers `len` bytes, zeroed, and opens them to the peers of the queue pairs in this domain.
    ///
    /// Calls `ibv_reg_mr` ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)) with remote access. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for no bytes, [`TooLarge`](ErrorKind::TooLarge) for 4 GiB or more or above
    /// the device's `max_mr_size`; `ENOMEM` above the limit of locked memory.
    #[doc(alias = "ibv_reg_mr")]
    pub fn expose(&self, len: usize, access: Access) -> Result<Exposed> {
        Exposed::new(self, len, access)
    }
}

impl Access {
    fn flags(self) -> u32 {
        use rdma_sys::{
            IBV_ACCESS_LOCAL_WRITE as LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC as ATOMIC,
            IBV_ACCESS_REMOTE_READ as READ, IBV_ACCESS_REMOTE_WRITE as WRITE,
        };
        match self {
            Self::Read => READ,
            // The device may write for the peer only where it may write at all.
            Self::Write => LOCAL_WRITE | WRITE,
            Self::ReadWrite => LOCAL_WRITE | WRITE | READ,
            Self::ReadWriteAtomic => LOCAL_WRITE | WRITE | READ | ATOMIC,
        }
    }
}

impl Exposed {
    fn new(pd: &ProtectionDomain, len: usize, access: Access) -> Result<Self> {
        if len == 0 {
            return Err(Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "no bytes cannot be exposed; expose at least one",
            ));
        }
        let limit = pd.context().limits().max_mr_size().min(u32::MAX.into());
        let Some(length) = u32::try_from(len)
            .ok()
            .filter(|&len| u64::from(len) <= limit)
        else {
            return Err(Error::too_large(
                OP,
                "length of the memory in bytes",
                len as u64,
                limit,
                "expose several pieces",
            ));
        };
        // SAFETY: `mmap_anonymous` wants an address that nothing depends on: null leaves the choice to the kernel.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = base.map_err(|errno| Error::os("mmap", errno.raw_os_error()))?;
        // SAFETY: `ibv_reg_mr` wants a domain, which `pd` is, and `len` bytes that stay mapped until `ibv_dereg_mr`: `drop`
        // unmaps them only after that has succeeded. CAST: low bits.
        let mr = unsafe { rdma_sys::ibv_reg_mr(pd.as_raw(), base, len, access.flags() as i32) };
        let mr = pointer_of(mr).map_err(|errno| {
            // SAFETY: the bytes were mapped above, and nobody has them. If it fails, they are leaked.
            let _ = unsafe { munmap(base, len) };
            Error::os(OP, errno)
        })?;
        let Some(base) = NonNull::new(base.cast()) else {
            return Err(Error::os("mmap", libc::ENOMEM));
        };
        // INVARIANT: mapped and registered above.
        Ok(Self {
            mr,
            base,
            len: length,
            access,
            pd: pd.clone(),
        })
    }

    /// What to tell the peer, so that it can reach the memory.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        // SAFETY: the region is registered while `self` lives, and its key never changes.
        let rkey = unsafe { self.mr.as_ref() }.rkey;
        RemoteMemory::new(self.base.as_ptr().addr() as u64, rkey, self.len)
    }

    /// How many bytes.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// What the peer may do with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Copies the bytes at `offset` out, as they are now.
    ///
    /// # Panics
    ///
    /// When `offset` and the length of `to` are not inside.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        let (head, rest) = to.split_at_mut(unaligned(offset, to.len()));
        let middle = offset + head.len();
        for (place, byte) in (offset..).zip(head) {
            *byte = self.byte(place).load(Ordering::Relaxed);
        }
        let mut words = rest.chunks_exact_mut(8);
        let mut place = middle;
        for word in &mut words {
            word.copy_from_slice(&self.word(place).load(Ordering::Relaxed).to_ne_bytes());
            place += 8;
        }
        for (place, byte) in (place..).zip(words.into_remainder()) {
            *byte = self.byte(place).load(Ordering::Relaxed);
        }
    }

    /// Copies `from` in at `offset`.
    ///
    /// # Panics
    ///
    /// When `offset` and the length of `from` are not inside.
    pub fn write_at(&mut self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        let (head, rest) = from.split_at(unaligned(offset, from.len()));
        for (place, &byte) in (offset..).zip(head) {
            self.byte(place).store(byte, Ordering::Relaxed);
        }
        let words = rest.chunks_exact(8);
        let tail = words.remainder();
        let mut place = offset + head.len();
        for word in words {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            let word = u64::from_ne_bytes(bytes);
            self.word(place).store(word, Ordering::Relaxed);
            place += 8;
        }
        for (place, &byte) in (place..).zip(tail) {
            self.byte(place).store(byte, Ordering::Relaxed);
        }
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{len} bytes at {offset} are not inside {} exposed bytes",
            self.len()
        );
    }

    /// The byte at `place`, which was checked.
    fn byte(&self, place: usize) -> &AtomicU8 {
        // SAFETY: `place` is inside.
        let byte = unsafe { self.base.add(place) };
        // SAFETY: the byte is mapped while `self` lives, and this process touches it by atomic accesses only.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    /// The eight bytes at `place`, which were checked; `place` is a multiple of eight.
    fn word(&self, place: usize) -> &AtomicU64 {
        // SAFETY: `place` is inside.
        let word = unsafe { self.base.add(place) };
        // SAFETY: as for `byte`; a mapping starts at a page, so a multiple of eight is aligned. (Bytes and words are touched by
        // one thread at a time: `write_at` has `&mut self`, and reads of other threads race with devices only.)
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// Takes the memory back from the peers: after this no write of theirs arrives.
    ///
    /// Calls `ibv_dereg_mr`. Blocks: no.
    ///
    /// # Errors
    ///
    /// `EBUSY` and what else the device reports; the memory is leaked then, since the device may still use it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn close(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        let ended = this.end();
        // SAFETY: `this` is not dropped, so its share of the domain is given back once, here.
        drop(unsafe { ptr::read(&raw const this.pd) });
        ended
    }

    /// Deregisters and unmaps. Called once.
    fn end(&self) -> Result<()> {
        // SAFETY: `ibv_dereg_mr` wants a region. Peers that use it meanwhile get an error.
        let returned = unsafe { rdma_sys::ibv_dereg_mr(self.mr.as_ptr()) };
        errno_of_verbs(returned).map_err(|errno| {
            std::mem::forget(self.pd.clone());
            Error::os("ibv_dereg_mr", errno)
        })?;
        // SAFETY: mapped in `new`, and no device has the bytes any more. If it fails, they are leaked.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len()) };
        Ok(())
    }
}

/// How many bytes of `len` at `offset` come before the next multiple of eight.
fn unaligned(offset: usize, len: usize) -> usize {
    (offset.wrapping_neg() % 8).min(len)
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed")
            .field("remote", &self.remote())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // `close` is for those who want to know; a failure has leaked what the device may hold.
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_before_a_multiple_of_eight() {
        for (offset, len, head) in [(0, 100, 0), (1, 100, 7), (7, 100, 1), (9, 3, 3), (8, 0, 0)] {
            assert_eq!(unaligned(offset, len), head, "{len} at {offset}");
        }
    }

    #[test]
    fn a_peer_that_may_write_makes_the_device_write() {
        let local = rdma_sys::IBV_ACCESS_LOCAL_WRITE;
        for (access, writes) in [
            (Access::Read, false),
            (Access::Write, true),
            (Access::ReadWrite, true),
            (Access::ReadWriteAtomic, true),
        ] {
            assert_eq!(access.flags() & local != 0, writes, "{access:?}");
        }
    }
}

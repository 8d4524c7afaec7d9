#![expect(unsafe_code, reason = "owns memory that a peer may touch at any time")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::handed_back::HandedBack;
use super::mapped::MappedMemory;
use super::pd::ProtectionDomain;
use super::reads::Readers;
use super::region::{REG_MR, Region, check_len};
use super::registration::{Access, Registration};
use super::remote::RemoteMemory;
use super::touch::{copy_in, copy_out};
use crate::error::{Error, Result};

/// Memory that the peer may touch at any time, with [`write`](super::SendQueue::write), [`read`](super::SendQueue::read) and
/// the atomic operations of its queue pair in the same protection domain.
///
/// The program copies in and out; there are no references to bytes that may change under it. That a write of the peer has
/// arrived is told by a completion (a message, or immediate data), never by the bytes. This side can read from a peer's memory
/// [into it](super::SendQueue::read_into). [`revoke`](Self::revoke) takes the memory back from the peers, as plain bytes.
///
/// It is shorter than 4 GiB, since a [`RemoteMemory`] tells its length in 32 bits.
///
/// # Invariants
///
/// `region` is of a `MappedMemory`. While it is registered its bytes are touched through `touch` and atomics, written by
/// whoever has `&mut self`, and by devices.
pub struct Exposed {
    region: Arc<Region<MappedMemory>>,
    access: Access,
    for_windows: bool,
    // Behind the region: the queue pairs let go of it when its own share is gone.
    readers: Readers,
}

impl ProtectionDomain {
    /// Registers `len` bytes, zeroed, and opens them to the peers of the queue pairs in this domain.
    ///
    /// Calls `ibv_reg_mr` ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)) with remote access. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for no bytes, [`TooLarge`](crate::ErrorKind::TooLarge) for 4 GiB or
    /// more or above the device's `max_mr_size`; `ENOMEM` above the limit of locked memory, with the limit.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn expose(&self, len: usize, access: Access) -> Result<Exposed> {
        check_len(REG_MR, self, len, MOST)?;
        let memory = MappedMemory::new(len)?;
        Ok(self.expose_memory(memory, access, Registration::new())?)
    }

    /// Registers `memory` and opens it, with what is in it, to the peers of the queue pairs in this domain.
    ///
    /// It is memory from `mmap`, of pages of the program's choice: bytes of the Rust allocator must not change under the
    /// program. Calls `ibv_reg_mr` ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)) with remote access.
    /// Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`expose`](Self::expose), and [`Unsupported`](crate::ErrorKind::Unsupported) for a `registration` that the device
    /// cannot make. The memory comes back beside the error.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn expose_memory(
        &self,
        memory: MappedMemory,
        access: Access,
        registration: Registration,
    ) -> Result<Exposed, HandedBack<MappedMemory>> {
        self.expose_with(memory, access, access.with_local(), registration)
    }

    /// Registers `memory` so that [windows](super::Window) can open parts of it to peers. By itself it is open to none.
    ///
    /// Calls `ibv_reg_mr` ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)) with `IBV_ACCESS_MW_BIND`.
    /// Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`expose_memory`](Self::expose_memory).
    #[doc(alias = "IBV_ACCESS_MW_BIND")]
    pub fn expose_for_windows(
        &self,
        memory: MappedMemory,
        registration: Registration,
    ) -> Result<Exposed, HandedBack<MappedMemory>> {
        // A window may be opened for writing only where the device may write.
        let flags = rdma_sys::IBV_ACCESS_MW_BIND | rdma_sys::IBV_ACCESS_LOCAL_WRITE;
        self.expose_with(memory, Access::empty(), flags, registration)
    }

    fn expose_with(
        &self,
        memory: MappedMemory,
        access: Access,
        flags: u32,
        registration: Registration,
    ) -> Result<Exposed, HandedBack<MappedMemory>> {
        let more =
            check_len(REG_MR, self, memory.len(), MOST).and_then(|()| registration.flags(self));
        let more = match more {
            Ok(more) => more,
            Err(error) => return Err(HandedBack::with(error, memory)),
        };
        let region = Region::register(self, memory, flags | more)?;
        // INVARIANT: just registered, and nobody has touched the memory since.
        Ok(Exposed {
            region: Arc::new(region),
            access,
            for_windows: flags & rdma_sys::IBV_ACCESS_MW_BIND != 0,
            readers: Readers::default(),
        })
    }
}

/// How many bytes a [`RemoteMemory`] can tell.
const MOST: u64 = u32::MAX as u64;

impl Exposed {
    /// What to tell the peer, so that it can reach the memory.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        let address = self.region.start().as_ptr().addr() as u64;
        RemoteMemory::new(address, self.region.rkey(), self.len_u32())
    }

    /// How many bytes.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked when it was exposed"
    )]
    fn len_u32(&self) -> u32 {
        self.region.len() as u32
    }

    /// What the peer may do with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether windows can open parts of it.
    #[must_use]
    pub fn is_for_windows(&self) -> bool {
        self.for_windows
    }

    /// Whether the peer may write it.
    pub(super) fn is_open_to_writes(&self) -> bool {
        self.access.contains(Access::WRITE)
    }

    /// Whether the device of this side may write it.
    pub(super) fn is_writable(&self) -> bool {
        self.for_windows || self.access.with_local() & rdma_sys::IBV_ACCESS_LOCAL_WRITE != 0
    }

    /// The queue pairs that read into it.
    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    pub(super) fn region(&self) -> &Arc<Region<MappedMemory>> {
        &self.region
    }

    /// The domain that the memory is registered in.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.region.protection_domain()
    }

    /// Copies the bytes at `offset` out, as they are now.
    ///
    /// # Panics
    ///
    /// When `offset + to.len()` is beyond [`len`](Self::len).
    pub fn read_at(&self, offset: usize, to: &mut [u8]) {
        let from = self.place(offset, to.len());
        // SAFETY: the bytes are inside the mapping, which `self` keeps. Threads of this process write it through `&mut self`
        // only, which nobody has now; `to` is no part of it, since there are no references to it.
        unsafe { copy_out(from, to) };
    }

    /// Copies `from` in at `offset`.
    ///
    /// # Panics
    ///
    /// When `offset + from.len()` is beyond [`len`](Self::len).
    pub fn write_at(&mut self, offset: usize, from: &[u8]) {
        let to = self.place(offset, from.len());
        // SAFETY: as for `read_at`, and `&mut self` keeps every other thread out.
        unsafe { copy_in(to, from) };
    }

    /// The eight bytes at `offset`, as a number in this machine's byte order, read at once: a counter that a peer changes by
    /// [`fetch_add`](super::SendQueue::fetch_add) is never seen half changed.
    ///
    /// A read or write of the processor and an atomic operation of a device are atomic to each other only where the device says
    /// so ([`atomics`](crate::DeviceLimits::atomics) is `Global`, `IBV_ATOMIC_GLOB`). Where it says `Device`, as most do, a value
    /// read here is one that was there; a value stored here may be lost to an operation of the device that is under way.
    ///
    /// # Panics
    ///
    /// When `offset` is no multiple of eight or the bytes are not inside.
    #[must_use]
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Puts a number into the eight bytes at `offset`, in this machine's byte order, at once.
    ///
    /// While peers change it by atomic operations, read what [`load_u64`](Self::load_u64) says about it.
    ///
    /// # Panics
    ///
    /// As for [`load_u64`](Self::load_u64).
    pub fn store_u64(&mut self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0, "offset {offset} is no multiple of eight");
        let place = self.place(offset, 8);
        // SAFETY: the eight bytes are mapped while `self` lives; a mapping starts at a page, so they are aligned. Threads write
        // them through `&mut self` only: reads of other sizes, at the same time, are reads beside reads.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    /// The address of `len` bytes at `offset`, which are inside.
    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{len} bytes at {offset} are not inside {} exposed bytes",
            self.len()
        );
        self.region.start().as_ptr().wrapping_add(offset)
    }

    /// Takes the memory back from the peers, as plain bytes: after this no write of theirs arrives, and what they try fails.
    ///
    /// Deregistration is a fence. Calls `ibv_dereg_mr`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_dereg_mr.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) while a [window](super::Window) is bound to it, or the completion of a read
    /// [into it](super::SendQueue::read_into) was not taken: the memory comes back beside the error. `EBUSY` and what else the
    /// device reports; the memory is leaked then, since the device may still use it.
    #[doc(alias = "ibv_dereg_mr")]
    #[doc(alias = "close")]
    #[doc(alias = "rdma_dereg_mr")]
    pub fn revoke(self) -> Result<MappedMemory, HandedBack<Self>> {
        self.readers.forget_ended();
        let Self {
            region,
            access,
            for_windows,
            readers,
        } = self;
        let region = Arc::try_unwrap(region).map_err(|region| {
            let error = Error::state(
                "ibv_dereg_mr",
                "memory without windows, and that no read goes into",
                "a window is bound to it, or the completion of a read into it was not taken",
            );
            HandedBack::with(
                error,
                Self {
                    region,
                    access,
                    for_windows,
                    readers,
                },
            )
        })?;
        let memory = region.end().map_err(HandedBack::without)?;
        Ok(*memory)
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed")
            .field("remote", &self.remote())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

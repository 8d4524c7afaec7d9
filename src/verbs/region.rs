#![expect(unsafe_code, reason = "owns registered memory that a device reaches")]

use std::any::Any;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rdma_sys::ibv_mr;

use super::handed_back::HandedBack;
use super::owner::MemoryOwner;
use super::pd::ProtectionDomain;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs, not_registered, pointer_of};

/// The call that registers memory of the process.
pub(super) const REG_MR: &str = "ibv_reg_mr";
const REG_DMABUF_MR: &str = "ibv_reg_dmabuf_mr";

/// One registration (`ibv_mr`), with the memory and the domain that it needs.
///
/// Dropped, it deregisters, and only then drops the owner of the memory. Where that fails the device may still reach the
/// memory: it is leaked, and so is the domain.
///
/// # Invariants
///
/// `mr` is a registration in `pd` that nobody else ends, of the `len` bytes at `start`, or of memory that is not the
/// process's. `owner` is a leaked box whose value owns those bytes, and is not touched while they are registered.
pub(super) struct Region<O: ?Sized> {
    mr: NonNull<ibv_mr>,
    owner: NonNull<O>,
    start: NonNull<u8>,
    len: usize,
    pd: ProtectionDomain,
}

// SAFETY: the owner may move to another thread, and nothing else looks at it; region and domain may be used on any thread.
unsafe impl<O: ?Sized + Send> Send for Region<O> {}
// SAFETY: through `&Region` numbers that never change are read, and the owner is not touched.
unsafe impl<O: ?Sized + Send> Sync for Region<O> {}

impl<O: MemoryOwner> Region<O> {
    /// Registers the memory of `owner` with `access`, flags of `ibv_reg_mr`.
    pub(super) fn register(
        pd: &ProtectionDomain,
        owner: O,
        access: u32,
    ) -> Result<Self, HandedBack<O>> {
        let owner = NonNull::from(Box::leak(Box::new(owner)));
        // SAFETY: the box was just made, and this is the only use of its value until the registration has ended.
        let memory = unsafe { (*owner.as_ptr()).memory() };
        match registered(pd, memory, access) {
            // INVARIANT: just registered in `pd`; the box is leaked, and its value untouched since it gave the bytes.
            Ok(mr) => Ok(Self {
                mr,
                owner,
                start: memory.cast(),
                len: memory.len(),
                pd: pd.clone(),
            }),
            Err(error) => {
                // SAFETY: the pointer is that of the box above, which is taken back once; nothing is registered.
                let owner = unsafe { Box::from_raw(owner.as_ptr()) };
                Err(HandedBack::with(error, *owner))
            }
        }
    }

    /// Forgets of which type the owner is.
    pub(super) fn erased(self) -> Region<dyn Any + Send> {
        let this = ManuallyDrop::new(self);
        Region {
            mr: this.mr,
            owner: this.owner,
            start: this.start,
            len: this.len,
            // SAFETY: `this` is not dropped, so its share of the domain is moved out once, here.
            pd: unsafe { ptr::read(&raw const this.pd) },
        }
    }
}

/// Registers bytes that their owner leaves alone.
fn registered(
    pd: &ProtectionDomain,
    memory: NonNull<[u8]>,
    access: u32,
) -> Result<NonNull<ibv_mr>> {
    check_len(REG_MR, pd, memory.len(), u64::MAX)?;
    // SAFETY: `ibv_reg_mr` wants a domain, which `pd` is, and bytes that stay where they are until `ibv_dereg_mr`, and that
    // nobody else uses while the device may: what a `MemoryOwner` promises, and the owner is untouched until then. CAST: bits.
    let mr = unsafe {
        rdma_sys::ibv_reg_mr(
            pd.as_raw(),
            memory.as_ptr().cast(),
            memory.len(),
            access as i32,
        )
    };
    pointer_of(mr).map_err(|errno| not_registered(REG_MR, errno, memory.len()))
}

/// That so many bytes can be one registration, of no more than `most`.
pub(super) fn check_len(
    op: &'static str,
    pd: &ProtectionDomain,
    len: usize,
    most: u64,
) -> Result<()> {
    if len == 0 {
        return Err(Error::plain(
            op,
            ErrorKind::InvalidInput,
            "the length is 0; register at least one byte",
        ));
    }
    let limit = pd.context().limits().max_mr_size().min(most);
    if len as u64 > limit {
        return Err(Error::too_large(
            op,
            "length of the memory in bytes",
            len as u64,
            limit,
            "register several pieces",
        ));
    }
    Ok(())
}

impl Region<()> {
    /// Registers `len` bytes, less than 4 GiB, at `offset` of a dma-buf, which the device's users address from `offset` on.
    pub(super) fn register_dmabuf(
        pd: &ProtectionDomain,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        access: u32,
    ) -> Result<Self> {
        check_len(REG_DMABUF_MR, pd, len, u32::MAX.into())?;
        // SAFETY: `ibv_reg_dmabuf_mr` wants a domain, which `pd` is, and a descriptor; the kernel checks that it is a dma-buf
        // of this length, and holds it while it is registered. CAST: bits.
        let mr = unsafe {
            rdma_sys::ibv_reg_dmabuf_mr(
                pd.as_raw(),
                offset,
                len,
                offset,
                fd.as_raw_fd(),
                access as i32,
            )
        };
        let mr = pointer_of(mr).map_err(|errno| match ErrorKind::of_errno(errno) {
            ErrorKind::Unsupported => {
                Error::unsupported(REG_DMABUF_MR, "registration of a dma-buf", "the device")
            }
            _ => Error::os(REG_DMABUF_MR, errno),
        })?;
        // INVARIANT: just registered in `pd`; the kernel holds the memory, so there is nothing for an owner to keep.
        Ok(Self {
            mr,
            owner: NonNull::from(Box::leak(Box::new(()))),
            start: NonNull::dangling(),
            len,
            pd: pd.clone(),
        })
    }
}

impl<O: ?Sized> Region<O> {
    /// The first byte. A dma-buf has none in this process.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The key for this side's work requests.
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the region is registered while `self` lives, and its key never changes.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    /// The key for the peer's.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: as for `lkey`.
        unsafe { (*self.mr.as_ptr()).rkey }
    }

    pub(super) fn as_raw(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }

    /// Deregisters, and gives the owner of the memory back.
    pub(super) fn end(self) -> Result<Box<O>> {
        let mut this = ManuallyDrop::new(self);
        let owner = this.deregister();
        // SAFETY: `this` is not dropped, so its share of the domain is given back once, here.
        unsafe { ptr::drop_in_place(&raw mut this.pd) };
        owner
    }

    /// Deregisters; called once.
    fn deregister(&mut self) -> Result<Box<O>> {
        // SAFETY: `ibv_dereg_mr` wants a region that no work request of this side uses: whoever posts its bytes keeps a share of
        // it. Peers that use it meanwhile get an error.
        let returned = unsafe { rdma_sys::ibv_dereg_mr(self.mr.as_ptr()) };
        errno_of_verbs(returned).map_err(|errno| {
            // The device may still reach the memory.
            std::mem::forget(self.pd.clone());
            Error::os("ibv_dereg_mr", errno)
        })?;
        // SAFETY: the pointer is that of a leaked box (the invariant), taken back once; no device has its memory any more.
        Ok(unsafe { Box::from_raw(self.owner.as_ptr()) })
    }
}

impl<O: ?Sized> Drop for Region<O> {
    fn drop(&mut self) {
        // `end` is for those who want to know; a failure has leaked what the device may hold.
        drop(self.deregister());
    }
}

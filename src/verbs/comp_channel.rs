#![expect(unsafe_code, reason = "owns a pointer to an ibv_comp_channel")]

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_comp_channel, ibv_cq};
use rustix::io::Errno;

use super::context::Context;
use crate::error::{Error, Result, errno_of_rdma, errno_of_verbs, pointer_of};

/// The completion channel of one completion queue.
///
/// # Invariants
///
/// `raw` is a channel of `_context` whose descriptor is open and non-blocking.
#[derive(Debug)]
pub(super) struct CompChannel {
    raw: NonNull<ibv_comp_channel>,
    _context: Context,
}

// SAFETY: the pointer is only handed to libibverbs, whose functions on a channel may be called from any thread.
unsafe impl Send for CompChannel {}
// SAFETY: as for `Send`; the fields of the C structure that are read here never change.
unsafe impl Sync for CompChannel {}

impl CompChannel {
    pub(super) fn new(context: &Context) -> Result<Self> {
        const OP: &str = "ibv_create_comp_channel";
        // SAFETY: `ibv_create_comp_channel` wants an open device, which a `Context` is.
        let raw = unsafe { rdma_sys::ibv_create_comp_channel(context.as_raw()) };
        let raw = pointer_of(raw).map_err(|errno| Error::os(OP, errno))?;
        // INVARIANT: just made; the descriptor is made non-blocking before anybody else sees it.
        let channel = Self {
            raw,
            _context: context.clone(),
        };
        rustix::io::ioctl_fionbio(channel.as_fd(), true)
            .map_err(|errno| Error::os(OP, errno.raw_os_error()))?;
        Ok(channel)
    }

    pub(super) fn as_raw(&self) -> *mut ibv_comp_channel {
        self.raw.as_ptr()
    }

    /// Reads and acknowledges every event that is pending.
    ///
    /// # Safety
    ///
    /// The channel's only completion queue is alive.
    pub(super) unsafe fn drain(&self) -> Result<()> {
        loop {
            let mut cq: *mut ibv_cq = ptr::null_mut();
            let mut context = ptr::null_mut();
            // SAFETY: `ibv_get_cq_event` wants a channel and room for two answers. The event is of the channel's only queue,
            // which the caller says is alive.
            let returned = unsafe {
                rdma_sys::ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut context)
            };
            match errno_of_rdma(returned) {
                Ok(()) => {}
                Err(errno) if errno == Errno::AGAIN.raw_os_error() => return Ok(()),
                Err(errno) if errno == Errno::INTR.raw_os_error() => continue,
                Err(errno) => return Err(Error::os("ibv_get_cq_event", errno)),
            }
            // SAFETY: `cq` is the queue that the event just read is of. Acknowledging it here, before anybody else runs, is
            // why `ibv_destroy_cq` never waits.
            unsafe { rdma_sys::ibv_ack_cq_events(cq, 1) };
        }
    }
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is a readable C structure whose `fd` is set once.
        let fd = unsafe { (*self.raw.as_ptr()).fd };
        // SAFETY: the descriptor stays open as long as the channel, which `self` owns.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        // SAFETY: `ibv_destroy_comp_channel` wants a channel that no queue uses: its queue owns it and is destroyed first.
        let returned = unsafe { rdma_sys::ibv_destroy_comp_channel(self.raw.as_ptr()) };
        debug_assert!(
            errno_of_verbs(returned).is_ok() || std::thread::panicking(),
            "ibv_destroy_comp_channel: {returned}"
        );
    }
}

#![expect(unsafe_code, reason = "owns a pointer to an ibv_qp")]

use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_qp, ibv_qp_attr};

use super::attached::Attached;
use super::pd::ProtectionDomain;
use super::standing::Standing;
use crate::error::{Error, Result, errno_of_verbs};

/// Who made a queue pair, and so knows which locks its end must take.
pub(crate) trait QpOwner: Send + Sync {
    /// How the connection of the queue pair stands.
    fn standing(&self) -> Arc<Standing>;

    /// Changes attributes of the queue pair; returns what `ibv_modify_qp` did.
    fn modify(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32;

    /// Destroys the queue pair; returns what `ibv_destroy_qp` did. Called once.
    fn destroy(&self, qp: NonNull<ibv_qp>) -> i32;
}

/// # Invariants
///
/// `raw` is a queue pair in `pd` that completes to `send_cq` and `recv_cq`, and only `owner` destroys it, once, when this is
/// dropped. Whatever is posted to it sits in `send_ring` and `recv_ring`.
pub(super) struct QpInner {
    pub(super) raw: NonNull<ibv_qp>,
    /// `None` once the queue pair is destroyed, or leaked.
    pub(super) owner: Option<Box<dyn QpOwner>>,
    pub(super) send: Attached,
    pub(super) recv: Attached,
    pub(super) pd: ProtectionDomain,
}

// SAFETY: the pointer is only handed to libibverbs and to the provider, which take the queue pair's locks, and to the owner,
// which takes those that its end needs.
unsafe impl Send for QpInner {}
// SAFETY: as for `Send`; nothing is written through `&QpInner`.
unsafe impl Sync for QpInner {}

impl QpInner {
    pub(super) fn as_raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    /// Destroys the queue pair, the first time.
    pub(super) fn end(&mut self) -> Result<()> {
        let Some(owner) = self.owner.take() else {
            return Ok(());
        };
        if let Err(errno) = errno_of_verbs(owner.destroy(self.raw)) {
            // The device may still use the queue pair, and so everything that it was made of and all that is posted.
            mem::forget(owner);
            self.send.leak();
            self.recv.leak();
            mem::forget(self.pd.clone());
            return Err(Error::os("ibv_destroy_qp", errno));
        }
        Ok(())
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        // `close` is for those who want to know; a failure here has leaked what the device may hold.
        drop(self.end());
    }
}

impl fmt::Debug for QpInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("send", &self.send)
            .field("recv", &self.recv)
            .field("pd", &self.pd)
            .finish_non_exhaustive()
    }
}

#![expect(unsafe_code, reason = "calls rdma_reject")]

use std::ffi::{c_int, c_void};

use rdma_sys::rdma_cm_id;

use super::id::CmId;
use super::unacked::Unacked;
use crate::error::{Error, Result, errno_of_rdma};
use crate::verbs::HandedBack;

pub(super) const REJECT: &str = "rdma_reject";

/// `rdma_reject` or `rdma_reject_ece`.
pub(super) type Reject =
    unsafe extern "C" fn(id: *mut rdma_cm_id, private_data: *const c_void, length: u8) -> c_int;

/// A request that is not answered: the event that brought it, and the new id.
///
/// Dropped, it rejects the peer, acknowledges the event and destroys the id, in this order.
#[derive(Debug)]
pub(super) struct Pending {
    /// Dropped before the id: acknowledged before anything that waits for the listener.
    pub(super) unacked: Unacked,
    pub(super) id: CmId,
    answered: bool,
}

impl Pending {
    pub(super) fn new(unacked: Unacked, id: CmId) -> Self {
        Self {
            unacked,
            id,
            answered: false,
        }
    }

    /// The request was accepted: acknowledges the event and gives the id.
    pub(super) fn answered(mut self) -> CmId {
        self.answered = true;
        let id = CmId::from_handle(self.id.handle().clone());
        drop(self);
        id
    }

    /// Rejects the peer with `private_data`, whose length was checked, by `call`; then as for a drop.
    pub(super) fn reject(mut self, call: Reject, private_data: &[u8], length: u8) -> Result<()> {
        self.answered = true;
        self.call_reject(call, private_data, length)
    }

    fn call_reject(&self, call: Reject, private_data: &[u8], length: u8) -> Result<()> {
        let data = private_data.as_ptr().cast();
        // SAFETY: both calls want the id of a request and `length` bytes that they read meanwhile: `length` is that of
        // `private_data`, or 0.
        let returned = unsafe { call(self.id.as_raw(), data, length) };
        match errno_of_rdma(returned) {
            // The peer has given up (over iWARP: ECONNRESET), or an accept that failed has rejected it: there is nobody to tell.
            Ok(()) | Err(libc::EINVAL | libc::ECONNRESET) => Ok(()),
            Err(errno) => Err(self.id.error_here(REJECT, errno)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.answered {
            // Nobody is left to hear of a failure; the id is destroyed all the same.
            drop(self.call_reject(rdma_sys::rdma_reject, &[], 0));
        }
    }
}

/// Why an accept failed: before the C function was called, when the request is as good as new, or in it.
pub(super) enum Failed {
    Before(Error),
    Called(Error),
}

impl Failed {
    /// Hands `request` back, or drops it after a call that failed.
    ///
    /// Some failures have rejected the peer already, others have not: dropping the request does it for certain.
    pub(super) fn hand_back<R>(self, request: R) -> HandedBack<R> {
        match self {
            Self::Before(error) => HandedBack::with(error, request),
            Self::Called(error) => HandedBack::without(error),
        }
    }
}

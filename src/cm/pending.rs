#![expect(unsafe_code, reason = "calls rdma_reject")]

use std::ffi::{c_int, c_void};
use std::fmt;

use rdma_sys::rdma_cm_id;

use super::id::CmId;
use super::unacked::Unacked;
use crate::error::{Error, Result, errno_of_rdma};

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
    pub(super) fn into_not_accepted<R>(self, request: R) -> NotAccepted<R> {
        match self {
            Self::Before(error) => NotAccepted {
                error,
                request: Some(request),
            },
            Self::Called(error) => NotAccepted {
                error,
                request: None,
            },
        }
    }
}

/// An accept that failed, with the request if the peer was not answered: it can be tried again with other values.
///
/// Without a request, the peer was rejected and everything that belonged to it is gone.
#[derive(Debug)]
pub struct NotAccepted<R = super::ConnRequest> {
    error: Error,
    request: Option<R>,
}

impl<R> NotAccepted<R> {
    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The request, if the peer was not answered.
    #[must_use]
    pub fn into_request(self) -> Option<R> {
        self.request
    }
}

impl<R> From<NotAccepted<R>> for Error {
    /// Drops the request, if there still is one: the peer is rejected.
    fn from(failed: NotAccepted<R>) -> Self {
        failed.error
    }
}

impl<R> fmt::Display for NotAccepted<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<R: fmt::Debug> std::error::Error for NotAccepted<R> {}

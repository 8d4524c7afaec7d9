#![expect(unsafe_code, reason = "owns an rdma_cm_event")]

use std::ptr::NonNull;
use std::slice;

use rdma_sys::{rdma_cm_event, rdma_conn_param};

use super::listen::Outstanding;

/// A connection request's event, not acknowledged yet; dropping it acknowledges it.
///
/// # Invariants
///
/// `raw` is a CONNECT_REQUEST event, from `rdma_get_cm_event`, that nobody else acknowledges.
#[derive(Debug)]
pub(super) struct Unacked {
    raw: NonNull<rdma_cm_event>,
    /// Counts the event on its listener. Declared behind nothing that outlives the ack: `drop` acks, then this is dropped.
    _counted: Outstanding,
}

// SAFETY: the event is a plain allocation; `rdma_ack_cm_event` takes the listener's own mutex and may run on any thread.
unsafe impl Send for Unacked {}
// SAFETY: through `&Unacked` the event is only read, and the library does not write to it once it has handed it out.
unsafe impl Sync for Unacked {}

impl Unacked {
    /// Takes over `raw`.
    ///
    /// # Safety
    ///
    /// `raw` is a CONNECT_REQUEST event that nobody else acknowledges, and it is counted by `counted`.
    pub(super) unsafe fn new(raw: NonNull<rdma_cm_event>, counted: Outstanding) -> Self {
        // INVARIANT: the caller vouches for it.
        Self {
            raw,
            _counted: counted,
        }
    }

    /// The peer's parameters, as the event holds them until the ack: of a connected service.
    pub(super) fn param(&self) -> &rdma_conn_param {
        // SAFETY: the event is alive until `drop`.
        let event = unsafe { self.raw.as_ref() };
        // SAFETY: both members of the union are plain data in zeroed memory. `conn` is the one that was written for a
        // connected service; for datagrams, `ud` begins with the same two fields, and no other is looked at.
        unsafe { &event.param.conn }
    }

    /// The peer's private data, in the event's own memory.
    pub(super) fn private_data(&self) -> &[u8] {
        let param = self.param();
        // SAFETY: the event is alive until `drop`, and the library has filled these two fields together.
        unsafe { private_data(param.private_data, param.private_data_len) }
    }
}

/// The private data of an event, which is empty where there is none.
///
/// # Safety
///
/// `data` is null or points to `len` bytes of an event that is not acknowledged during `'ev`.
pub(super) unsafe fn private_data<'ev>(data: *const libc::c_void, len: u8) -> &'ev [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's own obligation: the library sets the pointer to as many bytes inside the event.
    unsafe { slice::from_raw_parts(data.cast(), len.into()) }
}

impl Drop for Unacked {
    fn drop(&mut self) {
        // SAFETY: `rdma_ack_cm_event` wants an event that was not acknowledged: the invariant. It counts on the listener,
        // whose memory C keeps until this has been counted. It fails for a null pointer only.
        unsafe { rdma_sys::rdma_ack_cm_event(self.raw.as_ptr()) };
    }
}

#![expect(unsafe_code, reason = "makes, asks and destroys queue pairs in C")]
//! The calls of C on a queue pair that its owners share, and the owner of one made by hand. Making and destroying one is done
//! while no asynchronous event is read: see [`AsyncEvents`](super::AsyncEvents).

use std::ptr::NonNull;

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex};

use super::context::Context;
use super::pd::ProtectionDomain;
use super::qp_inner::QpOwner;
use super::standing::Standing;
use super::wr_post::{self, Made};
use crate::error::{Error, Result, pointer_of};

/// Calls `ibv_create_qp` for the call `op`.
///
/// # Safety
///
/// The queues in `attr` are of the domain's device.
pub(crate) unsafe fn create_qp(
    op: &'static str,
    pd: &ProtectionDomain,
    attr: &mut ibv_qp_init_attr,
) -> Result<NonNull<ibv_qp>> {
    let making = pd.context().objects_change();
    // SAFETY: `ibv_create_qp` wants a domain, and attributes with queues of its device, which the caller provides.
    let made = unsafe { rdma_sys::ibv_create_qp(pd.as_raw(), attr) };
    let made = pointer_of(made).map_err(|errno| Error::os(op, errno));
    drop(making);
    made
}

/// Makes a connected queue pair by `ibv_create_qp_ex`, so that batches can be posted by calls, or else by `ibv_create_qp`, for the
/// call `op`.
///
/// # Safety
///
/// As for [`create_qp`].
pub(crate) unsafe fn create_connected(
    op: &'static str,
    pd: &ProtectionDomain,
    attr: &mut ibv_qp_init_attr,
) -> Result<Made> {
    let by_calls = |attr: &mut ibv_qp_init_attr_ex| {
        let making = pd.context().objects_change();
        // SAFETY: `ibv_create_qp_ex` wants the open device of the domain that the attributes name, and queues of that device.
        let made = unsafe { rdma_sys::ibv_create_qp_ex(pd.context().as_raw(), attr) };
        let made = pointer_of(made);
        drop(making);
        made
    };
    // SAFETY: the caller's own obligation.
    let classic = |attr: &mut ibv_qp_init_attr| unsafe { create_qp(op, pd, attr) };
    // SAFETY: both make what their attributes say.
    unsafe { wr_post::create(pd, attr, by_calls, classic) }
}

/// Calls `ibv_modify_qp` and returns what it did.
///
/// # Safety
///
/// The queue pair is alive, and `mask` names those attributes that are set.
pub(crate) unsafe fn modify_qp(qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
    // SAFETY: `ibv_modify_qp` wants a queue pair, and attributes that the mask names, by the caller's promise. CAST: a mask of
    // low bits.
    unsafe { rdma_sys::ibv_modify_qp(qp.as_ptr(), attr, mask as i32) }
}

/// Calls `ibv_query_qp` and returns what it did.
///
/// # Safety
///
/// The queue pair is alive, and nobody changes its state meanwhile: the library writes what it is told into the structure.
pub(crate) unsafe fn query_qp(qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
    let mut init = ibv_qp_init_attr::default();
    // SAFETY: `ibv_query_qp` wants a queue pair, by the caller's promise, and room for two answers. CAST: a mask of low bits.
    unsafe { rdma_sys::ibv_query_qp(qp.as_ptr(), attr, mask as i32, &raw mut init) }
}

/// Calls `ibv_destroy_qp` and returns what it did.
///
/// # Safety
///
/// The queue pair is alive, of the device `context`, and nobody uses it.
pub(crate) unsafe fn destroy_qp(context: &Context, qp: NonNull<ibv_qp>) -> i32 {
    let ending = context.objects_change();
    // SAFETY: `ibv_destroy_qp` wants a queue pair that nobody uses, by the caller's promise.
    let returned = unsafe { rdma_sys::ibv_destroy_qp(qp.as_ptr()) };
    drop(ending);
    returned
}

/// The end of a queue pair made by hand: nobody else knows it, so it takes no locks.
pub(super) struct ByHand(pub(super) Standing);

impl QpOwner for ByHand {
    fn standing(&self) -> &Standing {
        &self.0
    }

    unsafe fn modify(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
        // SAFETY: the caller's own promise.
        unsafe { modify_qp(qp, attr, mask) }
    }

    unsafe fn query(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
        // SAFETY: the caller's own promise: one call at a time, so nobody changes it meanwhile.
        unsafe { query_qp(qp, attr, mask) }
    }

    unsafe fn destroy(&self, context: &Context, qp: NonNull<ibv_qp>) -> i32 {
        // SAFETY: only its queue pair knows this owner, and calls this once, when nothing uses it any more.
        unsafe { destroy_qp(context, qp) }
    }
}

//! Posting work and polling for completions, through the table inside `ibv_context`.
//!
//! rdma-core fills every entry that a driver leaves out with a function that fails, before it hands a context out. So
//! these do not test for null, like C's: an object of the right kind is proof that the entry is there.

use core::ffi::c_int;

use super::context::Unsupported as _;
use crate::{
    ibv_context, ibv_context_ops, ibv_cq, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc, ibv_wq,
};

/// Calls an entry of the table inside the context of `$object`.
macro_rules! call {
    ($object:ident, $entry:ident ($($arg:expr),*)) => {{
        // SAFETY: the caller passes a live object; its `context` never changes.
        let context = unsafe { (*$object).context };
        // SAFETY: the device stays open as long as the object lives, and its table does not change.
        let entry = unsafe { (*context).ops.$entry };
        // SAFETY: the library has filled the entry before it handed the context out.
        let entry = unsafe { entry.unwrap_unchecked() };
        // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
        unsafe { entry($($arg),*) }
    }};
}

/// Takes up to `num_entries` completions out of a completion queue. Returns how many, or a negative number.
///
/// Of a completion whose status is not success, only `wr_id`, `status`, `qp_num` and `vendor_err` are written.
///
/// # Safety
///
/// - `cq` is a live completion queue.
/// - `wc` is valid for writing `num_entries` elements, and `num_entries` is not negative.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    call!(cq, poll_cq(cq, num_entries, wc))
}

/// Asks for an event on the queue's channel at the next completion. Returns 0 or an errno.
///
/// # Safety
///
/// `cq` is a live completion queue.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    call!(cq, req_notify_cq(cq, solicited_only))
}

/// Posts a list of work requests to the send queue. Returns 0 or an errno, with `bad_wr` set to the first not posted.
///
/// # Safety
///
/// - `qp` is a live queue pair.
/// - `wr` is the head of a list of initialised work requests that ends with a null `next`, each with `num_sge`
///   elements at `sg_list`; what its opcode reads of its unions is initialised.
/// - `bad_wr` is valid for writing.
/// - The memory that the requests name stays valid, and unused where the device writes, until they have completed.
#[inline]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    call!(qp, post_send(qp, wr, bad_wr))
}

/// Posts a list of buffers to the receive queue. Returns 0 or an errno, with `bad_wr` set to the first not posted.
///
/// # Safety
///
/// - `qp` is a live queue pair that has a receive queue of its own.
/// - `wr` is the head of a list of initialised work requests that ends with a null `next`, each with `num_sge`
///   elements at `sg_list`.
/// - `bad_wr` is valid for writing.
/// - The memory that the requests name stays valid and unused until they have completed.
#[inline]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    call!(qp, post_recv(qp, wr, bad_wr))
}

/// Posts a list of buffers to a shared receive queue. Returns 0 or an errno, with `bad_recv_wr` set to the first not
/// posted.
///
/// # Safety
///
/// As for [`ibv_post_recv`], with a live shared receive queue.
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    recv_wr: *mut ibv_recv_wr,
    bad_recv_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    call!(srq, post_srq_recv(srq, recv_wr, bad_recv_wr))
}

/// Posts a list of buffers to a work queue. Returns 0 or an errno, with `bad_recv_wr` set to the first not posted.
///
/// # Safety
///
/// As for [`ibv_post_recv`], with a live work queue.
#[inline]
pub unsafe fn ibv_post_wq_recv(
    wq: *mut ibv_wq,
    recv_wr: *mut ibv_recv_wr,
    bad_recv_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller passes a live queue; the driver sets the entry when it makes the queue.
    let entry = unsafe { (*wq).post_recv };
    // SAFETY: as above.
    let entry = unsafe { entry.unwrap_unchecked() };
    // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
    unsafe { entry(wq, recv_wr, bad_recv_wr) }
}

/// Allocates a memory window. Returns null with `errno` on failure.
///
/// # Safety
///
/// `pd` is a live protection domain.
#[inline]
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller passes a live domain; its `context` never changes.
    let context = unsafe { (*pd).context };
    // SAFETY: the device stays open as long as the domain lives, and its table does not change.
    let entry = unsafe { (*context).ops.alloc_mw };
    match entry {
        // SAFETY: the caller passes a live domain; the driver answers an unknown kind with an error.
        Some(call) => unsafe { call(pd, kind) },
        None => <*mut ibv_mw>::unsupported(),
    }
}

/// Frees a memory window. Returns 0 or an errno.
///
/// # Safety
///
/// `mw` is a live memory window, and is not used again once this has returned 0.
#[inline]
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    call!(mw, dealloc_mw(mw))
}

/// Posts the binding of a type-1 memory window to a region. Returns 0 or an errno.
///
/// # Safety
///
/// - `qp` is a live queue pair and `mw` a live memory window.
/// - `mw_bind` points to an initialised description, whose region is null or live.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller passes a live memory window.
    let kind = unsafe { (*mw).type_ };
    if kind != ibv_mw_type::IBV_MW_TYPE_1 {
        return libc::EINVAL;
    }
    // SAFETY: the caller passes an initialised description; it is plain data.
    let info = unsafe { (*mw_bind).bind_info };
    if info.mr.is_null() {
        if info.addr != 0 || info.length != 0 {
            return libc::EINVAL;
        }
    } else {
        // SAFETY: the caller passes a live memory window.
        let window = unsafe { (*mw).pd };
        // SAFETY: not null, so live by the caller's promise.
        let region = unsafe { (*info.mr).pd };
        if window != region {
            return libc::EPERM;
        }
    }
    call!(mw, bind_mw(qp, mw, mw_bind))
}

/// The next key of a memory window of type 2, or of a region: the lowest 8 bits count, the others name the object.
#[inline]
#[must_use]
pub const fn ibv_inc_rkey(rkey: u32) -> u32 {
    const TAG: u32 = 0xff;
    (rkey & !TAG) | (rkey.wrapping_add(1) & TAG)
}

// The table lies at the same place in every version, and its first entries must not move.
const _: () = {
    assert!(core::mem::offset_of!(ibv_context, ops) == size_of::<*mut ()>());
    assert!(size_of::<ibv_context_ops>() == 32 * size_of::<fn()>());
};

#[cfg(test)]
mod tests {
    use super::ibv_inc_rkey;

    #[test]
    fn the_tag_of_a_key_wraps_without_touching_the_rest() {
        assert_eq!(ibv_inc_rkey(0x1234_5600), 0x1234_5601);
        assert_eq!(ibv_inc_rkey(0x1234_56ff), 0x1234_5600);
        assert_eq!(ibv_inc_rkey(u32::MAX), 0xffff_ff00);
    }
}

//! The C side: the loops of `c/loops.c`, the provider of `c/provider.c`, and what `c/device.c` puts before a device's own.
#![expect(unsafe_code, reason = "calls C")]

use std::error::Error;
use std::ffi::{c_int, c_long, c_void};

use rdma_sys::{
    ibv_context, ibv_cq, ibv_mr, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc,
};

use rdmacm::ProtectionDomain;

use crate::sizes::PAIRS;

/// What a C loop works on: `struct work` of `c/work.h`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) qps: [*mut ibv_qp; PAIRS],
    pub(crate) cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) lkey: u32,
}

pub(crate) type CLoop = unsafe extern "C" fn(*mut Work, c_long) -> c_int;

/// Declares the loops, and lists them by name.
macro_rules! loops {
    ($($name:ident)*) => {
        unsafe extern "C" {
            $(fn $name(work: *mut Work, count: c_long) -> c_int;)*
        }

        /// All loops.
        pub(crate) const LOOPS: &[(&str, CLoop)] = &[$((stringify!($name), $name)),*];
    };
}

loops! {
    loop_c_send_kept loop_c_send_written loop_c_send_books
    loop_c_receive_kept loop_c_receive_written loop_c_receive_books
    loop_c_shared_kept loop_c_shared_written loop_c_shared_books
    loop_c_inline_kept loop_c_inline_written loop_c_inline_books
    loop_c_pairs_kept loop_c_pairs_written loop_c_pairs_books
    loop_c_batch_kept loop_c_batch_written loop_c_batch_books
    loop_c_batch_wr_kept loop_c_batch_wr_written loop_c_batch_wr_books
    loop_c_device_books loop_c_device_wr_books
    loop_c_run_kept loop_c_run_written loop_c_run_books
    loop_c_pieces_kept loop_c_pieces_written loop_c_pieces_books
}

unsafe extern "C" {
    fn null_start(qp: *mut ibv_qp);
    fn null_calls(qp: *mut ibv_qp);
    fn null_post_send(
        qp: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad_wr: *mut *mut ibv_send_wr,
    ) -> c_int;
    fn null_post_recv(
        qp: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        bad_wr: *mut *mut ibv_recv_wr,
    ) -> c_int;
    fn null_post_srq_recv(
        srq: *mut ibv_srq,
        wr: *mut ibv_recv_wr,
        bad_wr: *mut *mut ibv_recv_wr,
    ) -> c_int;
    fn null_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int;
    fn wait_after_posts(qp: *mut ibv_qp);
    fn register_memory(pd: *mut ibv_pd) -> *mut ibv_mr;
}

/// Puts the provider that does nothing behind everything that is posted to or polled from on `context`.
///
/// # Safety
///
/// `context` is an open device that nobody uses meanwhile; `qp` is a queue pair of it, whose completion queue is the only
/// one that is used from now on.
pub(crate) unsafe fn replace_provider(context: *mut ibv_context, qp: *mut ibv_qp) {
    // SAFETY: the caller passes a live queue pair; nobody else is in the provider.
    unsafe { null_start(qp) };
    // SAFETY: the caller passes an open device, whose table is written to by nobody else.
    let ops = unsafe { &mut (*context).ops };
    ops.post_send = Some(null_post_send);
    ops.post_recv = Some(null_post_recv);
    ops.post_srq_recv = Some(null_post_srq_recv);
    ops.poll_cq = Some(null_poll_cq);
}

/// The same for what is posted by calls to `qp`.
///
/// # Safety
///
/// `qp` is alive, was made for calls, and nobody posts to it meanwhile.
pub(crate) unsafe fn replace_calls(qp: *mut ibv_qp) {
    // SAFETY: the caller's own obligation.
    unsafe { null_calls(qp) };
}

/// Lets the queue pairs that are made from now on be made for calls.
pub(crate) fn allow_calls() -> Result<(), Box<dyn Error>> {
    // SAFETY: a terminated name, looked for in everything that is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"standin_calls".as_ptr()) };
    if found.is_null() {
        return Err("this program runs on the stand-in for the C libraries".into());
    }
    // SAFETY: the stand-in's function of this name has this signature.
    let allow =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(usize, c_int, u64, u64)>(found) };
    allow(0, 1, 0, 0);
    Ok(())
}

/// Has each post to `qp` wait until it is done.
///
/// # Safety
///
/// `qp` is alive, and nobody else posts to a queue pair of its device from now on.
pub(crate) unsafe fn wait_for_posts(qp: *mut ibv_qp) {
    // SAFETY: the caller's own obligation.
    unsafe { wait_after_posts(qp) };
}

/// Registers the memory of the loops for as long as the program runs, and gives its key.
pub(crate) fn register(pd: &ProtectionDomain) -> Result<u32, Box<dyn Error>> {
    // SAFETY: the domain is alive, and the memory is the program's own for ever.
    let mr = unsafe { register_memory(pd.as_raw()) };
    if mr.is_null() {
        let error = std::io::Error::last_os_error();
        return Err(format!("cannot register the loops' memory: {error}").into());
    }
    // SAFETY: just made, and never deregistered.
    Ok(unsafe { (*mr).lkey })
}

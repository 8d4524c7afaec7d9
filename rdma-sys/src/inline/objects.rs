//! What makes, changes and ends an object through the extended table.

use core::ffi::c_int;

use super::context::{Unsupported as _, context_of, entry, through_context};
use crate::{
    IBV_QP_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, ibv_context,
    ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_create_qp, ibv_create_srq, ibv_flow, ibv_flow_action, ibv_flow_attr, ibv_ops_wr,
    ibv_parent_domain_init_attr, ibv_pd, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_open_attr,
    ibv_qp_rate_limit_attr, ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_srq,
    ibv_srq_init_attr_ex, ibv_srq_type, ibv_td, ibv_td_init_attr, ibv_wq, ibv_wq_attr,
    ibv_wq_init_attr, ibv_xrcd, ibv_xrcd_init_attr,
};

through_context! {
    /// Makes an extended completion queue. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `cq_attr` points to initialised attributes whose pointers are null or
    /// live.
    fn ibv_create_cq_ex(context: *mut ibv_context, cq_attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex
        = create_cq_ex on context;

    /// The number of an XRC shared receive queue. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `srq` is a live shared receive queue, and `srq_num` is valid for writing.
    fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int = get_srq_num of srq;

    /// Opens a queue pair that another process has made. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `qp_open_attr` points to initialised attributes whose pointers are null
    /// or live.
    fn ibv_open_qp(context: *mut ibv_context, qp_open_attr: *mut ibv_qp_open_attr) -> *mut ibv_qp = open_qp on context;

    /// Sets the pace of a queue pair. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair, and `attr` points to initialised attributes.
    fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int
        = modify_qp_rate_limit of qp;

    /// Opens an XRC domain. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `xrcd_init_attr` points to initialised attributes.
    fn ibv_open_xrcd(context: *mut ibv_context, xrcd_init_attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd
        = open_xrcd on context;

    /// Closes an XRC domain. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `xrcd` is a live XRC domain, and is not used again once this has returned 0.
    fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int = close_xrcd of xrcd;

    /// Makes a thread domain. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `init_attr` points to initialised attributes. What is made in the domain
    /// is then used by one thread at a time.
    fn ibv_alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td = alloc_td on context;

    /// Ends a thread domain. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `td` is a live thread domain, and is not used again once this has returned 0.
    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int = dealloc_td of td;

    /// Makes a protection domain out of another, a thread domain and an allocator. Returns null with `errno` on failure.
    /// It ends by `ibv_dealloc_pd`.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `attr` points to initialised attributes, whose domains outlive the new
    /// one and whose functions may be called by any thread.
    fn ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd
        = alloc_parent_domain on context;

    /// Changes a work queue. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `wq` is a live work queue, and `wq_attr` points to initialised attributes.
    fn ibv_modify_wq(wq: *mut ibv_wq, wq_attr: *mut ibv_wq_attr) -> c_int = modify_wq of wq;

    /// Ends a work queue. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `wq` is a live work queue, and is not used again once this has returned 0.
    fn ibv_destroy_wq(wq: *mut ibv_wq) -> c_int = destroy_wq of wq;

    /// Makes a table that spreads packets over work queues. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `init_attr` points to initialised attributes whose work queues are live.
    fn ibv_create_rwq_ind_table(
        context: *mut ibv_context,
        init_attr: *mut ibv_rwq_ind_table_init_attr,
    ) -> *mut ibv_rwq_ind_table = create_rwq_ind_table on context;

    /// Ends such a table. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `rwq_ind_table` is live, and is not used again once this has returned 0.
    fn ibv_destroy_rwq_ind_table(rwq_ind_table: *mut ibv_rwq_ind_table) -> c_int
        = destroy_rwq_ind_table of rwq_ind_table;

    /// Adds a steering rule. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair, and `flow` points to initialised attributes, followed in memory by as many
    /// specifications as they name.
    fn ibv_create_flow(qp: *mut ibv_qp, flow: *mut ibv_flow_attr) -> *mut ibv_flow = ibv_create_flow of qp;

    /// Removes a steering rule. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `flow_id` is a live steering rule, and is not used again once this has returned 0.
    fn ibv_destroy_flow(flow_id: *mut ibv_flow) -> c_int = ibv_destroy_flow of flow_id;

    /// Ends an action of steering rules. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `action` is a live action, and is not used again once this has returned 0.
    fn ibv_destroy_flow_action(action: *mut ibv_flow_action) -> c_int = destroy_flow_action of action;

    /// Makes a set of counters. Returns null with `errno` on failure.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `init_attr` points to initialised attributes.
    fn ibv_create_counters(context: *mut ibv_context, init_attr: *mut ibv_counters_init_attr) -> *mut ibv_counters
        = create_counters on context;

    /// Ends a set of counters. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `counters` is live, and is not used again once this has returned 0.
    fn ibv_destroy_counters(counters: *mut ibv_counters) -> c_int = destroy_counters of counters;

    /// Counts what a steering rule matches. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `counters` and `flow` are live, and `attr` points to initialised attributes.
    fn ibv_attach_counters_point_flow(
        counters: *mut ibv_counters,
        attr: *mut ibv_counter_attach_attr,
        flow: *mut ibv_flow,
    ) -> c_int = attach_counters_point_flow of counters;

    /// Reads a set of counters. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `counters` is live, and `counters_value` is valid for writing `ncounters` elements.
    fn ibv_read_counters(counters: *mut ibv_counters, counters_value: *mut u64, ncounters: u32, flags: u32) -> c_int
        = read_counters of counters;
}

/// Makes a shared receive queue of any kind. Returns null with `errno` on failure.
///
/// # Safety
///
/// `context` is an open device context, and `srq_init_attr_ex` points to initialised attributes whose pointers are null
/// or live.
#[inline]
pub unsafe fn ibv_create_srq_ex(
    context: *mut ibv_context,
    srq_init_attr_ex: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller passes initialised attributes; they are plain data.
    let attr = unsafe { *srq_init_attr_ex };
    let (mask, known) = (
        attr.comp_mask,
        IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
    );
    let is_basic =
        mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || attr.srq_type == ibv_srq_type::IBV_SRQT_BASIC;
    if mask & !known == 0 && mask & IBV_SRQ_INIT_ATTR_PD != 0 && is_basic {
        // What the ordinary function can do: the extended attributes begin with its own.
        // SAFETY: the domain is live by the caller's promise, and the attributes are initialised.
        return unsafe { ibv_create_srq(attr.pd, srq_init_attr_ex.cast()) };
    }
    // SAFETY: the caller passes an open context; the macro pairs the entry's distance with its type.
    match unsafe { entry!(context, create_srq_ex) } {
        // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
        Some(call) => unsafe { call(context, srq_init_attr_ex) },
        None => <*mut ibv_srq>::unsupported(),
    }
}

/// Posts operations of tag matching. Returns 0 or an errno, with `bad_op` set to the first not posted.
///
/// # Safety
///
/// As for [`ibv_post_srq_recv`](crate::ibv_post_srq_recv), with a list of operations.
#[inline]
pub unsafe fn ibv_post_srq_ops(
    srq: *mut ibv_srq,
    op: *mut ibv_ops_wr,
    bad_op: *mut *mut ibv_ops_wr,
) -> c_int {
    context_of!(of srq context);
    // SAFETY: the queue is live by the caller's promise, so its device is open; the macro pairs distance and type.
    match unsafe { entry!(context, post_srq_ops) } {
        // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
        Some(call) => unsafe { call(srq, op, bad_op) },
        None => {
            // SAFETY: valid for writing, by the caller's promise.
            unsafe { bad_op.write(op) };
            c_int::unsupported()
        }
    }
}

/// Makes a queue pair with extended attributes. Returns null with `errno` on failure.
///
/// # Safety
///
/// `context` is an open device context, and `qp_init_attr_ex` points to initialised attributes whose pointers are null
/// or live.
#[inline]
pub unsafe fn ibv_create_qp_ex(
    context: *mut ibv_context,
    qp_init_attr_ex: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller passes initialised attributes; they are plain data.
    let attr = unsafe { *qp_init_attr_ex };
    if attr.comp_mask == IBV_QP_INIT_ATTR_PD {
        // What the ordinary function can do: the extended attributes begin with its own.
        // SAFETY: the domain is live by the caller's promise, and the attributes are initialised.
        return unsafe { ibv_create_qp(attr.pd, qp_init_attr_ex.cast()) };
    }
    // SAFETY: the caller passes an open context; the macro pairs the entry's distance with its type.
    match unsafe { entry!(context, create_qp_ex) } {
        // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
        Some(call) => unsafe { call(context, qp_init_attr_ex) },
        None => <*mut ibv_qp>::unsupported(),
    }
}

/// Makes a work queue. Returns null with `errno` on failure.
///
/// # Safety
///
/// `context` is an open device context, and `wq_init_attr` points to initialised attributes whose pointers are live.
#[inline]
pub unsafe fn ibv_create_wq(
    context: *mut ibv_context,
    wq_init_attr: *mut ibv_wq_init_attr,
) -> *mut ibv_wq {
    // SAFETY: the caller passes an open context; the macro pairs the entry's distance with its type.
    let Some(call) = (unsafe { entry!(context, create_wq) }) else {
        return <*mut ibv_wq>::unsupported();
    };
    // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
    let wq = unsafe { call(context, wq_init_attr) };
    if wq.is_null() {
        return wq;
    }
    // These members are the inline function's to set: the driver leaves them.
    // SAFETY: the caller passes initialised attributes.
    let wq_context = unsafe { (*wq_init_attr).wq_context };
    // SAFETY: a new queue, which nobody else knows.
    unsafe { (*wq).wq_context = wq_context };
    // SAFETY: as above.
    unsafe { (*wq).events_completed = 0 };
    // SAFETY: as above; no reference is formed.
    let mutex = unsafe { &raw mut (*wq).mutex };
    // SAFETY: as above; a null attribute means the defaults.
    unsafe { libc::pthread_mutex_init(mutex, core::ptr::null()) };
    // SAFETY: as above; no reference is formed.
    let cond = unsafe { &raw mut (*wq).cond };
    // SAFETY: as above; a null attribute means the defaults.
    unsafe { libc::pthread_cond_init(cond, core::ptr::null()) };
    wq
}

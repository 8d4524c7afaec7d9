//! The inline functions that do more than pass their arguments on, and those of the hot path, on made-up devices.

#![expect(
    unsafe_code,
    reason = "the functions are unsafe, and the devices are made by hand"
)]

use std::ffi::c_int;
use std::mem::{MaybeUninit, zeroed};
use std::ptr;

use rdma_sys::*;

/// A device context inside its extended table, all of it empty.
fn device() -> Box<verbs_context> {
    // SAFETY: integers, pointers and optional functions, for which zeroes are valid.
    let mut device: Box<verbs_context> = Box::new(unsafe { zeroed() });
    device.sz = size_of::<verbs_context>();
    device.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    device
}

/// The address that the library would hand out. It may be used for all of the structure.
fn context(device: &mut verbs_context) -> *mut ibv_context {
    let whole: *mut verbs_context = device;
    // SAFETY: a member of a live structure; no reference is formed.
    unsafe { &raw mut (*whole).context }
}

#[test]
fn the_hot_path_calls_the_driver_with_its_arguments() {
    unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: the test passes its own queue.
        assert_eq!(unsafe { (*cq).handle }, 7);
        // SAFETY: the test passes an array of this length.
        unsafe { (*wc).wr_id = 99 };
        num
    }
    unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, solicited_only: c_int) -> c_int {
        solicited_only + 10
    }
    unsafe extern "C" fn post_send(
        _: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        // SAFETY: the test passes a place for it.
        unsafe { *bad = wr };
        libc::ENOMEM
    }
    unsafe extern "C" fn post_recv(
        _: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: the test passes a place for it.
        unsafe { *bad = wr };
        libc::EINVAL
    }
    let mut device = device();
    device.context.ops.poll_cq = Some(poll_cq);
    device.context.ops.req_notify_cq = Some(req_notify_cq);
    device.context.ops.post_send = Some(post_send);
    device.context.ops.post_recv = Some(post_recv);
    let context = context(&mut device);

    // SAFETY: integers and pointers, for which zeroes are valid.
    let mut cq: ibv_cq = unsafe { zeroed() };
    (cq.context, cq.handle) = (context, 7);
    let mut wc = [ibv_wc::default(); 4];
    // SAFETY: a queue of the device above, and an array of four.
    assert_eq!(unsafe { ibv_poll_cq(&raw mut cq, 4, wc.as_mut_ptr()) }, 4);
    assert_eq!(wc[0].wr_id, 99);
    // SAFETY: as above.
    assert_eq!(unsafe { ibv_req_notify_cq(&raw mut cq, 1) }, 11);

    // SAFETY: integers and pointers, for which zeroes are valid.
    let mut qp: ibv_qp = unsafe { zeroed() };
    qp.context = context;
    let (mut send, mut bad_send) = (ibv_send_wr::default(), ptr::null_mut());
    // SAFETY: a queue pair of the device above, one request, and a place for the answer.
    let result = unsafe { ibv_post_send(&raw mut qp, &raw mut send, &raw mut bad_send) };
    assert_eq!((result, bad_send), (libc::ENOMEM, &raw mut send));
    let (mut recv, mut bad_recv) = (ibv_recv_wr::default(), ptr::null_mut());
    // SAFETY: as above.
    let result = unsafe { ibv_post_recv(&raw mut qp, &raw mut recv, &raw mut bad_recv) };
    assert_eq!((result, bad_recv), (libc::EINVAL, &raw mut recv));
}

#[test]
fn a_port_is_read_with_the_size_of_our_own_structure() {
    unsafe extern "C" fn query_port(
        _: *mut ibv_context,
        port: u8,
        _: *mut ibv_port_attr,
        size: usize,
    ) -> c_int {
        assert_eq!(size, size_of::<ibv_port_attr>());
        c_int::from(port)
    }
    let mut device = device();
    device.query_port = Some(query_port);
    let mut attr = MaybeUninit::<ibv_port_attr>::uninit();
    // SAFETY: the device above, and a place for the answer.
    let result = unsafe { ibv_query_port(context(&mut device), 3, attr.as_mut_ptr()) };
    assert_eq!(result, 3);
}

#[test]
fn a_queue_pair_with_extended_attributes_goes_to_the_extended_entry() {
    unsafe extern "C" fn create_qp_ex(
        _: *mut ibv_context,
        attr: *mut ibv_qp_init_attr_ex,
    ) -> *mut ibv_qp {
        attr.cast()
    }
    let mut device = device();
    device.create_qp_ex = Some(create_qp_ex);
    let mut attr = ibv_qp_init_attr_ex {
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        ..Default::default()
    };
    // SAFETY: the device above, and initialised attributes.
    let qp = unsafe { ibv_create_qp_ex(context(&mut device), &raw mut attr) };
    assert_eq!(qp.cast(), &raw mut attr);
}

#[test]
fn a_device_without_extended_attributes_is_asked_in_the_old_way_only_then() {
    unsafe extern "C" fn query_device_ex(
        _: *mut ibv_context,
        _: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        size: usize,
    ) -> c_int {
        assert_eq!(size, size_of::<ibv_device_attr_ex>());
        // SAFETY: the test passes a place for it.
        unsafe { (*attr).max_dm_size = 5 };
        0
    }
    let mut device = device();
    device.query_device_ex = Some(query_device_ex);
    let context = context(&mut device);
    let mut attr = ibv_device_attr_ex::default();
    // SAFETY: the device above, no input, and a place for the answer.
    let result = unsafe { ibv_query_device_ex(context, ptr::null(), &raw mut attr) };
    assert_eq!((result, attr.max_dm_size), (0, 5));

    let input = ibv_query_device_ex_input { comp_mask: 1 };
    // SAFETY: as above, with an input.
    let result = unsafe { ibv_query_device_ex(context, &raw const input, &raw mut attr) };
    assert_eq!(result, libc::EINVAL);
}

#[test]
fn a_memory_window_is_bound_only_to_a_region_of_its_domain() {
    unsafe extern "C" fn bind_mw(_: *mut ibv_qp, _: *mut ibv_mw, _: *mut ibv_mw_bind) -> c_int {
        77
    }
    let mut device = device();
    device.context.ops.bind_mw = Some(bind_mw);
    let (pd, other): (*mut ibv_pd, *mut ibv_pd) = (
        ptr::without_provenance_mut(8),
        ptr::without_provenance_mut(16),
    );
    // SAFETY: integers and pointers, for which zeroes are valid.
    let mut mr: ibv_mr = unsafe { zeroed() };
    let mr = &raw mut mr;
    // SAFETY: the region above.
    unsafe { (*mr).pd = pd };
    let mut mw = ibv_mw {
        context: context(&mut device),
        pd,
        rkey: 0,
        handle: 0,
        type_: ibv_mw_type::IBV_MW_TYPE_1,
    };
    let mut bind = ibv_mw_bind::default();
    let run = |mw: &mut ibv_mw, bind: &mut ibv_mw_bind| {
        // SAFETY: the window and the region above; the driver's function above uses no queue pair.
        unsafe { ibv_bind_mw(ptr::null_mut(), mw, bind) }
    };
    assert_eq!(run(&mut mw, &mut bind), 77);
    bind.bind_info.length = 1;
    assert_eq!(
        run(&mut mw, &mut bind),
        libc::EINVAL,
        "a length without a region"
    );
    bind.bind_info.mr = mr;
    assert_eq!(run(&mut mw, &mut bind), 77);
    // SAFETY: the region above.
    unsafe { (*mr).pd = other };
    assert_eq!(run(&mut mw, &mut bind), libc::EPERM);
    mw.type_ = ibv_mw_type::IBV_MW_TYPE_2;
    assert_eq!(run(&mut mw, &mut bind), libc::EINVAL);
}

#[test]
fn the_addresses_of_an_id_are_in_its_route() {
    // SAFETY: integers and pointers, for which zeroes are valid.
    let mut id: rdma_cm_id = unsafe { zeroed() };
    let id = &raw mut id;
    // SAFETY: the id above.
    let local = unsafe { rdma_get_local_addr(id) };
    // SAFETY: as above.
    let peer = unsafe { rdma_get_peer_addr(id) };
    // SAFETY: as above; no reference is formed.
    let route = unsafe { &raw const (*id).route.addr };
    assert_eq!(local.addr(), route.addr());
    assert_eq!(peer.addr(), route.addr() + size_of::<sockaddr_storage>());
}

//! Raw calls, for tests that make them in the wrong way.
#![expect(
    unsafe_code,
    reason = "calls the C functions, on purpose without the crate's care"
)]

use std::net::SocketAddr;
use std::ptr;

use rdma_sys::{
    ibv_context, ibv_cq, ibv_pd, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_type, rdma_cm_event,
    rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};

use super::addr;

/// A pointer on its way to another thread.
pub(crate) struct Raw<T>(pub(crate) *mut T);

// SAFETY: the stand-in locks; what goes wrong beyond that is the purpose.
unsafe impl<T> Send for Raw<T> {}

impl<T> Raw<T> {
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

pub(crate) fn channel() -> *mut rdma_event_channel {
    // SAFETY: wants nothing.
    let channel = unsafe { rdma_sys::rdma_create_event_channel() };
    assert!(!channel.is_null());
    channel
}

pub(crate) fn id_on(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = ptr::null_mut();
    // SAFETY: a channel just made, and room for the answer.
    let made = unsafe {
        rdma_sys::rdma_create_id(
            channel,
            &raw mut id,
            ptr::null_mut(),
            rdma_port_space::RDMA_PS_TCP,
        )
    };
    assert_eq!(made, 0);
    id
}

pub(crate) fn event_of(channel: *mut rdma_event_channel) -> *mut rdma_cm_event {
    let mut event = ptr::null_mut();
    // SAFETY: a living channel, and room for the answer.
    let read = unsafe { rdma_sys::rdma_get_cm_event(channel, &raw mut event) };
    assert_eq!(read, 0);
    event
}

pub(crate) fn ack(event: *mut rdma_cm_event) {
    // SAFETY: what is wrong with the event is the purpose.
    unsafe { rdma_sys::rdma_ack_cm_event(event) };
}

pub(crate) fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: what is wrong with the id is the purpose.
    unsafe { rdma_sys::rdma_destroy_id(id) };
}

/// An id whose address is resolved and whose event is acknowledged.
pub(crate) fn resolved() -> (*mut rdma_event_channel, *mut rdma_cm_id) {
    resolved_to(addr(7471))
}

pub(crate) fn resolved_to(to: SocketAddr) -> (*mut rdma_event_channel, *mut rdma_cm_id) {
    let channel = channel();
    let id = id_on(channel);
    let to = socket2::SockAddr::from(to);
    // SAFETY: an id just made, and an address that lives during the call.
    let asked = unsafe {
        rdma_sys::rdma_resolve_addr(id, ptr::null_mut(), to.as_ptr().cast_mut().cast(), 1000)
    };
    assert_eq!(asked, 0);
    ack(event_of(channel));
    (channel, id)
}

pub(crate) fn verbs(id: *mut rdma_cm_id) -> *mut ibv_context {
    // SAFETY: a living id.
    unsafe { (*id).verbs }
}

pub(crate) fn pd_on(id: *mut rdma_cm_id) -> *mut ibv_pd {
    // SAFETY: the open device of a living id.
    unsafe { rdma_sys::ibv_alloc_pd(verbs(id)) }
}

pub(crate) fn cq_on(id: *mut rdma_cm_id) -> *mut ibv_cq {
    // SAFETY: the open device of a living id, and no channel.
    unsafe { rdma_sys::ibv_create_cq(verbs(id), 4, ptr::null_mut(), ptr::null_mut(), 0) }
}

/// Makes the queue pair of an id.
pub(crate) fn make_qp(id: *mut rdma_cm_id) {
    let (pd, cq) = (pd_on(id), cq_on(id));
    let mut attr = ibv_qp_init_attr {
        send_cq: cq,
        recv_cq: cq,
        cap: ibv_qp_cap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        qp_type: ibv_qp_type::IBV_QPT_RC,
        ..ibv_qp_init_attr::default()
    };
    // SAFETY: a living id with a device, and a domain and queues of that.
    let made = unsafe { rdma_sys::rdma_create_qp(id, pd, &raw mut attr) };
    assert_eq!(made, 0);
}

/// An id that has asked for a connection to `to`.
pub(crate) fn asking(to: SocketAddr) -> (*mut rdma_event_channel, *mut rdma_cm_id) {
    let (channel, id) = resolved_to(to);
    // SAFETY: a living id with a device.
    assert_eq!(unsafe { rdma_sys::rdma_resolve_route(id, 1000) }, 0);
    ack(event_of(channel));
    make_qp(id);
    let mut param = rdma_conn_param::default();
    // SAFETY: a living id with a device and a queue pair.
    assert_eq!(unsafe { rdma_sys::rdma_connect(id, &raw mut param) }, 0);
    (channel, id)
}

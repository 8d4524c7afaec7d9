//! What tests read behind the crate's back.
#![expect(unsafe_code, reason = "asks the device about a queue pair")]

use rdma_sys::{ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state};
use rdmacm::QueuePair;

/// What the device says of a queue pair: its state and its depths.
pub(crate) struct QpAttr {
    pub(crate) state: ibv_qp_state,
    /// Reads that it asks at a time. rxe rounds up to a power of two.
    pub(crate) max_rd_atomic: u8,
    /// Reads that it answers at a time. rxe rounds up to a power of two.
    pub(crate) max_dest_rd_atomic: u8,
}

/// Asks the device.
pub(crate) fn qp_attr(qp: &QueuePair) -> QpAttr {
    let mut attr = ibv_qp_attr::default();
    let mut init = ibv_qp_init_attr::default();
    let mask = rdma_sys::IBV_QP_STATE
        | rdma_sys::IBV_QP_MAX_QP_RD_ATOMIC
        | rdma_sys::IBV_QP_MAX_DEST_RD_ATOMIC;
    let mask = i32::try_from(mask).expect("low bits");
    // SAFETY: `ibv_query_qp` wants a queue pair, which the borrow keeps alive, and room for two answers.
    let returned =
        unsafe { rdma_sys::ibv_query_qp(qp.as_raw(), &raw mut attr, mask, &raw mut init) };
    assert_eq!(returned, 0, "ibv_query_qp");
    QpAttr {
        state: attr.qp_state,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
    }
}

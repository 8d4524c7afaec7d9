//! What tests read behind the crate's back.
#![expect(
    unsafe_code,
    reason = "asks the device about a queue pair, and the kernel about its resources"
)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::FromRawFd as _;

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

/// What `rdma resource show` reads: how many objects of each kind each device has. A program started for each of thousands of
/// rounds would take most of their time; this is for comparing only.
pub(crate) fn resource_counts() -> Vec<u8> {
    const NETLINK_RDMA: i32 = 20;
    /// `RDMA_NLDEV_CMD_RES_GET` of the client `RDMA_NL_NLDEV`.
    const RES_GET: u16 = (5 << 10) + 9;
    const REQUEST_AND_DUMP: u16 = 0x301;
    const DONE: u16 = 3;
    const ERROR: u16 = 2;
    const HEADER: usize = 16;

    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: `socket` takes three numbers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, flags, NETLINK_RDMA) };
    assert!(fd >= 0, "a netlink socket");
    // SAFETY: the descriptor was just made, and is nobody else's.
    let mut socket = unsafe { File::from_raw_fd(fd) };
    let mut request = [0; HEADER];
    request[0] = 16;
    request[4..6].copy_from_slice(&RES_GET.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_AND_DUMP.to_ne_bytes());
    socket.write_all(&request).expect("asking");

    let mut counts = Vec::new();
    let mut page = vec![0; 1 << 16];
    loop {
        let filled = socket.read(&mut page).expect("an answer");
        let mut rest = &page[..filled];
        while let Some((header, _)) = rest.split_at_checked(HEADER) {
            let length = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
            let length = usize::try_from(length).expect("a length");
            match u16::from_ne_bytes([header[4], header[5]]) {
                DONE => return counts,
                ERROR => panic!("the kernel does not count: {rest:?}"),
                _ => counts.extend_from_slice(&rest[HEADER..length]),
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
    }
}

/// Moves a queue pair to ERR, as the device does when something goes wrong.
pub(crate) fn to_error(qp: &QueuePair) {
    let mut attr = ibv_qp_attr {
        qp_state: ibv_qp_state::IBV_QPS_ERR,
        ..Default::default()
    };
    let mask = i32::try_from(rdma_sys::IBV_QP_STATE).expect("a low bit");
    // SAFETY: `ibv_modify_qp` wants a queue pair, which the borrow keeps alive, and attributes that it reads during the call.
    let returned = unsafe { rdma_sys::ibv_modify_qp(qp.as_raw(), &raw mut attr, mask) };
    assert_eq!(returned, 0, "ibv_modify_qp");
}

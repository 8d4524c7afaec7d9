//! The stand-in catches calls to an extended queue pair on which a provider would crash, wait for ever or send something else: raw
//! calls, in a child process each.
#![expect(
    unsafe_code,
    reason = "calls the C functions in the wrong way, on purpose"
)]

mod standin;

use std::ptr;

use rdma_sys::{
    IBV_QP_EX_WITH_SEND, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr_ex, ibv_qp_type,
};
use standin::calls::Skill;
use standin::verbs::{End as RawEnd, Opened};
use standin::{Standin, in_child, must_die};

const NAME: &str = "wrong_calls_end_the_process_with_a_line";

/// A case, what it calls, and a part of the line that the stand-in ends the process with.
type Case = (&'static str, fn(*mut ibv_qp_ex), &'static str);

const CASES: &[Case] = &[
    (
        "nested",
        |qp| {
            start(qp);
            start(qp);
        },
        "ibv_wr_start: would wait for ever: a list is begun already",
    ),
    (
        "complete without start",
        |qp| {
            complete(qp);
        },
        "ibv_wr_complete: without ibv_wr_start",
    ),
    (
        "operation without start",
        send,
        "ibv_wr_send: without ibv_wr_start",
    ),
    (
        "data without start",
        piece,
        "ibv_wr_set_sge: without ibv_wr_start",
    ),
    (
        "data before an operation",
        |qp| {
            start(qp);
            piece(qp);
        },
        "sets the data of no request",
    ),
    (
        "no data",
        |qp| {
            start(qp);
            send(qp);
            complete(qp);
        },
        "ibv_wr_complete: a request has no data",
    ),
    (
        "no data before the next",
        |qp| {
            start(qp);
            send(qp);
            send(qp);
        },
        "ibv_wr_send: a request has no data",
    ),
    (
        "data twice",
        |qp| {
            start(qp);
            send(qp);
            piece(qp);
            piece(qp);
        },
        "has its data already",
    ),
    (
        "not asked for",
        |qp| {
            start(qp);
            // SAFETY: the stand-in looks before it does anything.
            unsafe { rdma_sys::ibv_wr_rdma_read(qp, 1, 2) };
        },
        "ibv_wr_rdma_read: the operation was not asked for",
    ),
    (
        "inline without the flag",
        |qp| {
            start(qp);
            send(qp);
            // SAFETY: as above.
            unsafe { rdma_sys::ibv_wr_set_inline_data(qp, ptr::null_mut(), 0) };
        },
        "do not go together",
    ),
    (
        "poll in between",
        |qp| {
            start(qp);
            // SAFETY: as above; the queue pair is the extended one's first member.
            let cq = unsafe { (*qp).qp_base.recv_cq };
            // SAFETY: as above.
            unsafe { rdma_sys::ibv_poll_cq(cq, 0, ptr::null_mut()) };
        },
        "ibv_poll_cq is called between ibv_wr_start and ibv_wr_complete",
    ),
];

fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: a queue pair made for calls; the stand-in ends the process on what is wrong.
    unsafe { rdma_sys::ibv_wr_start(qp) };
}

fn complete(qp: *mut ibv_qp_ex) {
    // SAFETY: as for `start`.
    let returned = unsafe { rdma_sys::ibv_wr_complete(qp) };
    assert_eq!(returned, 0);
}

fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: as for `start`.
    unsafe { rdma_sys::ibv_wr_send(qp) };
}

fn piece(qp: *mut ibv_qp_ex) {
    // SAFETY: as for `start`.
    unsafe { rdma_sys::ibv_wr_set_sge(qp, 1, 2, 3) };
}

/// A raw pair that is made for sends by calls.
fn for_sends(end: &RawEnd, device: &Opened) -> *mut ibv_qp {
    let plain = end.init();
    let mut attr = ibv_qp_init_attr_ex {
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        cap: plain.cap,
        qp_type: ibv_qp_type::IBV_QPT_RC,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: end.pd,
        send_ops_flags: IBV_QP_EX_WITH_SEND.into(),
        ..ibv_qp_init_attr_ex::default()
    };
    // SAFETY: an open device, a domain and queues of it.
    let qp = unsafe { rdma_sys::ibv_create_qp_ex(device.context, &raw mut attr) };
    assert!(!qp.is_null());
    qp
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn wrong_calls_end_the_process_with_a_line() {
    let classic = "asked of a classic pair";
    let Some(case) = in_child() else {
        for (case, _, line) in CASES {
            must_die(NAME, case, line);
        }
        must_die(NAME, classic, "was made in the classic way");
        return;
    };
    let standin = Standin::start();
    standin.skill(Skill {
        has: true,
        ..Skill::default()
    });
    let device = Opened::first();
    let end = RawEnd::new(&device, ibv_qp_type::IBV_QPT_RC);
    if case == classic {
        // SAFETY: a live queue pair; the stand-in ends the process.
        unsafe { rdma_sys::ibv_qp_to_qp_ex(end.qp) };
    }
    let qp = for_sends(&end, &device);
    // SAFETY: a live queue pair that was made for calls.
    let qp = unsafe { rdma_sys::ibv_qp_to_qp_ex(qp) };
    let (_, run, _) = CASES.iter().find(|(name, ..)| *name == case).unwrap();
    run(qp);
}

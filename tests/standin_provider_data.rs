//! What the stand-in's data provider does with requests of every kind: raw calls.
#![expect(unsafe_code, reason = "calls the C functions with raw requests")]

mod standin;

use std::ptr;

use rdma_sys::{
    IBV_SEND_INLINE, IBV_WC_GRH, IBV_WC_WITH_IMM, ibv_ah, ibv_ah_attr, ibv_gid, ibv_grh, ibv_pd,
    ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_wc, ibv_wc_status, ibv_wr_opcode,
};
use standin::provider::{ALL, Hold, Side, at};
use standin::verbs::{DEPTH, End, INLINE, Opened, PIECES, QKEY, connect, pair, recv_wr, send_wr};
use standin::{Standin, in_child, must_die};

const GOOD: u32 = ibv_wc_status::IBV_WC_SUCCESS.0;
const FLUSHED: u32 = ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0;
const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
/// The header in front of a datagram.
const HEADER: usize = 40;

/// An unsignalled send of a part of an end's memory.
fn quiet(end: &End, wr_id: u64, length: u32) -> i32 {
    let mut pieces = [end.piece(0, length)];
    let mut request = send_wr(wr_id, &mut pieces);
    request.send_flags = 0;
    end.post(&mut [request]).0
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn unsignalled_sends_are_reported_when_they_fail_only() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    for wr_id in 0..3 {
        other.recv(wr_id, 0, 8);
    }
    assert_eq!(quiet(&one, 10, 8), 0);
    assert_eq!(quiet(&one, 11, 8), 0);
    assert_eq!(one.drain(), []);
    assert_eq!(other.drain(), [(0, GOOD), (1, GOOD)]);
    // Too long for the receive; the one behind it is flushed.
    standin.hold_requests(at(one.qp), Side::Send, Hold::UntilReleased);
    assert_eq!(quiet(&one, 12, 16), 0);
    assert_eq!(quiet(&one, 13, 8), 0);
    standin.release_all(ALL, Side::Send);
    let refused = ibv_wc_status::IBV_WC_REM_INV_REQ_ERR.0;
    assert_eq!(one.drain(), [(12, refused), (13, FLUSHED)]);
    let too_long = ibv_wc_status::IBV_WC_LOC_LEN_ERR.0;
    assert_eq!(other.drain(), [(2, too_long)]);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_slot_is_free_when_its_completion_is_polled() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    for _ in 0..DEPTH {
        other.recv(1, 0, 8);
    }
    let mut pieces = [other.piece(0, 8)];
    let full = other.post_recv(&mut [recv_wr(2, &mut pieces)]);
    assert_eq!(full.0, libc::ENOMEM);
    for wr_id in 1..u64::from(DEPTH) {
        assert_eq!(quiet(&one, wr_id, 8), 0);
    }
    one.send(50, 0, 8);
    // All are done, and their slots taken until the one that speaks for them is polled.
    assert_eq!(other.drain().len(), 32);
    assert_eq!(quiet(&one, 51, 8), libc::ENOMEM);
    assert_eq!(one.drain(), [(50, GOOD)]);
    for _ in 0..DEPTH {
        other.recv(3, 0, 8);
        assert_eq!(quiet(&one, 52, 8), 0);
    }
    assert_eq!(quiet(&one, 53, 8), libc::ENOMEM);
    other.drain();
    // A reset frees them all.
    one.to_state(ibv_qp_state::IBV_QPS_RESET);
    connect(&one, other_again(&other));
    other.recv(4, 0, 8);
    one.send(54, 0, 8);
    assert_eq!(one.drain(), [(54, GOOD)]);
    drop((one, other, device));
    standin.nothing_left();
}

/// The same end, ready to be connected again.
fn other_again(other: &End) -> &End {
    other.to_state(ibv_qp_state::IBV_QPS_RESET);
    other
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn requests_are_made_of_pieces_or_of_nothing() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    one.write(0, b"several pieces");
    let mut to = [other.piece(0, 3), other.piece(100, 0), other.piece(200, 60)];
    let mut receives = [recv_wr(1, &mut to), recv_wr(2, &mut [])];
    assert_eq!(other.post_recv(&mut receives).0, 0);
    let mut from = [one.piece(0, 8), one.piece(8, 6)];
    let mut sends = [send_wr(3, &mut from), send_wr(4, &mut [])];
    assert_eq!(one.post(&mut sends).0, 0);
    assert_eq!(one.drain(), [(3, GOOD), (4, GOOD)]);
    let lengths: Vec<_> = std::iter::from_fn(|| other.poll())
        .map(|wc| (wc.wr_id, wc.byte_len))
        .collect();
    assert_eq!(lengths, [(1, 14), (2, 0)]);
    assert_eq!(
        [other.read(0, 3), other.read(200, 11)].concat(),
        b"several pieces"
    );
    // One more than the queue pair was made for.
    let mut many = [one.piece(0, 1); PIECES as usize + 1];
    let mut sends = [send_wr(5, &mut [])];
    let mut receives = [recv_wr(5, &mut [])];
    sends[0].sg_list = many.as_mut_ptr();
    receives[0].sg_list = many.as_mut_ptr();
    (sends[0].num_sge, receives[0].num_sge) = (5, 5);
    let (first, first_receive) = (sends.as_mut_ptr(), receives.as_mut_ptr());
    assert_eq!(one.post(&mut sends), (libc::EINVAL, Some(first)));
    let refused = (libc::EINVAL, Some(first_receive));
    assert_eq!(one.post_recv(&mut receives), refused);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn inline_data_has_the_limit_that_was_granted() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    other.recv(1, 0, 512);
    let mut pieces = [one.piece(0, INLINE)];
    pieces[0].lkey = 0;
    let mut request = send_wr(2, &mut pieces);
    request.send_flags |= IBV_SEND_INLINE;
    assert_eq!(one.post(&mut [request]).0, 0);
    assert_eq!(one.drain(), [(2, GOOD)]);
    let mut pieces = [one.piece(0, INLINE + 1)];
    request.sg_list = pieces.as_mut_ptr();
    assert_eq!(one.post(&mut [request]).0, libc::EINVAL);
    // Granted as asked up to 256, and refused above.
    for (asked, granted) in [(256, true), (257, false)] {
        let mut init = one.init();
        init.cap.max_inline_data = asked;
        // SAFETY: a domain and queues of one device.
        let qp = unsafe { rdma_sys::ibv_create_qp(one.pd, &raw mut init) };
        assert_eq!(!qp.is_null(), granted);
        if granted {
            assert_eq!(init.cap.max_inline_data, asked);
            // SAFETY: a living queue pair.
            assert_eq!(unsafe { rdma_sys::ibv_destroy_qp(qp) }, 0);
        }
    }
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn atomics_are_refused_when_crooked() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    let ask = |place: usize, length: u32| {
        let mut pieces = [one.piece(8, length)];
        let mut request = send_wr(1, &mut pieces);
        request.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
        request.wr.atomic.remote_addr = other.address(place);
        request.wr.atomic.rkey = other.key();
        request.wr.atomic.compare_add = 5;
        one.post(&mut [request]).0
    };
    other.write(64, &7_u64.to_ne_bytes());
    assert_eq!(ask(64, 8), 0);
    assert_eq!(one.drain(), [(1, GOOD)]);
    assert_eq!(one.read(8, 8), 7_u64.to_ne_bytes());
    assert_eq!(other.read(64, 8), 12_u64.to_ne_bytes());
    assert_eq!(ask(65, 8), libc::EINVAL);
    assert_eq!(ask(64, 4), libc::EINVAL);
    drop((one, other, device));
    standin.nothing_left();
}

fn shared(pd: *mut ibv_pd, limit: u32) -> *mut ibv_srq {
    let mut init = ibv_srq_init_attr {
        attr: ibv_srq_attr {
            max_wr: 4,
            max_sge: 1,
            srq_limit: limit,
        },
        ..ibv_srq_init_attr::default()
    };
    // SAFETY: a living domain.
    let srq = unsafe { rdma_sys::ibv_create_srq(pd, &raw mut init) };
    assert!(!srq.is_null());
    srq
}

fn post_shared(end: &End, srq: *mut ibv_srq, wr_id: u64, place: usize) -> i32 {
    let mut pieces = [end.piece(place, 64)];
    let mut request = recv_wr(wr_id, &mut pieces);
    let mut bad: *mut ibv_recv_wr = ptr::null_mut();
    // SAFETY: a living queue, and a request that lives during the call.
    let posted = unsafe { rdma_sys::ibv_post_srq_recv(srq, &raw mut request, &raw mut bad) };
    assert_eq!(bad.is_null(), posted == 0);
    posted
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_shared_receive_queue_feeds_its_pairs() {
    let standin = Standin::start();
    let device = Opened::first();
    let one = End::new(&device, RC);
    let mut srq = ptr::null_mut();
    let mut other = End::with_srq(&device, RC, |pd| {
        srq = shared(pd, 0);
        srq
    });
    connect(&one, &other);
    for wr_id in 0..4 {
        assert_eq!(post_shared(&other, srq, wr_id, 0), 0);
    }
    assert_eq!(post_shared(&other, srq, 4, 0), libc::ENOMEM);
    let mut pieces = [other.piece(0, 8)];
    assert_eq!(
        other.post_recv(&mut [recv_wr(5, &mut pieces)]).0,
        libc::EINVAL
    );
    one.send(10, 0, 8);
    assert_eq!(post_shared(&other, srq, 4, 0), libc::ENOMEM);
    let wc = other.poll().unwrap();
    assert_eq!((wc.wr_id, wc.qp_num), (0, other.number()));
    standin.hold_requests(at(srq), Side::Recv, Hold::UntilReleased);
    assert_eq!(post_shared(&other, srq, 4, 64), 0);
    assert_eq!(standin.held(at(srq), Side::Recv), [4]);
    assert_eq!(standin.posts(at(srq), Side::Recv).calls, 7);
    // They are the pair's receives, and the error state leaves them alone.
    let by_pair = standin.posted(at(other.qp), Side::Recv);
    assert_eq!(by_pair, [(1, false), (2, false), (3, false), (4, true)]);
    standin.complete(
        at(other.qp),
        Side::Recv,
        2,
        ibv_wc_status::IBV_WC_LOC_PROT_ERR,
        0,
    );
    let bad = ibv_wc_status::IBV_WC_LOC_PROT_ERR.0;
    assert_eq!(other.drain(), [(2, bad)]);
    // SAFETY: a living queue, which the pair uses.
    assert_eq!(unsafe { rdma_sys::ibv_destroy_srq(srq) }, libc::EBUSY);
    assert_eq!(other.destroy_qp(), 0);
    // SAFETY: a living queue without pairs.
    assert_eq!(unsafe { rdma_sys::ibv_destroy_srq(srq) }, 0);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn over_an_unreliable_connection_messages_are_lost() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, UC);
    one.send(1, 0, 8);
    assert_eq!(one.drain(), [(1, GOOD)]);
    other.recv(2, 0, 8);
    assert_eq!(other.drain(), []);
    one.send(3, 0, 8);
    assert_eq!(other.drain(), [(2, GOOD)]);
    assert_eq!(one.drain(), [(3, GOOD)]);
    let mut pieces = [one.piece(0, 8)];
    let mut read = send_wr(4, &mut pieces);
    read.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
    assert_eq!(one.post(&mut [read]).0, 0);
    let none = ibv_wc_status::IBV_WC_LOC_QP_OP_ERR.0;
    assert_eq!(one.drain(), [(4, none)]);
    drop((one, other, device));
    standin.nothing_left();
}

fn v4(bytes: [u8; 4]) -> ibv_gid {
    let raw = std::net::Ipv4Addr::from(bytes).to_ipv6_mapped().octets();
    ibv_gid { raw }
}

/// An address handle to this device itself, or to a group.
fn handle(end: &End, to: ibv_gid) -> *mut ibv_ah {
    let mut attr = ibv_ah_attr {
        is_global: 1,
        port_num: 1,
        ..ibv_ah_attr::default()
    };
    attr.grh.dgid = to;
    // SAFETY: a living domain.
    let ah = unsafe { rdma_sys::ibv_create_ah(end.pd, &raw mut attr) };
    assert!(!ah.is_null());
    ah
}

fn datagram(end: &End, wr_id: u64, length: u32, to: (*mut ibv_ah, u32, u32)) {
    let mut pieces = [end.piece(0, length)];
    let mut request = send_wr(wr_id, &mut pieces);
    request.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
    request.__bindgen_anon_1.imm_data = 77;
    let ud = ibv_send_wr::default().wr;
    request.wr = ud;
    request.wr.ud.ah = to.0;
    request.wr.ud.remote_qpn = to.1;
    request.wr.ud.remote_qkey = to.2;
    assert_eq!(end.post(&mut [request]).0, 0);
}

fn ready(device: &Opened) -> End {
    let end = End::new(device, UD);
    end.to_init();
    end.to_rtr(0);
    end.to_rts();
    end
}

fn end_handle(ah: *mut ibv_ah) {
    // SAFETY: a living handle.
    assert_eq!(unsafe { rdma_sys::ibv_destroy_ah(ah) }, 0);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn datagrams_come_behind_a_header_and_can_be_answered() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = (ready(&device), ready(&device));
    let ah = handle(&one, v4([10, 9, 0, 1]));
    one.write(0, b"datagram");
    other.recv(1, 0, 64);
    datagram(&one, 2, 8, (ah, other.number(), QKEY));
    assert_eq!(one.drain(), [(2, GOOD)]);
    let mut wc: ibv_wc = other.poll().unwrap();
    assert_eq!((wc.wr_id, wc.status.0, wc.byte_len), (1, GOOD, 48));
    assert_eq!((wc.src_qp, wc.qp_num), (one.number(), other.number()));
    assert_eq!(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    // SAFETY: the flag says so.
    assert_eq!(unsafe { wc.__bindgen_anon_1.imm_data }, 77);
    let header = other.read(0, HEADER);
    assert_eq!((header[0] >> 4, &header[4..6]), (6, &[0, 8][..]));
    // SAFETY: both members are bytes.
    assert_eq!(header[24..], unsafe { v4([10, 9, 0, 1]).raw });
    assert_eq!(other.read(HEADER, 8), b"datagram");
    // Back to where it came from.
    let grh: *mut ibv_grh = other.start().cast();
    // SAFETY: a completion, and the header that came with it.
    let back = unsafe { rdma_sys::ibv_create_ah_from_wc(other.pd, &raw mut wc, grh, 1) };
    assert!(!back.is_null());
    one.recv(3, 0, 64);
    // The key's highest bit stands for the sender's own.
    datagram(&other, 4, 8, (back, wc.src_qp, 1 << 31));
    assert_eq!(one.drain(), [(3, GOOD)]);
    // Lost without a word: no receive, a wrong key, too long, nobody there, not this device.
    let elsewhere = handle(&one, v4([10, 9, 1, 1]));
    datagram(&one, 5, 8, (ah, other.number(), QKEY));
    other.recv(6, 0, 2048);
    datagram(&one, 7, 8, (ah, other.number(), QKEY + 1));
    datagram(&one, 8, 1025, (ah, other.number(), QKEY));
    datagram(&one, 9, 8, (ah, 0x00aa_aaaa, QKEY));
    datagram(&one, 10, 8, (elsewhere, other.number(), QKEY));
    assert_eq!(one.drain(), [5, 7, 8, 9, 10].map(|wr_id| (wr_id, GOOD)));
    assert_eq!(other.drain(), [(4, GOOD)]);
    // A receive without room for the header fails.
    datagram(&one, 11, 1024, (ah, other.number(), QKEY));
    assert_eq!(other.drain(), [(6, GOOD)]);
    other.recv(12, 0, 47);
    datagram(&one, 13, 8, (ah, other.number(), QKEY));
    let too_long = ibv_wc_status::IBV_WC_LOC_LEN_ERR.0;
    assert_eq!(other.drain(), [(12, too_long)]);
    assert_eq!(one.drain(), [(11, GOOD), (13, GOOD)]);
    for ah in [ah, back, elsewhere] {
        end_handle(ah);
    }
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_group_is_everybody_who_is_attached() {
    let standin = Standin::start();
    let device = Opened::first();
    let ends = [ready(&device), ready(&device), ready(&device)];
    let group = v4([239, 1, 2, 3]);
    let ah = handle(&ends[0], group);
    for end in &ends {
        end.recv(1, 0, 64);
    }
    for end in &ends[1..] {
        // SAFETY: a living queue pair, and an address.
        let done = unsafe { rdma_sys::ibv_attach_mcast(end.qp, &raw const group, 0) };
        assert_eq!(done, 0);
    }
    let single = v4([10, 9, 0, 1]);
    // SAFETY: as above.
    let refused = unsafe { rdma_sys::ibv_attach_mcast(ends[0].qp, &raw const single, 0) };
    assert_eq!(refused, libc::EINVAL);
    datagram(&ends[0], 2, 8, (ah, 0x00ff_ffff, QKEY));
    assert_eq!(ends[0].drain(), [(2, GOOD)]);
    assert_eq!(ends[1].drain(), [(1, GOOD)]);
    assert_eq!(ends[2].drain(), [(1, GOOD)]);
    for end in &ends[1..] {
        // SAFETY: as above.
        let done = unsafe { rdma_sys::ibv_detach_mcast(end.qp, &raw const group, 0) };
        assert_eq!(done, 0);
        // SAFETY: as above; it is detached already.
        let again = unsafe { rdma_sys::ibv_detach_mcast(end.qp, &raw const group, 0) };
        assert_eq!(again, libc::EINVAL);
    }
    end_handle(ah);
    drop((ends, device));
    standin.nothing_left();
}

/// What the test of the strict cases is named.
const STRICT: &str = "an_address_handle_lives_until_its_sends_complete";

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_address_handle_lives_until_its_sends_complete() {
    const CASES: &[(&str, &str)] = &[
        ("posted", "the address handle is destroyed while sends"),
        ("destroyed", "use of a destroyed address handle"),
    ];
    let _standin = Standin::start();
    let Some(case) = in_child() else {
        for (case, line) in CASES {
            must_die(STRICT, case, line);
        }
        return;
    };
    let standin = Standin::of_child();
    let device = Opened::first();
    let (one, other) = (ready(&device), ready(&device));
    let ah = handle(&one, v4([10, 9, 0, 1]));
    if case == "posted" {
        standin.hold_requests(ALL, Side::Send, Hold::UntilReleased);
        datagram(&one, 1, 8, (ah, other.number(), QKEY));
        end_handle(ah);
    } else {
        end_handle(ah);
        datagram(&one, 1, 8, (ah, other.number(), QKEY));
    }
}

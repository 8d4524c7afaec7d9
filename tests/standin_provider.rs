//! The stand-in's data provider does as a test asks: raw calls, and every control with what it changes.

mod standin;

use std::thread;
use std::time::{Duration, Instant};

use rdma_sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, ibv_qp_state, ibv_qp_type, ibv_send_wr, ibv_sge, ibv_wc,
    ibv_wc_opcode, ibv_wc_status,
};
use standin::provider::{ALL, BadWr, Hold, Side, Unflushed, at};
use standin::verbs::{DEPTH, End, Opened, pair, recv_wr, send_wr};
use standin::{Standin, in_child, must_die};

const GOOD: u32 = ibv_wc_status::IBV_WC_SUCCESS.0;
const FLUSHED: u32 = ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0;
const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;

/// Polls until something is complete.
fn poll_for(end: &End, patience: Duration) -> Option<ibv_wc> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(wc) = end.poll() {
            return Some(wc);
        }
        thread::sleep(Duration::from_micros(100));
    }
    None
}

fn ids(list: &[(u64, u32)]) -> Vec<u64> {
    list.iter().map(|(wr_id, _)| *wr_id).collect()
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn held_sends_complete_when_they_are_released_in_any_order() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    for wr_id in 0..5 {
        other.recv(wr_id, 64 * usize::try_from(wr_id).unwrap(), 64);
    }
    standin.hold_requests(at(one.qp), Side::Send, Hold::UntilReleased);
    for wr_id in 10..14 {
        one.send(wr_id, 0, 8);
    }
    assert_eq!(one.drain(), []);
    assert_eq!(other.drain(), []);
    assert_eq!(standin.held(at(one.qp), Side::Send), [10, 11, 12, 13]);
    assert_eq!(standin.held(at(other.qp), Side::Recv), []);
    standin.release(at(one.qp), Side::Send, &[12, 10]);
    assert_eq!(ids(&one.drain()), [12, 10]);
    assert_eq!(ids(&other.drain()), [0, 1]);
    standin.hold_requests(ALL, Side::Send, Hold::No);
    one.send(14, 0, 8);
    assert_eq!(ids(&one.drain()), [14]);
    standin.release_all(at(one.qp), Side::Send);
    assert_eq!(ids(&one.drain()), [11, 13]);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn held_receives_wait_with_their_senders_and_come_in_any_order() {
    let standin = Standin::start();
    let device = Opened::first();
    standin.hold_requests(ALL, Side::Recv, Hold::UntilReleased);
    let (one, other) = pair(&device, RC);
    // A sender that does not repeat waits all the same: there is a receive.
    one.to_state(ibv_qp_state::IBV_QPS_RESET);
    one.to_init();
    one.to_rtr(other.number());
    let (mut once, mask) = one.rts_attr();
    once.rnr_retry = 0;
    assert_eq!(one.modify(&once, mask), 0);
    for wr_id in 0..3 {
        other.recv(wr_id, 64 * usize::try_from(wr_id).unwrap(), 64);
    }
    one.write(0, b"firstnext");
    one.send(10, 0, 5);
    one.send(11, 5, 4);
    assert_eq!(one.drain(), []);
    standin.release(at(other.qp), Side::Recv, &[2]);
    assert_eq!(ids(&other.drain()), [2]);
    assert_eq!(other.read(128, 5), b"first");
    assert_eq!(ids(&one.drain()), [10]);
    standin.release_all(ALL, Side::Both);
    assert_eq!(ids(&other.drain()), [0]);
    assert_eq!(other.read(0, 4), b"next");
    assert_eq!(standin.posted(at(other.qp), Side::Recv), [(1, false)]);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn delayed_requests_complete_later_by_themselves() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    let delay = Duration::from_millis(30);
    standin.hold_requests(at(one.qp), Side::Send, Hold::For(delay));
    other.recv(1, 0, 8);
    let start = Instant::now();
    one.send(2, 0, 8);
    assert!(one.poll().is_none());
    let wc = poll_for(&one, Duration::from_secs(10)).expect("a completion");
    assert_eq!((wc.wr_id, wc.status.0), (2, GOOD));
    assert!(start.elapsed() >= delay);
    // Also when nobody calls.
    other.recv(3, 0, 8);
    one.send(4, 0, 8);
    standin::until("the request has gone", || {
        standin.posted(at(one.qp), Side::Send).is_empty()
    });
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_request_ends_with_the_status_that_a_test_wants() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    standin.hold_requests(ALL, Side::Both, Hold::UntilReleased);
    for wr_id in 1..=3 {
        one.send(wr_id, 0, 8);
        one.recv(10 + wr_id, 0, 8);
    }
    let (qp, good) = (at(one.qp), ibv_wc_status::IBV_WC_SUCCESS);
    standin.complete(qp, Side::Recv, 12, good, 5);
    standin.complete(qp, Side::Send, 3, good, 8);
    let wc = one.poll().unwrap();
    assert_eq!((wc.wr_id, wc.byte_len), (12, 5));
    assert_eq!(wc.opcode, ibv_wc_opcode::IBV_WC_RECV);
    assert_eq!(wc.qp_num, one.number());
    let wc = one.poll().unwrap();
    assert_eq!((wc.wr_id, wc.opcode), (3, ibv_wc_opcode::IBV_WC_SEND));
    let bad = ibv_wc_status::IBV_WC_RETRY_EXC_ERR;
    standin.complete(qp, Side::Send, 2, bad, 0);
    // The rest is flushed, also what was held.
    assert_eq!(
        one.drain(),
        [(2, bad.0), (1, FLUSHED), (11, FLUSHED), (13, FLUSHED)]
    );
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn completions_repeat_and_are_invented() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    other.recv(1, 0, 8);
    one.send(2, 0, 8);
    assert_eq!(one.drain(), [(2, GOOD)]);
    standin.repeat(one.cq, 2);
    assert_eq!(one.drain(), [(2, GOOD), (2, GOOD)]);
    let invented = ibv_wc {
        wr_id: u64::MAX,
        status: ibv_wc_status(77),
        opcode: ibv_wc_opcode::IBV_WC_RDMA_READ,
        qp_num: 0x00ab_cdef,
        byte_len: 9,
        ..ibv_wc::default()
    };
    // More than there is room for: they take none.
    for _ in 0..5 * DEPTH {
        standin.invent(one.cq, &invented);
    }
    for _ in 0..5 * DEPTH {
        let wc = one.poll().unwrap();
        assert_eq!((wc.wr_id, wc.status.0), (u64::MAX, 77));
        assert_eq!(wc.opcode, invented.opcode);
        assert_eq!((wc.qp_num, wc.byte_len), (0x00ab_cdef, 9));
    }
    assert!(one.poll().is_none());
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_post_is_refused_by_name() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    standin.hold_requests(at(one.qp), Side::Both, Hold::UntilReleased);
    standin.refuse_by_name(at(one.qp), Side::Send, 2, libc::ENOMEM);
    let mut pieces = [one.piece(0, 8)];
    let mut list: [ibv_send_wr; 4] = [1, 2, 3, 4].map(|wr_id| send_wr(wr_id, &mut pieces));
    let third = &raw mut list[2];
    assert_eq!(one.post(&mut list), (libc::ENOMEM, Some(third)));
    assert_eq!(standin.held(at(one.qp), Side::Send), [1, 2]);
    standin.refuse_by_name(ALL, Side::Recv, 0, libc::EINVAL);
    let mut list = [recv_wr(5, &mut pieces)];
    let first = &raw mut list[0];
    assert_eq!(one.post_recv(&mut list), (libc::EINVAL, Some(first)));
    assert_eq!(standin.held(at(one.qp), Side::Recv), []);
    assert_eq!(one.post_recv(&mut list), (0, None));
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_post_is_refused_silently_and_happens_all_the_same() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = (End::new(&device, RC), End::new(&device, RC));
    one.to_init();
    other.to_init();
    other.recv(1, 0, 8);
    // As rxe does it in INIT.
    standin.refuse_silently(at(one.qp), Side::Send, libc::EINVAL);
    one.write(0, b"too soon");
    let mut pieces = [one.piece(0, 8)];
    assert_eq!(
        one.post(&mut [send_wr(2, &mut pieces)]),
        (libc::EINVAL, None)
    );
    assert_eq!(standin.posted(at(one.qp), Side::Send), [(2, false)]);
    one.write(0, b"changed!");
    other.to_rtr(one.number());
    other.to_rts();
    one.to_rtr(other.number());
    assert_eq!(one.drain(), []);
    one.to_rts();
    assert_eq!(one.drain(), [(2, GOOD)]);
    assert_eq!(other.drain(), [(1, GOOD)]);
    assert_eq!(other.read(0, 8), b"changed!");
    // Numbers below zero, as siw has them; a name that leads nowhere, and none.
    let whole = u32::MAX;
    standin.refuse(ALL, Side::Send, -libc::ENOTCONN, BadWr::Untouched, 0);
    standin.refuse(ALL, Side::Send, libc::EIO, BadWr::Null, whole);
    standin.refuse(ALL, Side::Send, libc::EIO, BadWr::Stray, 1);
    let mut list = [3, 4].map(|wr_id| send_wr(wr_id, &mut pieces));
    assert_eq!(one.post(&mut list), (-libc::ENOTCONN, None));
    assert_eq!(standin.posted(at(one.qp), Side::Send), []);
    assert_eq!(one.post(&mut list), (libc::EIO, Some(std::ptr::null_mut())));
    let (posted, bad) = one.post(&mut list);
    assert_eq!(posted, libc::EIO);
    let bad = bad.expect("a name");
    assert!(!bad.is_null() && !list.as_mut_ptr_range().contains(&bad));
    let posted = standin.posted(at(one.qp), Side::Send);
    assert_eq!(posted, [(3, false), (4, false), (3, false)]);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_error_state_flushes_what_a_test_lets_it() {
    let standin = Standin::start();
    let device = Opened::first();
    let ask = |unflushed: Unflushed| {
        let (one, other) = pair(&device, RC);
        standin.unflushed(at(one.qp), unflushed);
        // Nobody receives, so the send is there as well.
        one.send(1, 0, 8);
        one.recv(2, 0, 8);
        one.to_state(ibv_qp_state::IBV_QPS_ERR);
        one.send(3, 0, 8);
        one.recv(4, 0, 8);
        let drained = one.drain();
        assert!(drained.iter().all(|(_, status)| *status == FLUSHED));
        standin.flush(at(one.qp));
        let later = one.drain();
        assert!(later.iter().all(|(_, status)| *status == FLUSHED));
        drop((one, other));
        (ids(&drained), ids(&later))
    };
    let none = Unflushed::default();
    assert_eq!(ask(none), (vec![1, 2, 3, 4], vec![]));
    let sends = Unflushed {
        sends: true,
        ..none
    };
    assert_eq!(ask(sends), (vec![2, 4], vec![1, 3]));
    let all = Unflushed {
        receives: true,
        ..sends
    };
    assert_eq!(ask(all), (vec![], vec![1, 3, 2, 4]));
    let late = Unflushed {
        late_receives: true,
        ..none
    };
    assert_eq!(ask(late), (vec![1, 2, 3], vec![4]));
    let late = Unflushed {
        late_sends: true,
        ..late
    };
    assert_eq!(ask(late), (vec![1, 2], vec![3, 4]));
    drop(device);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn completions_of_a_destroyed_pair_stay_or_go() {
    let standin = Standin::start();
    let device = Opened::first();
    for removes in [false, true] {
        let (mut one, other) = pair(&device, RC);
        standin.removes_completions(at(one.qp), removes);
        other.recv(1, 0, 8);
        one.send(2, 0, 8);
        one.recv(3, 0, 8);
        assert_eq!(one.destroy_qp(), 0);
        let left: &[u64] = if removes { &[] } else { &[2] };
        assert_eq!(ids(&one.drain()), left);
        assert_eq!(ids(&other.drain()), [1]);
    }
    drop(device);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_cannot_be_destroyed_at_first() {
    let standin = Standin::start();
    let device = Opened::first();
    let (mut one, other) = pair(&device, RC);
    standin.fail_destroy(at(one.qp), 2, libc::EBUSY);
    assert_eq!(one.destroy_qp(), libc::EBUSY);
    other.recv(1, 0, 8);
    one.send(2, 0, 8);
    assert_eq!(one.drain(), [(2, GOOD)]);
    assert_eq!(one.destroy_qp(), libc::EBUSY);
    assert_eq!(one.destroy_qp(), 0);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn posted_receives_change_until_they_complete() {
    let standin = Standin::start();
    let device = Opened::first();
    let (mut one, other) = pair(&device, RC);
    standin.scribble(ALL, true);
    let mut pieces = [other.piece(16, 32), other.piece(100, 8)];
    let (posted, _) = other.post_recv(&mut [recv_wr(1, &mut pieces)]);
    assert_eq!(posted, 0);
    let seen = || [other.read(16, 32), other.read(100, 8)];
    // Nobody calls: the thread does it. Every byte changes, and no other.
    let before = seen();
    standin::until("every byte has changed", || {
        let now = seen();
        before
            .iter()
            .flatten()
            .zip(now.iter().flatten())
            .all(|(before, now)| before != now)
    });
    // At every call, too.
    for _ in 0..10 {
        let before = other.read(16, 1);
        assert!(other.poll().is_none());
        assert_ne!(before, other.read(16, 1));
    }
    assert_eq!(other.read(0, 16), [0; 16]);
    assert_eq!(other.read(48, 52), [0; 52]);
    one.write(0, &[7; 36]);
    one.send(2, 0, 36);
    assert_eq!(other.drain(), [(1, GOOD)]);
    let [first, second] = seen();
    assert_eq!((first, &second[..4]), (vec![7; 32], &[7; 4][..]));
    thread::sleep(Duration::from_millis(5));
    assert_eq!(seen()[1], second);
    // It ends with the pair, also without a completion.
    one.recv(3, 200, 8);
    one.to_state(ibv_qp_state::IBV_QPS_RESET);
    one.to_init();
    standin.unflushed(
        at(one.qp),
        Unflushed {
            receives: true,
            ..Unflushed::default()
        },
    );
    one.recv(4, 300, 8);
    one.to_state(ibv_qp_state::IBV_QPS_ERR);
    let before = one.read(300, 8);
    standin::until("it changes in the error state", || {
        before != one.read(300, 8)
    });
    assert_eq!(one.destroy_qp(), 0);
    let after = one.read(300, 8);
    thread::sleep(Duration::from_millis(5));
    assert_eq!(one.read(300, 8), after);
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_send_is_read_when_it_is_carried_out_and_an_inline_one_when_it_is_posted() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    other.recv(1, 0, 8);
    other.recv(2, 8, 8);
    standin.hold_requests(at(one.qp), Side::Send, Hold::UntilReleased);
    one.write(0, b"at post.");
    one.send(3, 0, 8);
    // Inline data needs no key.
    let mut text = *b"at post.";
    let mut pieces = [ibv_sge {
        addr: text.as_mut_ptr().expose_provenance() as u64,
        length: 8,
        lkey: 0,
    }];
    let mut inline = send_wr(4, &mut pieces);
    inline.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    assert_eq!(one.post(&mut [inline]).0, 0);
    one.write(0, b"changed.");
    text = *b"changed.";
    standin.release_all(ALL, Side::Send);
    assert_eq!(&text, b"changed.");
    assert_eq!(one.drain(), [(3, GOOD), (4, GOOD)]);
    assert_eq!(other.drain(), [(1, GOOD), (2, GOOD)]);
    assert_eq!(other.read(0, 16), b"changed.at post.");
    drop((one, other, device));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn posts_and_their_requests_are_counted() {
    let standin = Standin::start();
    let device = Opened::first();
    let (one, other) = pair(&device, RC);
    let mut pieces = [one.piece(0, 8)];
    let mut list = [0; 32].map(|_| send_wr(0, &mut pieces));
    assert_eq!(one.post(&mut list).0, 0);
    let posts = standin.posts(at(one.qp), Side::Send);
    assert_eq!((posts.calls, posts.requests, posts.last), (1, 32, 32));
    one.recv(1, 0, 8);
    other.recv(1, 0, 8);
    let posts = standin.posts(at(one.qp), Side::Recv);
    assert_eq!((posts.calls, posts.requests), (1, 1));
    let posts = standin.posts(ALL, Side::Recv);
    assert_eq!((posts.calls, posts.requests), (2, 2));
    assert_eq!(standin.posts(other.number() as usize, Side::Send).calls, 0);
    drop((one, other, device));
    standin.nothing_left();
}

/// What the test of the strict cases is named.
const STRICT: &str = "memory_that_the_device_holds_cannot_be_given_back";

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_that_the_device_holds_cannot_be_given_back() {
    let _standin = Standin::start();
    const CASES: &[&str] = &["held", "refused silently", "unflushed"];
    let Some(case) = in_child() else {
        for case in CASES {
            must_die(STRICT, case, "the memory region is ended while requests");
        }
        return;
    };
    let standin = Standin::of_child();
    let device = Opened::first();
    let (mut one, other) = pair(&device, RC);
    other.recv(1, 0, 8);
    match &case[..] {
        "held" => {
            standin.hold_requests(ALL, Side::Send, Hold::UntilReleased);
            one.send(2, 0, 8);
        }
        "refused silently" => {
            standin.hold_requests(ALL, Side::Send, Hold::UntilReleased);
            standin.refuse_silently(ALL, Side::Send, libc::EINVAL);
            let mut pieces = [one.piece(0, 8)];
            assert_eq!(one.post(&mut [send_wr(2, &mut pieces)]).0, libc::EINVAL);
        }
        _ => {
            let receives = true;
            let what = Unflushed {
                receives,
                ..Unflushed::default()
            };
            standin.unflushed(ALL, what);
            one.recv(2, 0, 8);
            one.to_state(ibv_qp_state::IBV_QPS_ERR);
        }
    }
    one.dereg();
}

//! Shared receive queues: receives that end in any order, on several pairs and completion queues.

mod standin;

use std::thread;
use std::time::Duration;

use rdma_sys::{ibv_wc, ibv_wc_status};
use rdmacm::{
    AsyncEventType, AsyncSource, Completion, CompletionQueue, ErrorKind, Pool, ProtectionDomain,
    QueuePair, QueuePairInit, SharedReceiveQueue, Status,
};
use standin::Standin;
use standin::link::{Fabric, SIZE, Seen, drain, init, next, next_buf, received, sent};
use standin::provider::{BadWr, Hold, Side, at};

const GOOD: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;

/// A queue whose pairs complete to several completion queues.
fn for_several(pd: &ProtectionDomain, max_wr: u32) -> SharedReceiveQueue {
    pd.create_srq_for_several_cqs(max_wr, 2).unwrap()
}

/// A pair that receives from `srq` and completes to `cq`, and its peer, which completes to `far`.
fn pair(
    fabric: &Fabric,
    cq: &CompletionQueue,
    srq: &SharedReceiveQueue,
    far: &CompletionQueue,
) -> (QueuePair, QueuePair) {
    fabric.link(&init(cq, 2).srq(srq), &init(far, 2))
}

/// Sends `text` from a pair.
fn send(qp: &mut QueuePair, pool: &Pool, text: &[u8]) {
    let mut buf = pool.take().unwrap();
    buf.fill_from(text);
    qp.send.send(buf, 0).unwrap();
}

fn post(srq: &mut SharedReceiveQueue, pool: &Pool, user: u64) {
    srq.post(pool.take().unwrap(), user).unwrap();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn two_pairs_receive_from_one_queue() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, mut far_cq) = (fabric.cq(16), fabric.cq(16));
    let pool = fabric.pd.pool(12, SIZE).unwrap();
    let mut srq = fabric.pd.create_srq(3, 2).unwrap();
    let (one, mut far_one) = pair(&fabric, &cq, &srq, &far_cq);
    let (mut other, mut far_other) = pair(&fabric, &cq, &srq, &far_cq);
    let numbers = [one.qp_num(), other.qp_num()];
    assert_eq!((one.recv.depth(), srq.depth(), srq.is_idle()), (0, 3, true));
    for lap in 0..10_u64 {
        for user in 0..2 {
            post(&mut srq, &pool, 10 * lap + user);
        }
        let bufs = [0; 2].map(|_| pool.take().unwrap());
        srq.post(bufs, 10 * lap + 2).unwrap();
        let refused = srq.post(pool.take().unwrap(), 99).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::QueueFull);
        assert!(refused.into_buf().is_some());
        send(&mut far_one, &pool, b"a");
        send(&mut far_other, &pool, b"bb");
        send(&mut far_one, &pool, b"ccc");
        for (place, wanted) in ["a", "bb"].into_iter().enumerate() {
            match cq.poll().unwrap() {
                Some(Completion::Received(received)) => {
                    assert_eq!(received.qp_num(), numbers[place]);
                    assert_eq!(received.user(), 10 * lap + place as u64);
                    assert_eq!(received.into_buf()[..], *wanted.as_bytes());
                }
                other => panic!("not received: {other:?}"),
            }
        }
        match cq.poll().unwrap() {
            Some(Completion::Pieces(pieces)) => {
                assert_eq!((pieces.user(), pieces.qp_num()), (10 * lap + 2, numbers[0]));
                let [first, second] = pieces.into_bufs().unwrap();
                assert_eq!((&first[..], second.len()), (&b"ccc"[..], 0));
            }
            other => panic!("no pieces: {other:?}"),
        }
        assert_eq!(drain(&mut far_cq), [sent(0), sent(0), sent(0)]);
    }
    // The pair's own receive queue is none.
    let refused = other.recv.post(pool.take().unwrap(), 1).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
    drop(refused);
    assert_eq!(pool.available(), 12);
    drop((
        one, other, far_one, far_other, srq, cq, far_cq, pool, fabric,
    ));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn receives_that_end_in_any_order_make_room_one_by_one() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    for depth in [1, 2, 3, 7, 8, 9, 64] {
        let (mut cq, far_cq) = (fabric.cq(70), fabric.cq(4));
        let pool = fabric.pd.pool(66, SIZE).unwrap();
        let mut srq = fabric.pd.create_srq(depth, 1).unwrap();
        let (qp, far) = pair(&fabric, &cq, &srq, &far_cq);
        let (raw, depth) = (at(qp.as_raw()), u64::from(depth));
        for user in 0..depth {
            post(&mut srq, &pool, user);
        }
        let mut posted: Vec<(u64, u64)> = standin
            .posted(raw, Side::Recv)
            .into_iter()
            .map(|(id, _)| id)
            .zip(0..)
            .collect();
        assert_eq!(posted.len() as u64, depth);
        for step in 0..3 * depth {
            assert!(srq.post(pool.take().unwrap(), 0).is_err());
            let place = usize::try_from((step * 7 + 3) % depth).unwrap();
            let (id, user) = posted.remove(place);
            standin.complete(raw, Side::Recv, id, GOOD, 4);
            assert!(srq.post(pool.take().unwrap(), 0).is_err(), "not taken yet");
            let (found, buf) = next_buf(&mut cq);
            assert_eq!((found, buf.len()), (user, 4), "depth {depth}, step {step}");
            srq.post(buf, depth + step).unwrap();
            let last = standin.posted(raw, Side::Recv).last().unwrap().0;
            posted.push((last, depth + step));
        }
        assert_eq!(next(&mut cq), None);
        drop((qp, far, srq));
        assert_eq!(next(&mut cq), None);
        assert_eq!(pool.available(), 66);
    }
    drop(fabric);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_refused_receive_leaves_no_trace_and_a_silent_one_stays() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, mut far_cq) = (fabric.cq(8), fabric.cq(4));
    let pool = fabric.pd.pool(8, SIZE).unwrap();
    let mut srq = fabric.pd.create_srq(2, 2).unwrap();
    let (qp, mut far) = pair(&fabric, &cq, &srq, &far_cq);
    let raw = at(srq.as_raw());
    for errno in [libc::EINVAL, -libc::ENOMEM] {
        for _ in 0..5 {
            standin.refuse_by_name(raw, Side::Recv, 0, errno);
            let refused = srq.post(pool.take().unwrap(), 1).unwrap_err();
            assert_eq!(refused.error().raw_os_error(), Some(errno.abs()));
            let buf = refused.into_buf().unwrap();
            standin.refuse_by_name(raw, Side::Recv, 0, errno);
            let bufs = srq.post([buf, pool.take().unwrap()], 2).unwrap_err();
            assert_eq!(bufs.into_buf().unwrap().len(), 2);
        }
    }
    for bad in [BadWr::Untouched, BadWr::Null, BadWr::Stray] {
        standin.refuse(raw, Side::Recv, libc::EIO, bad, u32::MAX);
        let refused = srq.post(pool.take().unwrap(), 3).unwrap_err();
        assert!(refused.into_buf().is_none(), "{bad:?}");
        post(&mut srq, &pool, 4);
        send(&mut far, &pool, b"x");
        send(&mut far, &pool, b"yy");
        assert_eq!(drain(&mut cq), [received(3), received(4)]);
        assert_eq!(drain(&mut far_cq), [sent(0), sent(0)]);
    }
    // More buffers than it takes.
    let bufs = [0; 3].map(|_| pool.take().unwrap());
    let refused = srq.post(bufs, 5).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::TooLarge);
    assert!(refused.error().to_string().contains("max_sge"), "{refused}");
    drop(refused);
    assert_eq!(pool.available(), 8);
    drop((qp, far, srq, cq, far_cq, pool, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn several_completion_queues_report_one_queues_receives() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cqs, mut far_cq) = ([fabric.cq(16), fabric.cq(16)], fabric.cq(8));
    let pool = fabric.pd.pool(12, SIZE).unwrap();
    let mut srq = for_several(&fabric.pd, 4);
    let (one, mut far_one) = pair(&fabric, &cqs[0], &srq, &far_cq);
    let (other, mut far_other) = pair(&fabric, &cqs[1], &srq, &far_cq);
    for lap in 0..5 {
        for user in 0..4 {
            post(&mut srq, &pool, user);
        }
        let ids = standin.posted(at(srq.as_raw()), Side::Recv);
        send(&mut far_other, &pool, b"0");
        send(&mut far_one, &pool, b"1");
        // The number of a request that the other queue reports comes here, too: who is first has the buffer.
        let wc = ibv_wc {
            wr_id: ids[0].0,
            byte_len: 1,
            ..ibv_wc::default()
        };
        standin.invent(cqs[0].handle().as_raw(), &wc);
        let foreign = Seen::Foreign(ids[0].0);
        let [first, second] = &mut cqs;
        if lap % 2 == 0 {
            assert_eq!(drain(first), [received(1), received(0)]);
            assert_eq!(drain(second), [foreign]);
        } else {
            assert_eq!(drain(second), [received(0)]);
            assert_eq!(drain(first), [received(1), foreign]);
        }
        // While one queue hands it out, the other has it under no number.
        send(&mut far_one, &pool, b"2");
        let held = first.poll().unwrap().unwrap();
        assert_eq!(Seen::of(&held), received(2));
        for bits in 0..16 {
            let wc = ibv_wc {
                wr_id: ids[2].0 | bits,
                byte_len: 1,
                ..ibv_wc::default()
            };
            standin.invent(second.handle().as_raw(), &wc);
            assert_eq!(next(second), Some(Seen::Foreign(wc.wr_id)));
        }
        drop(held);
        send(&mut far_other, &pool, b"3");
        assert_eq!(drain(second), [received(3)]);
        assert!(srq.is_idle());
        assert_eq!(drain(&mut far_cq), [sent(0); 4]);
        assert_eq!(pool.available(), 12, "lap {lap}");
    }
    drop((
        one, other, far_one, far_other, srq, cqs, far_cq, pool, fabric,
    ));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_completion_queue_needs_room_for_all_receives_once() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let cq = fabric.cq(10);
    let srq = fabric.pd.create_srq(6, 1).unwrap();
    let one = fabric.unconnected(&init(&cq, 2).srq(&srq)).unwrap();
    let other = fabric.unconnected(&init(&cq, 2).srq(&srq)).unwrap();
    let error = fabric.unconnected(&init(&cq, 1).srq(&srq)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    let small = fabric.cq(5);
    let error = fabric.unconnected(&init(&small, 1).srq(&srq)).unwrap_err();
    assert!(matches!(
        error.kind(),
        ErrorKind::TooLarge | ErrorKind::State
    ));
    drop((one, other, srq, cq, small, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn buffers_of_a_shared_queue_come_back_when_it_and_its_pairs_are_gone() {
    let standin = Standin::start();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        for threads in [false, true] {
            let fabric = Fabric::new();
            let (cq, far_cq) = (fabric.cq(16), fabric.cq(4));
            let pool = fabric.pd.pool(6, SIZE).unwrap();
            let mut srq = fabric.pd.create_srq(4, 1).unwrap();
            standin.scribble(at(srq.as_raw()), true);
            standin.hold_requests(at(srq.as_raw()), Side::Recv, Hold::UntilReleased);
            let (qp, far) = pair(&fabric, &cq, &srq, &far_cq);
            for user in 0..4 {
                post(&mut srq, &pool, user);
            }
            let (mut srq, mut qp, mut cq) = (Some(srq), Some(qp), Some(cq));
            for what in order {
                let gone: Box<dyn Send> = match what {
                    0 => Box::new(srq.take()),
                    1 => Box::new(qp.take()),
                    _ => Box::new(cq.take()),
                };
                if threads {
                    thread::spawn(move || drop(gone)).join().unwrap();
                } else {
                    drop(gone);
                }
                let polled = cq.as_mut().map(next);
                assert!(matches!(polled, None | Some(None)), "{polled:?}");
                let back = srq.is_none() && qp.is_none();
                assert_eq!(pool.available(), if back { 6 } else { 2 }, "{order:?}");
            }
            let mut bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            bufs.iter_mut().for_each(|buf| buf.fill(0xcc));
            thread::sleep(Duration::from_millis(3));
            assert!(bufs.iter().all(|buf| buf[..] == [0xcc; SIZE]));
            drop((far, far_cq, bufs, pool, fabric));
            standin.nothing_left();
        }
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_device_tells_when_few_receives_are_left() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, far_cq) = (fabric.cq(16), fabric.cq(4));
    let pool = fabric.pd.pool(8, SIZE).unwrap();
    let mut srq = fabric.pd.create_srq(4, 1).unwrap();
    let (qp, mut far) = pair(&fabric, &cq, &srq, &far_cq);
    let events = fabric.context.async_events().unwrap();
    assert_eq!(srq.set_limit(5).unwrap_err().kind(), ErrorKind::TooLarge);
    for user in 0..4 {
        post(&mut srq, &pool, user);
    }
    srq.set_limit(3).unwrap();
    send(&mut far, &pool, b"1");
    assert_eq!(events.try_event().unwrap(), None);
    send(&mut far, &pool, b"2");
    let event = events.try_event().unwrap().expect("an event");
    assert_eq!(event.event_type(), AsyncEventType::SRQ_LIMIT_REACHED);
    let of_srq = AsyncSource::SharedReceiveQueue(Some(srq.token()));
    assert_eq!(event.source(), of_srq);
    assert_eq!(drain(&mut cq), [received(0), received(1)]);
    // It is told once.
    assert_eq!(events.try_event().unwrap(), None);
    drop((events, qp, far, srq, cq, far_cq, pool, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_close_leaves_the_receives_of_a_shared_queue_where_they_are() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, far_cq) = (fabric.cq(16), fabric.cq(8));
    let pool = fabric.pd.pool(8, SIZE).unwrap();
    let mut srq = fabric.pd.create_srq(4, 1).unwrap();
    let (one, mut far_one) = pair(&fabric, &cq, &srq, &far_cq);
    let (other, mut far_other) = pair(&fabric, &cq, &srq, &far_cq);
    for user in 0..3 {
        post(&mut srq, &pool, user);
    }
    send(&mut far_one, &pool, b"kept");
    one.close(&mut cq, Duration::from_secs(5)).unwrap();
    // What was received before is not lost, and the other pair receives on.
    send(&mut far_other, &pool, b"on");
    let (user, buf) = next_buf(&mut cq);
    assert_eq!((user, &buf[..]), (0, &b"kept"[..]));
    assert_eq!(drain(&mut cq), [received(1)]);
    assert_eq!(standin.posted(at(srq.as_raw()), Side::Recv).len(), 1);
    let failed = standin.posted(at(srq.as_raw()), Side::Recv)[0].0;
    let bad = ibv_wc_status::IBV_WC_LOC_LEN_ERR;
    standin.complete(at(other.as_raw()), Side::Recv, failed, bad, 9);
    assert_eq!(drain(&mut cq), [Seen::Received(2, Status::LOCAL_LENGTH)]);
    drop((
        buf, other, far_one, far_other, srq, cq, far_cq, pool, fabric,
    ));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_second_completion_queue_needs_a_queue_that_was_made_for_several() {
    let _standin = Standin::start();
    let fabric = Fabric::new();
    let (near, other, far_cq) = (fabric.cq(16), fabric.cq(16), fabric.cq(8));
    let srq = fabric.pd.create_srq(4, 1).unwrap();
    let (one, far_one) = pair(&fabric, &near, &srq, &far_cq);
    let init = QueuePairInit::new(&other.handle()).max_send_wr(2).srq(&srq);
    let far = QueuePairInit::new(&far_cq.handle())
        .max_send_wr(2)
        .max_recv_wr(1);
    let error = fabric.try_link(&init, &far).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    assert!(
        error.to_string().contains("create_srq_for_several_cqs"),
        "{error}"
    );
    drop((one, far_one));
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_arrived_before_a_pair_is_closed_is_not_lost() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, far_cq) = (fabric.cq(16), fabric.cq(16));
    let pool = fabric.pd.pool(4, SIZE).unwrap();
    let mut srq = fabric.pd.create_srq(2, 1).unwrap();
    let (one, mut far_one) = pair(&fabric, &cq, &srq, &far_cq);
    let number = one.qp_num();
    post(&mut srq, &pool, 1);
    send(&mut far_one, &pool, b"last words");
    // As some providers: what was not polled of a queue pair goes with it.
    standin.removes_completions(at(one.as_raw()), true);
    one.close(&mut cq, Duration::from_secs(5)).unwrap();
    match cq.poll().unwrap() {
        Some(Completion::Received(received)) => {
            assert_eq!((received.user(), received.qp_num()), (1, number));
            assert_eq!(received.into_buf()[..], *b"last words");
        }
        other => panic!("not received: {other:?}"),
    }
    assert!(srq.is_idle());
    drop((far_one, srq, cq, far_cq, pool, fabric));
    standin.nothing_left();
}

//! The end of a queue pair in order, and requests of several buffers.

mod standin;

use std::thread;
use std::time::{Duration, Instant};

use rdma_sys::ibv_wc_status;
use rdmacm::{Buf, Completion, ErrorKind, Status, Work};
use standin::Standin;
use standin::link::{End, Fabric, SIZE, Seen, bare, drain, init, next, next_buf, sent};
use standin::provider::{Hold, Side, Unflushed, at};

const PATIENCE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(20);

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_close_brings_everything_back_and_keeps_what_is_others() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(200);
    let (pool, target) = (fabric.pd.pool(64, SIZE).unwrap(), fabric.target(3 * SIZE));
    let work = Work::write(target.remote());
    let (mut other, _peer) = fabric.one_way(&init(&cq, 40));
    for lap in 0..5 {
        let (mut qp, peer) = fabric.one_way(&init(&cq, 6));
        fabric.keep(peer);
        for user in 0..3 {
            qp.recv.post(pool.take().unwrap(), user).unwrap();
        }
        qp.send.post(work, pool.take().unwrap(), 1).unwrap();
        for user in 0..30 {
            let work = if user % 4 == 0 {
                work.unsignaled()
            } else {
                work
            };
            other.send.post(work, pool.take().unwrap(), user).unwrap();
        }
        standin.hold_requests(at(qp.as_raw()), Side::Send, Hold::UntilReleased);
        let bufs = [0; 3].map(|_| pool.take().unwrap());
        qp.send.post(work, bufs, 2).unwrap();
        qp.send
            .post(work.unsignaled(), pool.take().unwrap(), 3)
            .unwrap();
        let start = Instant::now();
        qp.close(&mut cq, if lap == 0 { Duration::MAX } else { PATIENCE })
            .unwrap();
        assert!(start.elapsed() < PATIENCE);
        // What is others' was not taken, and what was the pair's is back already.
        assert_eq!(pool.available(), 64 - 30);
        let wanted: Vec<_> = (0..30).map(sent).collect();
        assert_eq!(drain(&mut cq), wanted, "lap {lap}");
        assert_eq!(pool.available(), 64);
    }
    drop((other, _peer, cq, pool, target, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_close_does_not_wait_for_unsignalled_requests_that_are_done() {
    let standin = Standin::start();
    for depth in [1, 2, 3, 4, 7, 8] {
        for count in 1..=u64::from(depth) {
            let mut end = End::deep(depth);
            let all = end.pool.available();
            for user in 0..count {
                end.post_unsignaled(user);
            }
            let End {
                qp, mut cq, pool, ..
            } = end;
            let start = Instant::now();
            qp.close(&mut cq, PATIENCE).unwrap();
            assert!(start.elapsed() < PATIENCE, "depth {depth}, {count} posted");
            assert_eq!(pool.available(), all);
            assert_eq!(next(&mut cq), None);
        }
    }
    drop(standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_close_of_a_pair_that_does_not_flush_ends_with_its_patience() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let all = end.pool.available();
    standin.scribble(end.raw(), true);
    let receives = Unflushed {
        receives: true,
        ..Unflushed::default()
    };
    standin.unflushed(end.raw(), receives);
    end.receive(1);
    end.post(2).unwrap();
    let End {
        qp, mut cq, pool, ..
    } = end;
    let start = Instant::now();
    qp.close(&mut cq, SHORT).unwrap();
    assert!((SHORT..PATIENCE).contains(&start.elapsed()));
    assert_eq!(pool.available(), all - 1);
    assert_eq!(next(&mut cq), None);
    let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(bufs.len(), all);
    bufs.iter_mut().for_each(|buf| buf.fill(0xcc));
    thread::sleep(Duration::from_millis(5));
    assert!(bufs.iter().all(|buf| buf[..] == [0xcc; SIZE]));
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_that_cannot_be_moved_is_destroyed_at_once() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let all = end.pool.available();
    standin.hold_requests(end.raw(), Side::Both, Hold::UntilReleased);
    end.receive(1);
    end.post(2).unwrap();
    let End {
        qp, mut cq, pool, ..
    } = end;
    standin.fail("ibv_modify_qp", libc::EIO.into(), libc::EIO);
    let start = Instant::now();
    qp.close(&mut cq, PATIENCE).unwrap();
    assert!(start.elapsed() < PATIENCE);
    assert_eq!((next(&mut cq), pool.available()), (None, all));
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_that_was_never_connected_is_closed() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(8);
    let pool = fabric.pd.pool(4, SIZE).unwrap();
    let mut qp = fabric.unconnected(&init(&cq, 4)).unwrap();
    qp.recv.post(pool.take().unwrap(), 1).unwrap();
    let refused = qp.send.send(pool.take().unwrap(), 2).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State);
    drop(refused);
    let start = Instant::now();
    qp.close(&mut cq, PATIENCE).unwrap();
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(pool.available(), 4);
    drop((cq, pool, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_with_two_completion_queues_is_closed_while_somebody_polls_the_other() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, mut recv_cq) = (fabric.cq(8), fabric.cq(8));
    let pool = fabric.pd.pool(8, SIZE).unwrap();
    let (mut qp, _peer) = fabric.one_way(&init(&cq, 4).recv_cq(&recv_cq.handle()));
    for user in 0..4 {
        qp.recv.post(pool.take().unwrap(), user).unwrap();
    }
    let flushed = thread::scope(|threads| {
        let poller = threads.spawn(|| {
            let mut seen = Vec::new();
            while seen.len() < 4 {
                seen.extend(next(&mut recv_cq));
                thread::yield_now();
            }
            seen
        });
        qp.close(&mut cq, PATIENCE).unwrap();
        poller.join().unwrap()
    });
    let wanted: Vec<_> = (0..4)
        .map(|user| Seen::Received(user, Status::FLUSHED))
        .collect();
    assert_eq!(flushed, wanted);
    assert_eq!(pool.available(), 8);
    drop(standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn halves_of_two_pairs_cannot_be_closed() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(16);
    let pool = fabric.pd.pool(8, SIZE).unwrap();
    let (mut one, _one) = fabric.one_way(&init(&cq, 2));
    let (mut other, _other) = fabric.one_way(&init(&cq, 2));
    one.recv.post(pool.take().unwrap(), 1).unwrap();
    other.recv.post(pool.take().unwrap(), 2).unwrap();
    std::mem::swap(&mut one.send, &mut other.send);
    let start = Instant::now();
    let error = one.close(&mut cq, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    assert!(start.elapsed() < PATIENCE);
    let error = other.destroy().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    while next(&mut cq).is_some() {}
    assert_eq!(pool.available(), 8);
    drop((cq, pool, _one, _other, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_receive_says_how_much_came_and_whether_a_write_used_it_up() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (cq, mut far_cq) = (fabric.cq(16), fabric.cq(16));
    let pool = fabric.pd.pool(8, SIZE).unwrap();
    let (mut near, mut far) = fabric.link(&init(&cq, 4), &init(&far_cq, 4));
    let target = fabric.target(SIZE);
    let buf = |length| {
        let mut buf = pool.take().unwrap();
        buf.set_len(length);
        buf
    };
    let write = Work::write_with_imm(target.remote(), 9);
    for (work, written) in [(Work::send_with_imm(9), false), (write, true)] {
        far.recv.post(pool.take().unwrap(), 1).unwrap();
        far.recv.post([0; 2].map(|_| buf(SIZE)), 2).unwrap();
        near.send.post(work, buf(7), 3).unwrap();
        near.send.post(work, buf(5), 4).unwrap();
        match far_cq.poll().unwrap() {
            Some(Completion::Received(received)) => {
                let told = (received.byte_len(), received.is_write_with_imm());
                assert_eq!(told, (7, written));
                assert_eq!(received.into_buf().len(), if written { 0 } else { 7 });
            }
            other => panic!("not a receive: {other:?}"),
        }
        match far_cq.poll().unwrap() {
            Some(Completion::Pieces(pieces)) => {
                let told = (pieces.byte_len(), pieces.is_write_with_imm());
                assert_eq!(told, (5, written));
            }
            other => panic!("no pieces: {other:?}"),
        };
    }
    // Of a request that failed, neither is defined.
    far.recv.post(pool.take().unwrap(), 5).unwrap();
    far.to_error().unwrap();
    match far_cq.poll().unwrap() {
        Some(Completion::Received(received)) => {
            assert_eq!(received.status(), Status::FLUSHED);
            assert_eq!(
                (received.byte_len(), received.is_write_with_imm()),
                (0, false)
            );
        }
        other => panic!("not a receive: {other:?}"),
    }
    drop((near, far, cq, far_cq, pool, target, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_message_fills_buffers_one_after_the_other() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, mut far_cq) = (fabric.cq(16), fabric.cq(16));
    let pool = fabric.pd.pool(8, SIZE).unwrap();
    let (mut near, mut far) = fabric.link(&init(&cq, 4), &init(&far_cq, 4));
    for lengths in [
        [0, 0, 0],
        [10, 0, 0],
        [16, 0, 0],
        [16, 16, 5],
        [1, 2, 3],
        [16, 16, 16],
    ] {
        let bufs = [0; 3].map(|_| pool.take().unwrap());
        far.recv.post(bufs, 5).unwrap();
        let mut text = Vec::new();
        let bufs = lengths.map(|length: usize| {
            let mut buf = pool.take().unwrap();
            buf.set_len(length);
            for byte in &mut *buf {
                *byte = u8::try_from(text.len()).unwrap();
                text.push(*byte);
            }
            buf
        });
        near.send.post(Work::send_with_imm(9), bufs, 6).unwrap();
        match cq.poll().unwrap() {
            Some(Completion::Pieces(pieces)) => {
                // What was sent is as it was.
                assert_eq!((pieces.len(), pieces.imm()), (3, None));
                let bufs = pieces.into_bufs::<3>().unwrap();
                assert_eq!(bufs.each_ref().map(|buf| buf.len()), lengths);
            }
            other => panic!("no pieces: {other:?}"),
        }
        let Some(Completion::Pieces(mut pieces)) = far_cq.poll().unwrap() else {
            panic!("no pieces");
        };
        assert_eq!((pieces.user(), pieces.imm()), (5, Some(9)));
        let mut arrived = Vec::new();
        for left in (0..3).rev() {
            let buf = pieces.next().unwrap();
            let wanted = (text.len() - arrived.len()).min(SIZE);
            assert_eq!((buf.len(), pieces.len()), (wanted, left));
            arrived.extend_from_slice(&buf);
        }
        assert!(pieces.next().is_none() && pieces.next().is_none());
        assert_eq!(arrived, text);
    }
    assert_eq!(pool.available(), 8);
    drop((near, far, cq, far_cq, pool, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn buffers_that_are_not_taken_out_go_back_to_their_pool() {
    let standin = Standin::start();
    let mut end = End::deep(2);
    let all = end.pool.available();
    for taken in 0..=3 {
        let bufs = [1, 2, 3].map(|value| end.buf(value));
        end.qp.send.post(end.work(), bufs, 1).unwrap();
        let Some(Completion::Pieces(mut pieces)) = end.cq.poll().unwrap() else {
            panic!("no pieces");
        };
        let kept: Vec<Buf> = pieces.by_ref().take(taken).collect();
        drop(pieces);
        let values: Vec<u8> = kept.iter().map(|buf| buf[0]).collect();
        assert_eq!(values, [1, 2, 3][..taken]);
        assert_eq!(end.pool.available(), all - taken);
    }
    // Another count than there are.
    for first in [false, true] {
        let bufs = [1, 2, 3].map(|value| end.buf(value));
        end.qp.send.post(end.work(), bufs, 1).unwrap();
        let Some(Completion::Pieces(mut pieces)) = end.cq.poll().unwrap() else {
            panic!("no pieces");
        };
        if first {
            drop(pieces.next().unwrap());
            assert!(pieces.into_bufs::<3>().is_none());
        } else {
            assert!(pieces.into_bufs::<2>().is_none());
        }
        assert_eq!(end.pool.available(), all);
    }
    // None at all, and one in an array.
    end.qp.send.post(end.work(), [], 4).unwrap();
    let one = [end.buf(9)];
    end.qp.send.post(end.work(), one, 5).unwrap();
    let pieces = |user, count| Seen::Pieces(user, Status::SUCCESS, count);
    assert_eq!(drain(&mut end.cq), [pieces(4, 0), pieces(5, 1)]);
    end.qp.recv.post([], 6).unwrap();
    end.receive(7);
    let good = ibv_wc_status::IBV_WC_SUCCESS;
    for wanted in [pieces(6, 0), Seen::Received(7, Status::SUCCESS)] {
        let id = standin.posted(end.raw(), Side::Recv)[0].0;
        standin.complete(end.raw(), Side::Recv, id, good, 0);
        assert_eq!(next(&mut end.cq), Some(wanted));
    }
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_a_device_says_of_a_length_is_never_believed_beyond_the_buffers() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let (good, bad) = (
        ibv_wc_status::IBV_WC_SUCCESS,
        ibv_wc_status::IBV_WC_LOC_LEN_ERR,
    );
    for (status, length, one, three) in [
        (good, u32::MAX, SIZE, [SIZE, SIZE, SIZE]),
        (good, 20, SIZE, [SIZE, 4, 0]),
        (bad, 20, 0, [0, 0, 0]),
    ] {
        end.receive(1);
        let bufs = [0; 3].map(|value| end.buf(value));
        end.qp.recv.post(bufs, 2).unwrap();
        let ids = standin.posted(end.raw(), Side::Recv);
        let flush = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
        // The first one's failure must not flush the second, so that both have the length.
        let status = if status == bad { flush } else { status };
        for (id, _) in ids {
            standin.complete(end.raw(), Side::Recv, id, status, length);
        }
        assert_eq!(next_buf(&mut end.cq).1.len(), one);
        match end.cq.poll().unwrap() {
            Some(Completion::Pieces(pieces)) => {
                let bufs = pieces.into_bufs::<3>().unwrap();
                assert_eq!(bufs.each_ref().map(|buf| buf.len()), three);
            }
            other => panic!("no pieces: {other:?}"),
        }
    }
    assert_eq!(drain(&mut end.cq), []);
    let work = end.work();
    end.qp.send.post(work, rdmacm::Inline(b"x"), 1).unwrap();
    assert_eq!(drain(&mut end.cq), [bare(1)]);
    end.end(&standin);
}

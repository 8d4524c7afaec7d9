//! Scopes for borrowed memory: nothing that was lent is with the device when one ends, however it ends.

mod standin;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use rdma_sys::ibv_wc_status;
use rdmacm::{ErrorKind, Fetch, QueuePairInit, Result, Scope, Scoped, Status, Work};
use standin::link::{End, Fabric, SIZE, Seen, bare, drain, init, next, next_buf, received, sent};
use standin::provider::{BadWr, Hold, Side, Unflushed, at};
use standin::{Standin, in_child, is_child_of, must_abort};

const PATIENCE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(10);
const ALL_STAYS: Unflushed = Unflushed {
    sends: true,
    receives: true,
    late_sends: true,
    late_receives: true,
};

/// What a scope has seen.
fn seen(scoped: &Scoped<'_, '_>) -> Seen {
    match scoped {
        Scoped::Own(completion) => Seen::of(completion),
        Scoped::Lent(lent) => Seen::Sent(lent.user() + 1000, lent.status()),
        Scoped::LentMut(lent) => Seen::Sent(lent.user() + 2000, lent.status()),
        other => panic!("a completion of a new kind: {other:?}"),
    }
}

/// Everything that is complete, by a scope's poll; of lent memory the numbers are 1000 larger, or 2000 if it is for writing.
fn drain_scope(scope: &mut Scope<'_, '_>) -> Vec<Seen> {
    std::iter::from_fn(|| scope.poll().unwrap().map(|scoped| seen(&scoped))).collect()
}

/// Sees that nobody writes to `memory` any more.
fn is_left_alone(memory: &[u8]) {
    let before = memory.to_vec();
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(1));
        assert_eq!(memory, &before[..]);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn borrowed_memory_is_sent_received_written_and_read() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, mut far_cq) = (fabric.cq(16), fabric.cq(16));
    let (mut near, mut far) = fabric.link(&init(&cq, 4), &init(&far_cq, 4));
    let pool = fabric.pd.pool(2, SIZE).unwrap();
    let mut target = fabric.target(SIZE);
    target.write_at(0, b"there");
    far.recv.post(pool.take().unwrap(), 1).unwrap();

    let text = String::from("borrowed");
    let (mut message, mut answer) = ([0_u8; 8], [0_u8; 5]);
    let ended = near.scope(&mut cq, PATIENCE, |scope| -> Result<()> {
        // The first poll of the queue knows what was lent.
        scope.post(Work::send(), fabric.pd.lend(text.as_bytes())?, 2)?;
        match scope.poll()? {
            Some(Scoped::Lent(lent)) => {
                assert_eq!((lent.user(), lent.status()), (2, Status::SUCCESS));
                assert_eq!(lent.into_lent()[..], *b"borrowed");
            }
            other => panic!("not what was lent: {other:?}"),
        }
        scope.receive(fabric.pd.lend_mut(&mut message)?, 3)?;
        let mut buf = pool.take().unwrap();
        buf.fill_from(b"hello");
        far.send.send_with_imm(buf, 77, 4)?;
        let lent = match scope.poll()? {
            Some(Scoped::LentMut(lent)) => {
                assert_eq!((lent.user(), lent.imm()), (3, Some(77)));
                assert_eq!((lent.byte_len(), lent.is_write_with_imm()), (5, false));
                lent.into_lent()
            }
            other => panic!("not what was lent: {other:?}"),
        };
        assert_eq!(lent[..], *b"hello");
        // Lent again, as long as what arrived.
        scope.post(Work::write(target.remote()), lent, 5)?;
        assert_eq!(drain_scope(scope), [Seen::Sent(2005, Status::SUCCESS)]);
        let from = target.remote();
        scope.fetch(Fetch::read(from), fabric.pd.lend_mut(&mut answer)?, 6)?;
        Ok(())
    });
    ended.unwrap().unwrap();
    assert_eq!((&message, &answer), (b"hello\0\0\0", b"hello"));
    // What the scope had not polled comes without memory.
    assert_eq!(drain(&mut cq), [bare(6)]);
    let (_, buf) = next_buf(&mut far_cq);
    assert_eq!(buf[..], *b"borrowed");
    assert_eq!(drain(&mut far_cq), [sent(4)]);
    drop((buf, near, far, cq, far_cq, pool, target, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_scope_that_is_left_early_waits_for_what_is_on_its_way() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let delay = Duration::from_millis(30);
    standin.hold_requests(end.raw(), Side::Send, Hold::For(delay));
    for patience in [PATIENCE, Duration::MAX] {
        let start = Instant::now();
        let (work, pd) = (end.work(), end.fabric.pd.clone());
        let data = [8_u8; SIZE];
        let posted = end.qp.scope(&mut end.cq, patience, |scope| {
            scope.post(work, pd.lend(&data).unwrap(), 1).is_ok()
        });
        assert!(posted.unwrap());
        assert!(start.elapsed() >= delay);
        assert_eq!(drain(&mut end.cq), [bare(1)]);
        // The pair is as it was.
        end.post(2).unwrap();
        standin.release_all(end.raw(), Side::Send);
        assert_eq!(drain(&mut end.cq), [sent(2)]);
    }
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_is_not_done_in_time_is_flushed() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    standin.scribble(end.raw(), true);
    standin.hold_requests(end.raw(), Side::Both, Hold::UntilReleased);
    end.receive(1);
    let mut memory = [0_u8; 64];
    let pd = end.fabric.pd.clone();
    let start = Instant::now();
    let ended = end.qp.scope(&mut end.cq, SHORT, |scope| {
        scope.receive(pd.lend_mut(&mut memory).unwrap(), 2).unwrap();
        thread::sleep(Duration::from_millis(2));
    });
    ended.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    is_left_alone(&memory);
    let flushed = |user| Seen::Bare(user, Status::FLUSHED);
    let wanted = [Seen::Received(1, Status::FLUSHED), flushed(2)];
    assert_eq!(drain(&mut end.cq), wanted);
    // In its error state, it takes more.
    end.post(3).unwrap();
    assert_eq!(drain(&mut end.cq), [Seen::Sent(3, Status::FLUSHED)]);
    drop(pd);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_that_does_not_flush_is_destroyed() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    standin.scribble(end.raw(), true);
    standin.unflushed(end.raw(), ALL_STAYS);
    standin.hold_requests(end.raw(), Side::Both, Hold::UntilReleased);
    end.receive(1);
    end.post(2).unwrap();
    let (mut memory, data) = ([0_u8; 64], [1_u8; 8]);
    let (work, pd) = (end.work(), end.fabric.pd.clone());
    let free = end.pool.available();
    standin.record();
    let ended = end.qp.scope(&mut end.cq, SHORT, |scope| {
        scope.receive(pd.lend_mut(&mut memory).unwrap(), 3).unwrap();
        scope.post(work, pd.lend(&data).unwrap(), 4).unwrap();
    });
    ended.unwrap();
    is_left_alone(&memory);
    standin.call_of("ibv_destroy_qp");
    assert_eq!(standin.calls_of("ibv_dereg_mr").len(), 2);
    // Everything later says so.
    let refused = end.post(5).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
    assert!(refused.into_buf().is_some());
    let refused = end.qp.recv.post(end.buf(0), 6).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
    drop(refused);
    assert_eq!(end.qp.to_error().unwrap_err().kind(), ErrorKind::State);
    let error = end.qp.send.alloc_window().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    let again = end.qp.scope(&mut end.cq, SHORT, |scope| {
        let refused = scope.post(work, pd.lend(&data).unwrap(), 7).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::State);
        refused.into_buf().is_some()
    });
    assert!(again.unwrap());
    assert_eq!(end.pool.available(), free);
    let End { qp, mut cq, .. } = end;
    qp.close(&mut cq, SHORT).unwrap();
    assert_eq!(drain(&mut cq), []);
    assert_eq!(end.pool.available(), free + 2);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_panic_in_a_scope_goes_on_when_nothing_is_lent_any_more() {
    let standin = Standin::start();
    for stays in [false, true] {
        let mut end = End::deep(4);
        standin.scribble(end.raw(), true);
        if stays {
            standin.unflushed(end.raw(), ALL_STAYS);
        }
        let mut memory = [0_u8; 64];
        let pd = end.fabric.pd.clone();
        let mut run = || {
            end.qp.scope(&mut end.cq, PATIENCE, |scope| {
                scope.receive(pd.lend_mut(&mut memory).unwrap(), 1).unwrap();
                if scope.poll().unwrap().is_none() {
                    std::panic::resume_unwind(Box::new(42_u8));
                }
            })
        };
        let start = Instant::now();
        let panic = catch_unwind(AssertUnwindSafe(&mut run)).unwrap_err();
        assert_eq!(*panic.downcast::<u8>().unwrap(), 42);
        assert!(start.elapsed() < PATIENCE);
        is_left_alone(&memory);
        let wanted = [Seen::Bare(1, Status::FLUSHED)];
        assert_eq!(drain(&mut end.cq), if stays { &[][..] } else { &wanted });
        drop(pd);
        end.end(&standin);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_forgotten_completion_of_lent_memory_ends_the_pair() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let data = [1_u8; 8];
    let (work, pd) = (end.work(), end.fabric.pd.clone());
    let ended = end.qp.scope(&mut end.cq, SHORT, |scope| {
        scope.post(work, pd.lend(&data).unwrap(), 1).unwrap();
        match scope.poll().unwrap() {
            Some(Scoped::Lent(lent)) => std::mem::forget(lent),
            other => panic!("not what was lent: {other:?}"),
        }
    });
    ended.unwrap();
    assert_eq!(end.post(2).unwrap_err().error().kind(), ErrorKind::State);
    assert_eq!(drain(&mut end.cq), []);
    drop(pd);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_forgotten_loan_is_harmless() {
    // It stays, and would be counted by the tests that follow.
    if !is_child_of("a_forgotten_loan_is_harmless") {
        return;
    }
    let standin = Standin::start();
    let mut end = End::deep(4);
    let data = [1_u8; 8];
    let (work, pd) = (end.work(), end.fabric.pd.clone());
    let forgotten = pd.lend(&data).unwrap();
    let ended = end.qp.scope(&mut end.cq, PATIENCE, |scope| {
        let (first, second) = pd.lend(&data).unwrap().split_at(3);
        assert_eq!((first.len(), second.len()), (3, 5));
        std::mem::forget(forgotten);
        scope.post(work, first, 1).unwrap();
        std::mem::forget(second);
    });
    ended.unwrap();
    assert_eq!(drain(&mut end.cq), [bare(1)]);
    end.post(2).unwrap();
    assert_eq!(drain(&mut end.cq), [sent(2)]);
    drop((pd, end));
    let left = standin.living();
    assert!(left.contains(&("memory region", 2)), "{left:?}");
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn completions_of_other_pairs_are_kept_in_their_order() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(200);
    let (mut one, _peer) = fabric.one_way(&init(&cq, 4));
    let (mut other, _other_peer) = fabric.one_way(&init(&cq, 64));
    let (target, pool) = (fabric.target(SIZE), fabric.pd.pool(64, SIZE).unwrap());
    let work = Work::write(target.remote());
    let raw = at(one.as_raw());
    standin.hold_requests(raw, Side::Both, Hold::UntilReleased);
    let data = [3_u8; SIZE];
    for lap in 0..3 {
        one.send.post(work, pool.take().unwrap(), 500).unwrap();
        let ended = one.scope(&mut cq, PATIENCE, |scope| {
            for user in 0..40 {
                let work = if user % 3 == 0 {
                    work.unsignaled()
                } else {
                    work
                };
                other.send.post(work, pool.take().unwrap(), user).unwrap();
            }
            let lent = fabric.pd.lend(&data).unwrap();
            scope.post(work.unsignaled(), lent, 501).unwrap();
            standin.release_all(raw, Side::Send);
        });
        ended.unwrap();
        let mut wanted: Vec<_> = (0..39).map(sent).collect();
        wanted.extend([sent(500), bare(501)]);
        assert_eq!(drain(&mut cq), wanted, "lap {lap}");
        other.send.post(work, pool.take().unwrap(), 40).unwrap();
        assert_eq!(drain(&mut cq), [sent(39), sent(40)]);
    }
    assert_eq!(pool.available(), 64);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn unsignalled_requests_before_a_loan_come_back_before_it() {
    let standin = Standin::start();
    let mut end = End::deep(8);
    let data = [1_u8; 8];
    let (work, pd, pool) = (end.work(), end.fabric.pd.clone(), end.pool.clone());
    for polls in [true, false] {
        end.post_unsignaled(1);
        let ended = end.qp.scope(&mut end.cq, PATIENCE, |scope| {
            let unsignaled = work.unsignaled();
            scope.post(unsignaled, pool.take().unwrap(), 2).unwrap();
            // Signalled all the same.
            let lent = pd.lend(&data).unwrap();
            scope.post(unsignaled, lent, 3).unwrap();
            if polls {
                let lent = Seen::Sent(1003, Status::SUCCESS);
                assert_eq!(drain_scope(scope), [sent(1), sent(2), lent]);
            }
        });
        ended.unwrap();
        let wanted = [sent(1), sent(2), bare(3)];
        assert_eq!(drain(&mut end.cq), if polls { &[][..] } else { &wanted });
    }
    drop((pool, pd));
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_loan_behind_unsignalled_requests_that_failed_comes_back() {
    let standin = Standin::start();
    for polls in [true, false] {
        let mut end = End::deep(8);
        let data = [1_u8; 8];
        let (work, pd) = (end.work(), end.fabric.pd.clone());
        standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
        end.post_unsignaled(1);
        let (held, raw) = (end.held(&standin), end.raw());
        let start = Instant::now();
        let ended = end.qp.scope(&mut end.cq, PATIENCE, |scope| {
            scope.post(work, pd.lend(&data).unwrap(), 2).unwrap();
            let bad = ibv_wc_status::IBV_WC_REM_ACCESS_ERR;
            standin.complete(raw, Side::Send, held[0], bad, 0);
            if polls {
                let failed = Seen::Sent(1, Status::REMOTE_ACCESS);
                let lent = Seen::Sent(1002, Status::FLUSHED);
                assert_eq!(drain_scope(scope), [failed, lent]);
            }
        });
        ended.unwrap();
        assert!(start.elapsed() < Duration::from_secs(1));
        let failed = Seen::Sent(1, Status::REMOTE_ACCESS);
        let wanted = [failed, Seen::Bare(2, Status::FLUSHED)];
        assert_eq!(drain(&mut end.cq), if polls { &[][..] } else { &wanted });
        drop(pd);
        end.end(&standin);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_loan_that_is_refused_by_name_comes_back_at_once() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let mut memory = [5_u8; 16];
    let (raw, work, pd) = (end.raw(), end.work(), end.fabric.pd.clone());
    let from = end.target.remote();
    let ended = end.qp.scope(&mut end.cq, PATIENCE, |scope| {
        let mut lent = pd.lend_mut(&mut memory).unwrap();
        standin.refuse_by_name(raw, Side::Send, 0, libc::EINVAL);
        lent = scope.post(work, lent, 1).unwrap_err().into_buf().unwrap();
        standin.refuse_by_name(raw, Side::Send, 0, libc::EINVAL);
        let add = Fetch::fetch_add(from, 1);
        lent = scope.fetch(add, lent, 1).unwrap_err().into_buf().unwrap();
        assert_eq!(lent[..], [5; 16]);
        standin.refuse_by_name(raw, Side::Recv, 0, libc::EINVAL);
        lent = scope.receive(lent, 1).unwrap_err().into_buf().unwrap();
        // Without a name it may be with the device.
        standin.refuse(raw, Side::Send, libc::EIO, BadWr::Stray, u32::MAX);
        assert!(scope.post(work, lent, 2).unwrap_err().into_buf().is_none());
    });
    ended.unwrap();
    assert_eq!(drain(&mut end.cq), [bare(2)]);
    drop(pd);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_scope_wants_one_pair_and_its_completion_queue() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (mut cq, mut recv_cq) = (fabric.cq(16), fabric.cq(16));
    let two = init(&cq, 4).recv_cq(&recv_cq.handle());
    let (mut two, _peer) = fabric.one_way(&two);
    for queue in [&mut cq, &mut recv_cq] {
        let ended = two.scope(queue, PATIENCE, |_| panic!("runs"));
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::State);
    }
    drop(two);
    assert_eq!((next(&mut cq), next(&mut recv_cq)), (None, None));
    let (mut one, _one) = fabric.one_way(&init(&cq, 2));
    let (mut other, _other) = fabric.one_way(&init(&cq, 2));
    std::mem::swap(&mut one.send, &mut other.send);
    let ended = one.scope(&mut cq, PATIENCE, |_| panic!("runs"));
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::State);
    std::mem::swap(&mut one.send, &mut other.send);

    // One scope in another, each with a queue of its own.
    let init = QueuePairInit::new(&recv_cq.handle());
    let (mut third, _third) = fabric.one_way(&init.max_send_wr(2).max_recv_wr(2));
    let (data, target) = ([1_u8; 4], fabric.target(4));
    let work = Work::write(target.remote());
    let ended = one.scope(&mut cq, PATIENCE, |outer| {
        outer.post(work, fabric.pd.lend(&data).unwrap(), 1).unwrap();
        let ended = third.scope(&mut recv_cq, PATIENCE, |inner| {
            inner.post(work, fabric.pd.lend(&data).unwrap(), 2).unwrap();
        });
        ended.unwrap();
        drain_scope(outer)
    });
    assert_eq!(ended.unwrap(), [Seen::Sent(1001, Status::SUCCESS)]);
    assert_eq!(drain(&mut recv_cq), [bare(2)]);
    drop(standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_with_a_shared_receive_queue_only_sends_what_is_lent() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(8);
    let mut srq = fabric.pd.create_srq(2, 1).unwrap();
    let pool = fabric.pd.pool(2, SIZE).unwrap();
    srq.post(pool.take().unwrap(), 1).unwrap();
    let (mut qp, _peer) = fabric.one_way(&init(&cq, 2).srq(&srq));
    let (target, raw) = (fabric.target(SIZE), at(qp.as_raw()));
    let (mut memory, data) = ([0; 4], [1; 4]);
    let ended = qp.scope(&mut cq, PATIENCE, |scope| {
        let lent = fabric.pd.lend_mut(&mut memory).unwrap();
        let refused = scope.receive(lent, 2).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::State);
        assert!(refused.into_buf().is_some());
        let lent = fabric.pd.lend(&data).unwrap();
        scope.post(Work::write(target.remote()), lent, 3).unwrap();
        let posted = standin.posted(raw, Side::Recv)[0].0;
        standin.complete(raw, Side::Recv, posted, ibv_wc_status::IBV_WC_SUCCESS, 7);
    });
    ended.unwrap();
    assert_eq!(drain(&mut cq), [bare(3), received(1)]);
    drop((qp, _peer, srq, cq, pool, target, fabric));
    standin.nothing_left();
}

const ABORTS: &str = "a_scope_that_cannot_end_aborts";

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_scope_that_cannot_end_aborts() {
    if in_child().is_none() {
        let _standin = Standin::start();
        must_abort(ABORTS, ABORTS);
        return;
    }
    let standin = Standin::start();
    let mut end = End::deep(4);
    standin.unflushed(end.raw(), ALL_STAYS);
    standin.fail_destroy(end.raw(), 1, libc::EBUSY);
    let mut memory = [0_u8; 8];
    let pd = end.fabric.pd.clone();
    let ended = end.qp.scope(&mut end.cq, SHORT, |scope| {
        scope.receive(pd.lend_mut(&mut memory).unwrap(), 1).unwrap();
    });
    println!("came back: {ended:?}, {:?}", received(1));
}

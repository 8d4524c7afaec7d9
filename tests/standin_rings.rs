//! Who has a buffer until when: handles that go in any order, completions that nobody takes, and numbers that are nobody's.

mod standin;

use std::mem;
use std::thread;
use std::time::Duration;

use rdma_sys::{ibv_wc, ibv_wc_status};
use rdmacm::{Completion, CompletionQueue, ErrorKind, Pool, QueuePair, Work};
use standin::link::{End, Fabric, SIZE, Seen, drain, init, next, next_buf, received, sent};
use standin::provider::{Hold, Side, at};
use standin::{Standin, is_child_of};

const GOOD: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;
/// How many requests are posted in a [`busy`] pair, and how many buffers it has.
const POSTED: usize = 4;
const ALL: usize = 8;

/// A pair with two sends and two receives, which are written to all the time, its queue, and its memory.
fn busy(standin: &Standin, fabric: &Fabric) -> (QueuePair, CompletionQueue, Pool) {
    let cq = fabric.cq(8);
    let (mut qp, peer) = fabric.one_way(&init(&cq, 4));
    // Its far end lives as long as the test.
    fabric.keep(peer);
    let raw = at(qp.as_raw());
    standin.scribble(raw, true);
    standin.hold_requests(raw, Side::Both, Hold::UntilReleased);
    let pool = fabric.pd.pool(ALL, SIZE).unwrap();
    for user in 0..2 {
        qp.send.send(pool.take().unwrap(), user).unwrap();
        qp.recv.post(pool.take().unwrap(), user).unwrap();
    }
    assert_eq!(pool.available(), ALL - POSTED);
    (qp, cq, pool)
}

/// Every buffer is back, and nobody writes to one.
fn are_left_alone(pool: &Pool) {
    let mut bufs: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(bufs.len(), ALL);
    bufs.iter_mut().for_each(|buf| buf.fill(0xcc));
    thread::sleep(Duration::from_millis(5));
    assert!(bufs.iter().all(|buf| buf[..] == [0xcc; SIZE]));
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn buffers_come_back_when_the_queue_was_seen_empty_after_the_pairs_end() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let ways: [fn(QueuePair); 5] = [
        drop,
        |qp| qp.destroy().unwrap(),
        |qp| {
            drop(qp.send);
            drop(qp.recv);
        },
        |qp| thread::spawn(move || drop(qp)).join().unwrap(),
        |qp| {
            drop(qp.recv);
            thread::spawn(move || drop(qp.send)).join().unwrap();
        },
    ];
    for (way, end) in ways.into_iter().enumerate() {
        for removes in [false, true] {
            let (qp, mut cq, pool) = busy(&standin, &fabric);
            standin.removes_completions(at(qp.as_raw()), removes);
            assert_eq!(next(&mut cq), None);
            assert_eq!(pool.available(), ALL - POSTED);
            end(qp);
            assert_eq!(pool.available(), ALL - POSTED, "way {way}");
            assert_eq!(next(&mut cq), None);
            are_left_alone(&pool);

            // Its poller ends after it.
            let (qp, cq, pool) = busy(&standin, &fabric);
            end(qp);
            drop(cq);
            are_left_alone(&pool);

            // Its poller ended before it, and had or had not heard of it.
            for polls in [false, true] {
                let (qp, mut cq, pool) = busy(&standin, &fabric);
                assert!(!polls || next(&mut cq).is_none());
                thread::spawn(move || drop(cq)).join().unwrap();
                assert_eq!(pool.available(), ALL - POSTED);
                end(qp);
                are_left_alone(&pool);
            }

            // Nobody has the pool any more: what is posted keeps it.
            let (qp, mut cq, pool) = busy(&standin, &fabric);
            drop(pool);
            end(qp);
            let before = standin.living();
            assert_eq!(next(&mut cq), None);
            assert_ne!(before, standin.living());
        }
    }
    drop(fabric);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn one_half_keeps_what_is_posted_to_both() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    for keeps_send in [false, true] {
        let (QueuePair { send, recv }, mut cq, pool) = busy(&standin, &fabric);
        let (dropped, kept): (Box<dyn Send>, Box<dyn Send>) = match keeps_send {
            true => (Box::new(recv), Box::new(send)),
            false => (Box::new(send), Box::new(recv)),
        };
        drop(dropped);
        for _ in 0..3 {
            assert_eq!((next(&mut cq), pool.available()), (None, ALL - POSTED));
        }
        drop(kept);
        assert_eq!((next(&mut cq), pool.available()), (None, ALL));
    }
    drop(fabric);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn buffers_of_a_pair_that_cannot_be_destroyed_never_come_back() {
    if !is_child_of("buffers_of_a_pair_that_cannot_be_destroyed_never_come_back") {
        return;
    }
    let standin = Standin::start();
    let fabric = Fabric::new();
    let ways: [fn(QueuePair, &mut CompletionQueue); 3] = [
        |qp, _| drop(qp),
        |qp, _| {
            let error = qp.destroy().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        },
        |qp, cq| {
            let error = qp.close(cq, Duration::from_millis(5)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        },
    ];
    for end in ways {
        let (qp, mut cq, pool) = busy(&standin, &fabric);
        let raw = at(qp.as_raw());
        standin.unflushed(
            raw,
            standin::provider::Unflushed {
                sends: true,
                receives: true,
                ..Default::default()
            },
        );
        standin.fail_destroy(raw, 1, libc::EBUSY);
        end(qp, &mut cq);
        for _ in 0..3 {
            while next(&mut cq).is_some() {}
            assert_eq!(pool.available(), ALL - POSTED);
        }
        // A receive that completes all the same is one, and its memory is with the program again.
        let posted = standin.posted(raw, Side::Recv);
        standin.complete(raw, Side::Recv, posted[0].0, GOOD, 3);
        assert_eq!(next_buf(&mut cq).1.len(), 3);
        assert_eq!(pool.available(), ALL - POSTED + 1);
        drop((cq, pool));
        // The stand-in would say that it writes to memory which is gone.
        thread::sleep(Duration::from_millis(5));
        assert_eq!(standin.posted(raw, Side::Recv).len(), 1);
        standin.check();
    }
    drop(fabric);
    let left = standin.living();
    assert!(left.contains(&("queue pair", 3)), "{left:?}");
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_forgotten_pair_keeps_everything() {
    if !is_child_of("a_forgotten_pair_keeps_everything") {
        return;
    }
    let standin = Standin::start();
    let fabric = Fabric::new();
    let (qp, mut cq, pool) = busy(&standin, &fabric);
    let raw = at(qp.as_raw());
    mem::forget(qp);
    assert_eq!((next(&mut cq), pool.available()), (None, ALL - POSTED));
    drop(cq);
    assert_eq!(pool.available(), ALL - POSTED);
    drop((pool, fabric));
    thread::sleep(Duration::from_millis(5));
    assert_eq!(standin.posted(raw, Side::Recv).len(), 2);
    standin.check();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_dropped_completion_gives_its_buffer_and_its_slot_back() {
    let standin = Standin::start();
    let mut end = End::deep(2);
    let free = end.pool.available();
    for _ in 0..5 {
        assert_eq!(end.fill(0), 2);
        assert_eq!(end.pool.available(), free - 2);
        assert_eq!(drain(&mut end.cq), [sent(0), sent(1)]);
        assert_eq!(end.pool.available(), free);
        let bufs = [1, 2, 3].map(|value| end.buf(value));
        end.qp.send.post(end.work(), bufs, 7).unwrap();
        assert!(matches!(next(&mut end.cq), Some(Seen::Pieces(7, _, 3))));
        assert_eq!(end.pool.available(), free);
    }
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_forgotten_completion_keeps_its_buffer_until_the_pairs_end_and_no_longer() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let free = end.pool.available();
    end.post(1).unwrap();
    mem::forget(end.cq.poll().unwrap().unwrap());
    // Of several buffers the first is taken out, and stays the program's.
    let bufs = [1, 2, 3].map(|value| end.buf(value));
    end.qp.send.post(end.work(), bufs, 2).unwrap();
    let Some(Completion::Pieces(mut pieces)) = end.cq.poll().unwrap() else {
        panic!("no pieces");
    };
    let first = pieces.next().unwrap();
    mem::forget(pieces);
    end.receive(3);
    let id = standin.posted(end.raw(), Side::Recv)[0].0;
    standin.complete(end.raw(), Side::Recv, id, GOOD, 2);
    mem::forget(end.cq.poll().unwrap().unwrap());
    // Two slots of four are taken for good.
    assert_eq!(end.fill(0), 2);
    assert_eq!(drain(&mut end.cq), [sent(0), sent(1)]);
    assert!(!end.qp.send.is_idle());
    assert_eq!(end.pool.available(), free - 5);
    let End {
        qp, mut cq, pool, ..
    } = end;
    drop(qp);
    assert_eq!(drain(&mut cq), []);
    assert_eq!(pool.available(), free - 1);
    let others: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert!(others.iter().all(|buf| buf.as_ptr() != first.as_ptr()));
    assert_eq!(first[..], [1; SIZE]);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_number_that_is_nobodys_is_foreign_and_takes_nothing() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    standin.hold_requests(end.raw(), Side::Both, Hold::UntilReleased);
    end.post(1).unwrap();
    end.receive(2);
    let mut posted = end.held(&standin);
    posted.extend(standin.held(end.raw(), Side::Recv));
    let free = end.pool.available();
    let near = posted
        .iter()
        .flat_map(|id| (0..64).map(move |bit| id ^ (1 << bit)));
    let bits = (0..64).map(|bit| 1_u64 << bit);
    let invented: Vec<u64> = near
        .chain(bits)
        .chain([0, u64::MAX, 0x00ff_fff0])
        .filter(|id| !posted.contains(id))
        .collect();
    for status in [GOOD, ibv_wc_status::IBV_WC_WR_FLUSH_ERR] {
        for wr_id in &invented {
            let wc = ibv_wc {
                wr_id: *wr_id,
                status,
                byte_len: 8,
                ..ibv_wc::default()
            };
            standin.invent(end.cq.handle().as_raw(), &wc);
            assert_eq!(drain(&mut end.cq), [Seen::Foreign(*wr_id)]);
        }
    }
    assert_eq!(end.pool.available(), free);
    // What is real is still there, and comes once.
    standin.release(end.raw(), Side::Send, &posted[..1]);
    standin.repeat(end.cq.handle().as_raw(), 3);
    let foreign = Seen::Foreign(posted[0]);
    assert_eq!(drain(&mut end.cq), [sent(1), foreign, foreign, foreign]);
    standin.complete(end.raw(), Side::Recv, posted[1], GOOD, 8);
    standin.repeat(end.cq.handle().as_raw(), 1);
    assert_eq!(drain(&mut end.cq), [received(2), Seen::Foreign(posted[1])]);
    assert_eq!(end.pool.available(), free + 2);
    // Also when the slot holds another request by then.
    end.fill(3);
    standin.repeat(end.cq.handle().as_raw(), 1);
    assert_eq!(drain(&mut end.cq), [Seen::Foreign(posted[1])]);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_completion_after_the_pairs_end_is_its_own_or_foreign() {
    let standin = Standin::start();
    for removes in [false, true] {
        let mut end = End::deep(4);
        standin.removes_completions(end.raw(), removes);
        end.fill(0);
        let all = end.pool.available() + 4;
        let End {
            qp, mut cq, pool, ..
        } = end;
        drop(qp);
        assert_eq!(pool.available(), all - 4);
        let wanted = [sent(0), sent(1), sent(2), sent(3)];
        assert_eq!(drain(&mut cq), if removes { &[][..] } else { &wanted });
        assert_eq!(pool.available(), all);
        standin.repeat(cq.handle().as_raw(), 2);
        let late = drain(&mut cq);
        assert!(
            matches!(late[..], [Seen::Foreign(_), Seen::Foreign(_)]),
            "{late:?}"
        );
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_a_close_kept_of_a_pair_that_is_gone_is_never_a_later_pairs() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(32);
    let (target, pool) = (fabric.target(SIZE), fabric.pd.pool(8, SIZE).unwrap());
    let work = Work::write(target.remote());
    let (mut gone, _gone_peer) = fabric.one_way(&init(&cq, 4));
    let (closed, _closed_peer) = fabric.one_way(&init(&cq, 2));
    gone.send.post(work, pool.take().unwrap(), 1).unwrap();
    drop(gone);
    // Its completion is met, and kept.
    closed.close(&mut cq, Duration::ZERO).unwrap();
    let (mut new, _new_peer) = fabric.one_way(&init(&cq, 4));
    // Whichever of its queues has the number that the other's had.
    standin.hold_requests(at(new.as_raw()), Side::Both, Hold::UntilReleased);
    new.send.post(work, pool.take().unwrap(), 2).unwrap();
    new.recv.post(pool.take().unwrap(), 3).unwrap();
    assert_eq!(drain(&mut cq), [sent(1)]);
    assert!(!new.send.is_idle() && !new.recv.is_idle());
    standin.release_all(at(new.as_raw()), Side::Send);
    assert_eq!(drain(&mut cq), [sent(2)]);
    drop(new);
    assert_eq!((next(&mut cq), pool.available()), (None, 8));
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_that_does_not_fit_takes_no_room() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(10);
    let (fits, _peer) = fabric.one_way(&init(&cq, 3));
    let too_large = init(&cq, 1).max_send_wr(3).max_recv_wr(2);
    let error = fabric.unconnected(&too_large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let said = error.to_string();
    assert!(said.contains("is 2, the limit is 1"), "{said}");
    // The room that is left can be used at once.
    let (rest, _peer) = fabric.one_way(&init(&cq, 2));
    assert!(fabric.unconnected(&init(&cq, 1)).is_err());
    // Room comes back when the queue was seen empty.
    drop(fits);
    assert!(fabric.unconnected(&init(&cq, 1)).is_err());
    assert_eq!(next(&mut cq), None);
    let (again, _peer) = fabric.one_way(&init(&cq, 3));
    drop((rest, again));
    drop(standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_completions_of_many_pairs_are_told_apart() {
    const PAIRS: u64 = 40;
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(600);
    let (pool, target) = (fabric.pd.pool(256, SIZE).unwrap(), fabric.target(SIZE));
    let work = Work::write(target.remote());
    let srqs = [0; 2].map(|_| fabric.pd.create_srq(8, 1).unwrap());
    let [mut one, mut other] = srqs;
    let mut pairs: Vec<Option<QueuePair>> = (0..PAIRS)
        .map(|number| {
            let init = init(&cq, 4);
            let init = match number % 8 {
                3 => init.srq(&one),
                5 => init.srq(&other),
                _ => init,
            };
            let (qp, peer) = fabric.one_way(&init);
            fabric.keep(peer);
            Some(qp)
        })
        .collect();
    standin.hold_requests(standin::provider::ALL, Side::Both, Hold::UntilReleased);
    let buf = |user: u64| {
        let mut buf = pool.take().unwrap();
        buf.fill(u8::try_from(user % 251).unwrap());
        buf
    };
    for lap in 0..3 {
        let mut wanted = Vec::new();
        for user in 0..4 * PAIRS {
            let place = usize::try_from(user * 7 % PAIRS).unwrap();
            let Some(qp) = &mut pairs[place] else {
                continue;
            };
            let raw = at(qp.as_raw());
            if user % 3 == 0 && qp.recv.depth() > 0 {
                qp.recv.post(buf(user), user).unwrap();
                let id = standin.posted(raw, Side::Recv)[0].0;
                standin.complete(raw, Side::Recv, id, GOOD, 16);
            } else {
                qp.send.post(work, buf(user), user).unwrap();
                standin.release_all(raw, Side::Send);
            }
            wanted.push(user);
        }
        for user in wanted {
            let (found, buf) = next_buf(&mut cq);
            let value = u8::try_from(user % 251).unwrap();
            assert_eq!((found, &buf[..]), (user, &[value; SIZE][..]), "lap {lap}");
        }
        assert_eq!((next(&mut cq), pool.available()), (None, 256));
        // Some go, and both shared queues receive on.
        for place in [1, 8, 21].map(|place| place + lap) {
            pairs[place] = None;
        }
        for (srq, place) in [(&mut one, 11), (&mut other, 13)] {
            let raw = at(pairs[place].as_ref().unwrap().as_raw());
            srq.post(buf(place as u64), place as u64).unwrap();
            let id = standin.posted(raw, Side::Recv)[0].0;
            standin.complete(raw, Side::Recv, id, GOOD, 1);
            assert_eq!(next(&mut cq), Some(received(place as u64)));
        }
    }
    drop((pairs, one, other));
    assert_eq!((next(&mut cq), pool.available()), (None, 256));
    drop((cq, pool, target, fabric));
    standin.nothing_left();
}

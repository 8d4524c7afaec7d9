//! Batches: one doorbell, and what becomes of a list that is not posted whole.

mod standin;

use std::mem;

use rdma_sys::ibv_wc_status;
use rdmacm::{Buf, ErrorKind, Fetch, Inline, Partly, Status, Work, WrList};
use standin::Standin;
use standin::calls::Way;
use standin::link::{End, Fabric, SIZE, Seen, bare, drain, flushed, init, next_buf, sent};
use standin::provider::{ALL, BadWr, Hold, Side, at};

/// A batch of `count` writes with the values and numbers from `first` on, submitted.
fn submit(end: &mut End, list: &mut WrList, first: u8, count: u8) -> Result<(), Partly> {
    let work = end.work();
    let bufs: Vec<Buf> = (first..first + count).map(|value| end.buf(value)).collect();
    let mut batch = end.qp.send.batch(list);
    for (user, buf) in (u64::from(first)..).zip(bufs) {
        batch.post(work, buf, user).unwrap();
    }
    assert_eq!(batch.len(), usize::from(count));
    batch.submit()
}

fn a_batch_is_one_call(standin: &Standin) {
    let mut end = End::deep(9);
    let mut list = WrList::with_capacity(9);
    for (count, lap) in [1, 9, 4, 9, 2].into_iter().zip(1..) {
        let before = standin.posts(end.raw(), Side::Send);
        submit(&mut end, &mut list, 10 * lap, count).unwrap();
        let after = standin.posts(end.raw(), Side::Send);
        let posted = after.requests - before.requests;
        assert_eq!((after.calls - before.calls, posted), (1, count.into()));
        let first = u64::from(10 * lap);
        for user in first..first + u64::from(count) {
            let (found, buf) = next_buf(&mut end.cq);
            let value = u8::try_from(user).unwrap();
            assert_eq!((found, &buf[..]), (user, &[value; SIZE][..]));
        }
        let mut there = [0; SIZE];
        end.target.read_at(0, &mut there);
        assert_eq!(there, [10 * lap + count - 1; SIZE]);
    }
    // Of nothing, it is none.
    let before = standin.posts(end.raw(), Side::Send).calls;
    let batch = end.qp.send.batch(&mut list);
    assert!(batch.is_empty());
    batch.submit().unwrap();
    assert_eq!(standin.posts(end.raw(), Side::Send).calls, before);
    end.end(standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_a_provider_does_not_take_of_a_batch_comes_back() {
    let standin = Standin::start();
    let mut list = WrList::with_capacity(5);
    for place in 0..5_u8 {
        for unsignaled in [false, true] {
            let mut end = End::deep(12);
            end.post_unsignaled(1);
            standin.refuse_by_name(end.raw(), Side::Send, place.into(), -libc::EINVAL);
            let mut work = end.work();
            let bufs = [10, 11, 12, 13, 14].map(|value| end.buf(value));
            if unsignaled {
                work = work.unsignaled();
            }
            let mut batch = end.qp.send.batch(&mut list);
            for (user, buf) in (10..).zip(bufs) {
                batch.post(work, buf, user).unwrap();
            }
            let partly = batch.submit().unwrap_err();
            assert_eq!(partly.error().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(partly.posted(), usize::from(place));
            let bufs = partly.into_bufs();
            let values: Vec<u8> = bufs.iter().map(|buf| buf[0]).collect();
            assert_eq!(values, (10 + place..15).collect::<Vec<_>>());
            // They are posted again, and nothing is lost of the run.
            let mut batch = end.qp.send.batch(&mut list);
            for (user, buf) in (20..).zip(bufs) {
                batch.post(work, buf, user).unwrap();
            }
            batch.submit().unwrap();
            end.post(30).unwrap();
            let mut wanted = vec![sent(1)];
            wanted.extend((10..10 + u64::from(place)).map(sent));
            wanted.extend((20..25 - u64::from(place)).map(sent));
            wanted.push(sent(30));
            assert_eq!(drain(&mut end.cq), wanted, "{place}, {unsignaled}");
            end.end(&standin);
        }
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_atomic_that_a_provider_does_not_take_comes_back_as_long_as_it_wanted_to_be() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let mut list = WrList::with_capacity(4);
    let remote = end.target.remote();
    standin.refuse_by_name(end.raw(), Side::Send, 0, libc::EINVAL);
    let buf = end.buf(1);
    let mut batch = end.qp.send.batch(&mut list);
    batch.fetch(Fetch::fetch_add(remote, 3), buf, 4).unwrap();
    let bufs = batch.submit().unwrap_err().into_bufs();
    assert_eq!(bufs[0][..], [1; 8]);
    drop(bufs);
    end.end(&standin);
}

fn a_batch_that_fails_without_a_name_counts_as_posted(standin: &Standin) {
    for bad in [BadWr::Untouched, BadWr::Null, BadWr::Stray] {
        let mut end = End::deep(8);
        let mut list = WrList::with_capacity(4);
        // The first two are with the device, the others are not: nobody can know.
        standin.refuse(end.raw(), Side::Send, libc::EIO, bad, 2);
        let partly = submit(&mut end, &mut list, 1, 4).unwrap_err();
        assert_eq!(partly.posted(), 4);
        assert!(partly.into_bufs().is_empty());
        assert_eq!(drain(&mut end.cq), [sent(1), sent(2)]);
        // The other slots are taken; four are left.
        assert!(!end.qp.send.is_idle());
        submit(&mut end, &mut list, 5, 4).unwrap();
        assert_eq!(drain(&mut end.cq), [5, 6, 7, 8].map(sent));
        end.end(standin);
    }
}

fn a_dropped_batch_leaves_no_trace(standin: &Standin) {
    let mut end = End::deep(5);
    let mut list = WrList::with_capacity(5);
    let free = end.pool.available();
    for _ in 0..20 {
        end.post_unsignaled(1);
        let (work, pool) = (end.work(), end.pool.clone());
        let mut batch = end.qp.send.batch(&mut list);
        for user in 10..14 {
            let work = if user == 12 { work } else { work.unsignaled() };
            batch.post(work, pool.take().unwrap(), user).unwrap();
        }
        drop(batch);
        assert_eq!(end.pool.available(), free - 1);
        end.post(2).unwrap();
        assert_eq!(drain(&mut end.cq), [sent(1), sent(2)]);
    }
    assert_eq!(standin.posts(end.raw(), Side::Send).requests, 40);
    end.end(standin);
}

fn a_forgotten_batch_keeps_its_buffers_until_the_pairs_end(standin: &Standin) {
    let mut end = End::deep(4);
    let mut list = WrList::with_capacity(4);
    let (work, free) = (end.work(), end.pool.available());
    let bufs = [1, 2].map(|value| end.buf(value));
    let mut batch = end.qp.send.batch(&mut list);
    for buf in bufs {
        batch.post(work, buf, 9).unwrap();
    }
    mem::forget(batch);
    assert_eq!(end.fill(0), 2);
    assert_eq!(drain(&mut end.cq), [sent(0), sent(1)]);
    assert_eq!(standin.posts(end.raw(), Side::Send).requests, 2);
    assert_eq!(end.pool.available(), free - 2);
    drop(list);
    end.end(standin);
}

fn a_batch_holds_what_its_list_and_its_queue_hold(standin: &Standin) {
    let mut end = End::deep(4);
    assert_eq!(WrList::with_capacity(0).capacity(), 1);
    let (work, pool) = (end.work(), end.pool.clone());
    for (capacity, kind) in [(3, ErrorKind::TooLarge), (9, ErrorKind::QueueFull)] {
        let mut list = WrList::with_capacity(capacity);
        let mut batch = end.qp.send.batch(&mut list);
        let most = capacity.min(4);
        for user in 0..most as u64 {
            batch.post(work, pool.take().unwrap(), user).unwrap();
        }
        let mut buf = pool.take().unwrap();
        buf.fill(7);
        let refused = batch.post(work, buf, 9).unwrap_err();
        assert_eq!(refused.error().kind(), kind, "{refused}");
        assert_eq!(refused.into_buf().unwrap()[..], [7; SIZE]);
        let refused = batch.post(work, Inline(&[1; 33]), 9).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::TooLarge);
        assert_eq!(batch.len(), most);
        batch.submit().unwrap();
        let wanted: Vec<_> = (0..most as u64).map(sent).collect();
        assert_eq!(drain(&mut end.cq), wanted);
    }
    drop(pool);
    end.end(standin);
}

fn one_list_serves_many_queues(standin: &Standin) {
    let fabric = Fabric::new();
    let mut cq = fabric.cq(40);
    let (pool, target) = (fabric.pd.pool(8, SIZE).unwrap(), fabric.target(SIZE));
    let work = Work::write(target.remote());
    let (mut one, _one) = fabric.one_way(&init(&cq, 8));
    let (mut other, _other) = fabric.one_way(&init(&cq, 5));
    let mut list = WrList::with_capacity(8);
    for lap in 0..20_u64 {
        // A longer and a shorter one in turns, so that what an entry held before means nothing.
        for (queue, count) in [(&mut one.send, 7), (&mut other.send, 2)] {
            let mut batch = queue.batch(&mut list);
            for user in 100 * lap..100 * lap + count {
                if user % 3 == 0 {
                    let bytes = Inline(b"inline");
                    batch.post(work.unsignaled(), bytes, user).unwrap();
                } else {
                    batch.post(work, pool.take().unwrap(), user).unwrap();
                }
            }
            // Its last one is signalled.
            batch
                .post(work, pool.take().unwrap(), 100 * lap + count)
                .unwrap();
            let before = standin.posts(ALL, Side::Send);
            batch.submit().unwrap();
            let after = standin.posts(ALL, Side::Send);
            assert_eq!(after.calls, before.calls + 1);
            assert_eq!(after.requests, before.requests + count + 1);
            let wanted: Vec<_> = (100 * lap..100 * lap + count)
                .map(|user| {
                    if user % 3 == 0 {
                        bare(user)
                    } else {
                        sent(user)
                    }
                })
                .chain([sent(100 * lap + count)])
                .collect();
            assert_eq!(drain(&mut cq), wanted);
        }
    }
    drop((one, other));
    assert_eq!((drain(&mut cq), pool.available()), (vec![], 8));
}

fn borrowed_bytes_are_copied_when_the_batch_is_submitted(standin: &Standin) {
    let mut end = End::deep(8);
    let mut list = WrList::with_capacity(4);
    let (work, buf) = (end.work(), end.buf(b'b'));
    standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
    let mut bytes = *b"aaaaaaaa";
    let mut batch = end.qp.send.batch(&mut list);
    batch.post(work, buf, 1).unwrap();
    batch.post(work.unsignaled(), Inline(&bytes), 2).unwrap();
    batch.post(work, Inline(&[]), 3).unwrap();
    batch.submit().unwrap();
    bytes.fill(b'c');
    standin.release_all(end.raw(), Side::Send);
    assert_eq!(drain(&mut end.cq), [sent(1), bare(2), bare(3)]);
    let mut there = [0; SIZE];
    end.target.read_at(0, &mut there);
    assert_eq!(&there, b"aaaaaaaabbbbbbbb");
    assert_eq!(bytes, *b"cccccccc");
    end.end(standin);
}

fn reads_and_atomics_go_in_a_batch(standin: &Standin) {
    let mut end = End::deep(4);
    let mut list = WrList::with_capacity(4);
    end.target.store_u64(0, 5);
    let remote = end.target.remote();
    let [mut first, second, third] = [0; 3].map(|value| end.buf(value));
    first.set_len(8);
    let mut batch = end.qp.send.batch(&mut list);
    batch
        .fetch(Fetch::read(remote).unsignaled(), first, 1)
        .unwrap();
    batch.fetch(Fetch::fetch_add(remote, 3), second, 2).unwrap();
    let uneven = remote.part(4, 8).unwrap();
    let refused = batch.fetch(Fetch::fetch_add(uneven, 3), third, 3);
    let refused = refused.unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput);
    assert_eq!(refused.into_buf().unwrap().len(), SIZE);
    batch.submit().unwrap();
    for user in [1, 2] {
        let (found, buf) = next_buf(&mut end.cq);
        assert_eq!((found, &buf[..]), (user, &5_u64.to_ne_bytes()[..]));
    }
    assert_eq!(end.target.load_u64(0), 8);
    end.end(standin);
}

fn a_failure_in_a_batch_flushes_what_is_behind_it(standin: &Standin) {
    let mut end = End::deep(8);
    let mut list = WrList::with_capacity(8);
    standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
    let work = end.work();
    let bufs = [0; 5].map(|value| end.buf(value));
    let mut batch = end.qp.send.batch(&mut list);
    for (user, buf) in (0..).zip(bufs) {
        let work = if user == 4 { work } else { work.unsignaled() };
        batch.post(work, buf, user).unwrap();
    }
    batch.submit().unwrap();
    let held = end.held(standin);
    let (good, bad) = (
        ibv_wc_status::IBV_WC_SUCCESS,
        ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR,
    );
    standin.complete(at(end.qp.as_raw()), Side::Send, held[0], good, 0);
    standin.complete(end.raw(), Side::Send, held[1], bad, 0);
    let failed = Seen::Sent(1, Status::RNR_RETRY_EXCEEDED);
    let wanted = [sent(0), failed, flushed(2), flushed(3), flushed(4)];
    assert_eq!(drain(&mut end.cq), wanted);
    end.end(standin);
}

/// Has each of them run over both ways of posting.
macro_rules! both_ways {
    ($($name:ident)*) => {
        mod by_list {$(
            #[test]
            #[ignore = "needs the stand-in libraries: cargo xtask test"]
            fn $name() {
                let standin = super::Standin::posting(super::Way::List);
                super::$name(&standin);
                assert_eq!(standin.lists_by_calls(), 0);
            }
        )*}

        mod by_calls {$(
            #[test]
            #[ignore = "needs the stand-in libraries: cargo xtask test"]
            fn $name() {
                let standin = super::Standin::posting(super::Way::Calls);
                super::$name(&standin);
                assert_eq!(standin.lists_by_calls() == 0, super::POSTS_NOTHING.contains(&stringify!($name)));
            }
        )*}
    };
}

/// Nothing is begun before a batch is submitted.
const POSTS_NOTHING: [&str; 2] = [
    "a_dropped_batch_leaves_no_trace",
    "a_forgotten_batch_keeps_its_buffers_until_the_pairs_end",
];

both_ways! {
    a_batch_is_one_call
    a_batch_that_fails_without_a_name_counts_as_posted
    a_dropped_batch_leaves_no_trace
    a_forgotten_batch_keeps_its_buffers_until_the_pairs_end
    a_batch_holds_what_its_list_and_its_queue_hold
    one_list_serves_many_queues
    borrowed_bytes_are_copied_when_the_batch_is_submitted
    reads_and_atomics_go_in_a_batch
    a_failure_in_a_batch_flushes_what_is_behind_it
}

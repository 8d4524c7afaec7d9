//! Send and receive queues: how much they hold, unsignalled requests, and posts that fail.

mod standin;

use rdma_sys::ibv_wc_status;
use rdmacm::{
    Access, Completion, ErrorKind, Fetch, Inline, MappedMemory, Registration, Status, Work,
};
use standin::Standin;
use standin::link::{End, SIZE, Seen, bare, drain, flushed, next, next_buf, received, sent};
use standin::provider::{ALL, BadWr, Hold, Side};

const GOOD: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;
const BAD: ibv_wc_status = ibv_wc_status::IBV_WC_REM_ACCESS_ERR;

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_send_queue_holds_exactly_its_depth() {
    let standin = Standin::start();
    for depth in [1, 2, 3, 7, 8, 9, 64] {
        let mut end = End::deep(depth);
        standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
        let depth = u64::from(depth);
        assert_eq!(end.fill(0), depth);
        for lap in 1..=3 {
            // One has completed: there is room for one.
            let first = end.held(&standin)[0];
            standin.release(end.raw(), Side::Send, &[first]);
            assert_eq!(end.fill(0), 0, "the completion was not taken");
            assert_eq!(next(&mut end.cq), Some(sent((lap - 1) % depth)));
            assert_eq!(end.fill((lap - 1) % depth), 1, "depth {depth}, lap {lap}");
        }
        standin.release_all(end.raw(), Side::Send);
        let users = (0..depth).map(|place| (place + 3) % depth);
        let wanted: Vec<_> = users.map(sent).collect();
        assert_eq!(drain(&mut end.cq), wanted, "depth {depth}");
        assert!(end.qp.send.is_idle());
        end.end(&standin);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_receive_queue_holds_exactly_its_depth() {
    let standin = Standin::start();
    for depth in [1, 2, 3, 7, 8, 9, 64] {
        let mut end = End::deep(depth);
        for user in 0..u64::from(depth) {
            end.qp.recv.post(end.pool.take().unwrap(), user).unwrap();
        }
        for user in 0..u64::from(2 * depth) {
            let refused = end.qp.recv.post(end.buf(9), 99).unwrap_err();
            assert_eq!(refused.error().kind(), ErrorKind::QueueFull);
            assert_eq!(refused.into_buf().unwrap()[..], [9; SIZE]);
            let first = standin.posted(end.raw(), Side::Recv)[0].0;
            standin.complete(end.raw(), Side::Recv, first, GOOD, 5);
            let (found, buf) = next_buf(&mut end.cq);
            assert_eq!((found, buf.len()), (user, 5), "depth {depth}");
            end.qp.recv.post(buf, user + u64::from(depth)).unwrap();
        }
        end.end(&standin);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn unsignalled_requests_come_back_before_the_next_signalled_one() {
    let standin = Standin::start();
    let mut end = End::deep(9);
    for lap in 0..20 {
        let first = 10 * lap;
        for user in first..first + 3 {
            end.post_unsignaled(user);
            assert_eq!(next(&mut end.cq), None);
        }
        let inline = end.work().unsignaled();
        end.qp.send.post(inline, Inline(b"abc"), first + 3).unwrap();
        end.post(first + 4).unwrap();
        end.post(first + 5).unwrap();
        let wanted = [0, 1, 2, 3, 4, 5].map(|place| match place {
            3 => bare(first + 3),
            place => sent(first + place),
        });
        assert_eq!(drain(&mut end.cq), wanted, "lap {lap}");
        assert!(end.qp.send.is_idle());
    }
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_run_of_unsignalled_requests_ends_by_itself() {
    let standin = Standin::start();
    for depth in [1, 2, 3, 7, 8, 9, 64] {
        let mut end = End::deep(depth);
        let mut seen = Vec::new();
        for user in 0..u64::from(5 * depth) {
            // There is room, since a completion comes every half depth.
            end.post_unsignaled(user);
            seen.extend(drain(&mut end.cq));
        }
        end.post(u64::from(5 * depth)).unwrap();
        seen.extend(drain(&mut end.cq));
        let wanted: Vec<_> = (0..=u64::from(5 * depth)).map(sent).collect();
        assert_eq!(seen, wanted, "depth {depth}");
        end.end(&standin);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_unsignalled_request_that_fails_says_so_itself() {
    let standin = Standin::start();
    for fails in 0..5_usize {
        let mut end = End::deep(12);
        standin.hold_requests(end.raw(), Side::Send, Hold::UntilReleased);
        for user in 0..5 {
            end.post_unsignaled(user);
        }
        end.post(5).unwrap();
        let held = end.held(&standin);
        for (place, id) in held.iter().enumerate().take(fails + 1) {
            let status = if place == fails { BAD } else { GOOD };
            standin.complete(end.raw(), Side::Send, *id, status, 0);
        }
        let wanted: Vec<_> = (0..6)
            .map(|user| match user.cmp(&(fails as u64)) {
                std::cmp::Ordering::Less => sent(user),
                std::cmp::Ordering::Equal => Seen::Sent(user, Status::REMOTE_ACCESS),
                std::cmp::Ordering::Greater => flushed(user),
            })
            .collect();
        assert_eq!(drain(&mut end.cq), wanted, "the one at {fails} fails");
        assert!(end.qp.send.is_idle());
        end.end(&standin);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_send_that_is_refused_by_name_comes_back_and_leaves_no_trace() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let all = end.pool.available();
    for errno in [libc::EINVAL, -libc::EINVAL, libc::ENOMEM] {
        end.post_unsignaled(1);
        for _ in 0..9 {
            standin.refuse_by_name(end.raw(), Side::Send, 0, errno);
            let buf = end.buf(7);
            let place = buf.as_ptr();
            let refused = end.qp.send.post(end.work(), buf, 2).unwrap_err();
            assert_eq!(refused.error().raw_os_error(), Some(errno.abs()));
            let buf = refused.into_buf().unwrap();
            assert_eq!((buf.as_ptr(), &buf[..]), (place, &[7; SIZE][..]));
        }
        // An unsignalled one, too: it does not count in the run.
        standin.refuse_by_name(end.raw(), Side::Send, 0, errno);
        let unsignaled = end.work().unsignaled();
        let refused = end.qp.send.post(unsignaled, end.buf(1), 3).unwrap_err();
        assert!(refused.into_buf().is_some());
        standin.refuse_by_name(end.raw(), Side::Send, 0, errno);
        let refused = end.qp.send.post(end.work(), Inline(b"x"), 4).unwrap_err();
        assert_eq!(refused.into_buf(), Some(()));
        end.post(5).unwrap();
        assert_eq!(drain(&mut end.cq), [sent(1), sent(5)]);
    }
    assert_eq!(end.pool.available(), all);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn several_buffers_that_are_refused_come_back_in_their_order() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    standin.refuse_by_name(end.raw(), Side::Send, 0, libc::EINVAL);
    let bufs = [1, 2, 3].map(|value| end.buf(value));
    let refused = end.qp.send.post(end.work(), bufs, 1).unwrap_err();
    let mut bufs = refused.into_buf().unwrap();
    assert_eq!(bufs.each_ref().map(|buf| buf[0]), [1, 2, 3]);
    bufs.iter_mut().for_each(|buf| buf.set_len(4));
    standin.refuse_by_name(end.raw(), Side::Recv, 0, libc::EINVAL);
    let refused = end.qp.recv.post(bufs, 2).unwrap_err();
    let bufs = refused.into_buf().unwrap();
    assert_eq!(bufs.each_ref().map(|buf| buf[0]), [1, 2, 3]);
    end.qp.send.post(end.work(), bufs, 3).unwrap();
    // The next one has one buffer again.
    end.post(4).unwrap();
    let wanted = [Seen::Pieces(3, Status::SUCCESS, 3), sent(4)];
    assert_eq!(drain(&mut end.cq), wanted);
    end.qp.recv.post(end.buf(0), 5).unwrap();
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_post_that_fails_without_a_name_may_be_posted_all_the_same() {
    let standin = Standin::start();
    for bad in [BadWr::Untouched, BadWr::Null, BadWr::Stray] {
        for errno in [libc::EINVAL, -libc::EIO] {
            let mut end = End::deep(4);
            let all = end.pool.available();
            standin.hold_requests(end.raw(), Side::Both, Hold::UntilReleased);
            standin.refuse(end.raw(), Side::Send, errno, bad, u32::MAX);
            let refused = end.qp.send.post(end.work(), end.buf(3), 1).unwrap_err();
            assert_eq!(refused.error().raw_os_error(), Some(errno.abs()));
            assert!(refused.into_buf().is_none(), "{bad:?}");
            standin.refuse(end.raw(), Side::Send, errno, bad, u32::MAX);
            let bufs = [4, 5].map(|value| end.buf(value));
            let refused = end.qp.send.post(end.work(), bufs, 2).unwrap_err();
            assert!(refused.into_buf().is_none());
            standin.refuse(end.raw(), Side::Recv, errno, bad, u32::MAX);
            let refused = end.qp.recv.post(end.buf(6), 3).unwrap_err();
            assert!(refused.into_buf().is_none());
            assert_eq!(end.pool.available(), all - 4);
            // The name of an earlier refusal means nothing for a later one.
            standin.refuse_by_name(end.raw(), Side::Send, 0, errno);
            assert!(end.post(4).unwrap_err().into_buf().is_some());
            standin.refuse(end.raw(), Side::Send, errno, BadWr::Untouched, u32::MAX);
            assert!(end.post(5).unwrap_err().into_buf().is_none());
            standin.release_all(end.raw(), Side::Send);
            let (user, buf) = next_buf(&mut end.cq);
            assert_eq!((user, &buf[..]), (1, &[3; SIZE][..]));
            let wanted = [Seen::Pieces(2, Status::SUCCESS, 2), sent(5)];
            assert_eq!(drain(&mut end.cq), wanted);
            let id = standin.posted(end.raw(), Side::Recv)[0].0;
            standin.complete(end.raw(), Side::Recv, id, GOOD, 2);
            assert_eq!(next(&mut end.cq), Some(received(3)));
            drop(buf);
            end.end(&standin);
        }
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_atomic_that_is_refused_comes_back_as_long_as_it_was() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let remote = end.target.remote();
    end.target.store_u64(0, 40);
    for fetch in [
        Fetch::fetch_add(remote, 2),
        Fetch::compare_swap(remote, 42, 7),
    ] {
        standin.refuse_by_name(end.raw(), Side::Send, 0, libc::EINVAL);
        let refused = end.qp.send.fetch(fetch, end.buf(1), 1).unwrap_err();
        let buf = refused.into_buf().unwrap();
        assert_eq!(buf[..], [1; SIZE]);
        standin.refuse_by_name(end.raw(), Side::Send, 0, libc::EINVAL);
        let refused = end.qp.send.fetch(fetch, [buf], 1).unwrap_err();
        let [buf] = refused.into_buf().unwrap();
        assert_eq!(buf[..], [1; SIZE]);
        end.qp.send.fetch(fetch, buf, 2).unwrap();
        let (user, buf) = next_buf(&mut end.cq);
        assert_eq!((user, buf.len()), (2, 8));
        let before = u64::from_ne_bytes(buf[..].try_into().unwrap());
        assert_eq!(before, if end.target.load_u64(0) == 42 { 40 } else { 42 });
    }
    assert_eq!(end.target.load_u64(0), 7);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_atomic_wants_eight_aligned_bytes_in_one_buffer_however_it_is_given() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    // Every second buffer is not aligned.
    let odd = end.fabric.pd.pool(4, 12).unwrap();
    let fetch = Fetch::fetch_add(end.target.remote(), 1);
    let (even, uneven) = (odd.take().unwrap(), odd.take().unwrap());
    let refused = end.qp.send.fetch(fetch, uneven, 1).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput);
    let uneven = refused.into_buf().unwrap();
    let refused = end.qp.send.fetch(fetch, [uneven], 1).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput);
    drop(refused);
    let two = [0; 2].map(|value| end.buf(value));
    let refused = end.qp.send.fetch(fetch, two, 1);
    assert_eq!(refused.unwrap_err().error().kind(), ErrorKind::InvalidInput);
    end.qp.send.fetch(fetch, [even], 2).unwrap();
    match end.cq.poll().unwrap() {
        Some(Completion::Pieces(pieces)) => {
            let [buf] = pieces.into_bufs().unwrap();
            assert_eq!(buf[..], 0_u64.to_ne_bytes());
        }
        other => panic!("no pieces: {other:?}"),
    }
    assert_eq!(odd.available(), 4);
    drop(odd);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_does_not_fit_is_refused_before_it_is_posted() {
    let standin = Standin::start();
    let mut end = End::deep(4);
    let refused = end
        .qp
        .send
        .post(end.work(), Inline(&[0; 33]), 1)
        .unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::TooLarge);
    let said = refused.error().to_string();
    assert!(said.contains("33") && said.contains("32"), "{said}");
    let four = || [0; 4].map(|value| end.buf(value));
    let refused = end.qp.send.post(end.work(), four(), 1).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::TooLarge);
    assert!(refused.error().to_string().contains("max_send_sge"));
    let refused = end
        .qp
        .recv
        .post(refused.into_buf().unwrap(), 1)
        .unwrap_err();
    assert!(refused.error().to_string().contains("max_recv_sge"));
    drop(refused);
    let small = end.fabric.pd.expose(SIZE - 1, Access::WRITE).unwrap();
    let too_long = Work::write(small.remote());
    let refused = end.qp.send.post(too_long, end.buf(0), 1).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::TooLarge);
    drop(refused);
    assert_eq!(standin.posts(ALL, Side::Send).requests, 0);
    assert_eq!(standin.posts(ALL, Side::Recv).requests, 0);
    end.qp
        .send
        .post(end.work(), Inline(&[5; 32][..16]), 2)
        .unwrap();
    assert_eq!(drain(&mut end.cq), [bare(2)]);
    let mut there = [0; SIZE];
    end.target.read_at(0, &mut there);
    assert_eq!(there, [5; SIZE]);
    drop(small);
    end.end(&standin);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn requests_of_every_kind_end_a_run() {
    let standin = Standin::start();
    let mut end = End::deep(12);
    let memory = MappedMemory::new(64).unwrap();
    let exposed = end
        .fabric
        .pd
        .expose_for_windows(memory, Registration::new());
    let exposed = exposed.unwrap();
    let mut window = end.qp.send.alloc_window().unwrap();
    let from = end.target.remote().part(0, 8).unwrap();
    end.post_unsignaled(1);
    let bound = end
        .qp
        .send
        .bind(&mut window, &exposed, 0..8, Access::READ, 2);
    bound.unwrap();
    assert_eq!(drain(&mut end.cq), [sent(1), bare(2)]);
    end.post_unsignaled(3);
    let mut buf = end.buf(0);
    buf.set_len(8);
    let read = Fetch::read(from).unsignaled();
    end.qp.send.fetch(read, buf, 4).unwrap();
    let add = Fetch::fetch_add(from, 1);
    end.qp.send.fetch(add.unsignaled(), end.buf(0), 5).unwrap();
    let bufs = [0; 2].map(|value| end.buf(value));
    end.qp.send.post(end.work().unsignaled(), bufs, 6).unwrap();
    assert_eq!(drain(&mut end.cq), []);
    end.qp.send.fetch(add.fenced(), end.buf(0), 7).unwrap();
    let pieces = Seen::Pieces(6, Status::SUCCESS, 2);
    let wanted = [sent(3), sent(4), sent(5), pieces, sent(7)];
    assert_eq!(drain(&mut end.cq), wanted);
    drop((window, exposed));
    end.end(&standin);
}

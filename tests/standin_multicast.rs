//! Joining and leaving multicast groups: the order of the calls, and what becomes of events that were read ahead.

mod standin;

use std::net::IpAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    CmId, ConnRequest, ErrorKind, EventChannel, EventKind, JoinState, Membership, Token, UDP_QKEY,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use standin::{Plan, RXE0, SIW0, Standin, addr, next_event};

const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 3));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 4));
const REJECTED: u32 = 8;
const ADDR_CHANGE: u32 = 14;
const TIMEWAIT_EXIT: u32 = 15;

/// A datagram id that is bound to the first device.
fn bound(channel: &EventChannel) -> CmId {
    let id = CmId::new_datagram(channel).unwrap();
    id.bind_addr(addr(0)).unwrap();
    id
}

fn join(id: &CmId, group: IpAddr) -> Membership {
    id.join_multicast(group, JoinState::FullMember).unwrap()
}

/// The id and the group of the next event, which must be a join.
fn joined(channel: &EventChannel) -> (Token, IpAddr) {
    let event = next_event(channel);
    match event.kind {
        EventKind::MulticastJoined { group, destination } => {
            assert_eq!(destination.qp_num(), 0x00ff_ffff);
            assert_eq!(destination.qkey(), UDP_QKEY);
            assert_eq!(destination.private_data(), b"");
            (event.token, group)
        }
        other => panic!("not MULTICAST_JOIN: {other:?}"),
    }
}

/// Whether a poll of the channel says that there is something to read.
fn is_readable(channel: &EventChannel) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn each_join_has_a_number_of_its_own_that_no_id_has() {
    let standin = Standin::start();
    standin.record();
    let channel = EventChannel::new().unwrap();
    let id = bound(&channel);
    let first = join(&id, GROUP);
    assert_eq!(joined(&channel), (id.token(), GROUP));
    let second = join(&id, OTHER);
    assert_eq!(joined(&channel), (id.token(), OTHER));
    first.leave().unwrap();
    let first = join(&id, GROUP);
    assert_eq!(joined(&channel), (id.token(), GROUP));
    assert_eq!(first.group(), GROUP);
    assert_eq!(first.token(), id.token());
    drop((second, first));

    let mut contexts: Vec<_> = standin
        .calls_of("rdma_join_multicast_ex")
        .iter()
        .map(|call| call.args[2])
        .collect();
    contexts.push(standin.call_of("rdma_create_id").args[2]);
    contexts.sort_unstable();
    let count = contexts.len();
    contexts.dedup();
    assert_eq!((count, contexts.len()), (4, 4), "numbers: {contexts:?}");
    assert_eq!(standin.calls_of("rdma_leave_multicast").len(), 3);
    drop((id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_cannot_be_joined_is_an_error() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let full = JoinState::FullMember;
    let state = |id: &CmId, text: &str| {
        let error = id.join_multicast(GROUP, full).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    standin.record();
    state(&CmId::new_datagram(&channel).unwrap(), "the id is new");
    state(&CmId::new(&channel).unwrap(), "this one is for connections");
    let everywhere = CmId::new_datagram(&channel).unwrap();
    everywhere.bind_addr(([0, 0, 0, 0], 0).into()).unwrap();
    state(&everywhere, "bound to every address");
    let id = bound(&channel);
    let error = id.join_multicast([10, 9, 0, 1].into(), full).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(standin.calls_of("rdma_join_multicast_ex").len(), 0);

    let error = id
        .join_multicast("ff0e::1234".parse().unwrap(), full)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.raw_os_error(), Some(524));
    let membership = join(&id, GROUP);
    state(&id, "it has joined this one");
    joined(&channel);
    drop(membership);
    // A join that failed has left nothing: the next one may succeed.
    standin.fail("rdma_join_multicast_ex", -1, libc::ENOMEM);
    let error = id.join_multicast(GROUP, full).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    drop(join(&id, GROUP));

    let iwarp = CmId::new_datagram(&channel).unwrap();
    iwarp.bind_addr(standin_address_of_siw()).unwrap();
    let error = iwarp.join_multicast(GROUP, full).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
    drop((iwarp, id, everywhere, channel));
    standin.nothing_left();
}

/// The address of the soft-iWARP device.
fn standin_address_of_siw() -> std::net::SocketAddr {
    assert_eq!(SIW0, 2);
    ([10, 9, 2, 1], 0).into()
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_is_queued_is_read_before_a_group_is_left() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = bound(&channel);
    let membership = join(&id, GROUP);
    standin.record();
    drop(membership);
    let reads = standin.calls_of("rdma_get_cm_event");
    let leave = standin.call_of("rdma_leave_multicast");
    assert_eq!(reads.len(), 2, "the join, and that there is no more");
    assert!(reads.iter().all(|read| read.is_before(&leave)));
    let ack = standin.call_of("rdma_ack_cm_event");
    assert!(ack.is_before(&leave));
    // Who has left a group is not told that it was joined.
    assert!(!is_readable(&channel));
    assert!(channel.try_event().unwrap().is_none());
    drop((id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn events_that_were_read_ahead_come_in_their_order_and_wake_who_waits() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let (id, other) = (bound(&channel), bound(&channel));
    let membership = join(&id, GROUP);
    let kept = join(&other, GROUP);
    standin.event(id.as_raw(), &Plan::event(TIMEWAIT_EXIT));
    standin.event(other.as_raw(), &Plan::event(ADDR_CHANGE));
    drop(membership);
    assert!(is_readable(&channel));
    // This one is read from the kernel, after those that are kept.
    standin.event(id.as_raw(), &Plan::event(TIMEWAIT_EXIT));
    assert_eq!(joined(&channel), (other.token(), GROUP));
    let event = next_event(&channel);
    assert_eq!(event.token, id.token());
    assert!(matches!(event.kind, EventKind::TimewaitExit));
    let event = next_event(&channel);
    assert_eq!(event.token, other.token());
    assert!(matches!(event.kind, EventKind::AddrChange));
    assert!(is_readable(&channel));
    let event = next_event(&channel);
    assert_eq!(event.token, id.token());
    assert!(!is_readable(&channel));
    drop((kept, other, id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_reader_that_sleeps_gets_what_another_thread_has_read_ahead() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let (id, other) = (bound(&channel), bound(&channel));
    for round in 0..50 {
        let mine = join(&id, GROUP);
        let theirs = join(&other, GROUP);
        let (to, seen) = mpsc::channel();
        thread::scope(|scope| {
            let reader = channel.clone();
            scope.spawn(move || {
                // Sleeps before or after, as it happens.
                while let Some(event) = reader.wait(None).unwrap() {
                    to.send(event.token).unwrap();
                }
            });
            drop(mine);
            let start = Instant::now();
            while seen.recv_timeout(Duration::from_secs(10)).unwrap() != other.token() {
                assert!(start.elapsed() < Duration::from_secs(10), "round {round}");
            }
            channel.wake();
        });
        drop(theirs);
    }
    drop((other, id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_group_of_a_removed_device_is_not_left() {
    let standin = Standin::start();
    for read in [false, true] {
        let channel = EventChannel::new().unwrap();
        let id = bound(&channel);
        let membership = join(&id, GROUP);
        standin.remove_device(RXE0);
        if read {
            joined(&channel);
            assert!(matches!(
                next_event(&channel).kind,
                EventKind::DeviceRemoval
            ));
        }
        standin.record();
        membership.leave().unwrap();
        assert_eq!(standin.calls_of("rdma_leave_multicast").len(), 0);
        let error = id.join_multicast(GROUP, JoinState::FullMember).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
        if !read {
            // The program is told all the same.
            assert!(matches!(
                next_event(&channel).kind,
                EventKind::DeviceRemoval
            ));
        }
        assert!(channel.try_event().unwrap().is_none());
        drop((id, channel));
        standin.nothing_left();
        standin.restore_device(RXE0);
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_request_that_was_read_ahead_can_be_accepted_and_goes_with_its_listener() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = bound(&channel);
    let listener = CmId::new(&channel).unwrap();
    listener.bind_addr(addr(0)).unwrap();
    listener.listen(0).unwrap();
    let to = listener.local_addr().unwrap();
    let accepted = standin.peer(to, (1, 1), b"first");
    let refused = standin.peer(to, (1, 1), b"second");
    drop(join(&id, GROUP));
    let request: ConnRequest = match next_event(&channel).kind {
        EventKind::ConnectRequest(request) => request,
        other => panic!("not a request: {other:?}"),
    };
    assert!(request.private_data().starts_with(b"first"));
    let context = request.context().unwrap();
    let made = standin::small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let server = request.accept().unwrap();
    assert_eq!(refused.saw(), []);
    drop(listener);
    let saw: Vec<u32> = refused.saw().iter().map(|(code, _)| *code).collect();
    assert_eq!(saw, [REJECTED]);
    // Of the two, only the accepted one's event is left.
    assert!(matches!(
        next_event(&channel).kind,
        EventKind::Established(_)
    ));
    assert!(channel.try_event().unwrap().is_none());
    drop((made, server, context, accepted, refused, id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_request_that_was_read_ahead_keeps_no_channel_that_nobody_reads() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = bound(&channel);
    let listener = CmId::new(&channel).unwrap();
    listener.bind_addr(addr(0)).unwrap();
    listener.listen(0).unwrap();
    let peer = standin.peer(listener.local_addr().unwrap(), (1, 1), b"");
    drop(join(&id, GROUP));
    drop((channel, id, listener));
    drop(peer);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_was_read_ahead_moves_with_its_id() {
    let standin = Standin::start();
    let (old, new) = (EventChannel::new().unwrap(), EventChannel::new().unwrap());
    let (id, other) = (bound(&old), bound(&old));
    let membership = join(&other, GROUP);
    drop(join(&id, GROUP));
    assert!(is_readable(&old));
    assert!(!is_readable(&new));
    other.migrate(&new).unwrap();
    assert!(!is_readable(&old));
    assert!(is_readable(&new));
    assert_eq!(joined(&new), (other.token(), GROUP));
    assert!(!is_readable(&new));
    // The group is left through the channel that the id is on now.
    drop(membership);
    drop((id, other, old, new));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_group_is_left_while_its_event_is_read() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = bound(&channel);
    let membership = join(&id, GROUP);
    standin.hold("rdma_get_cm_event", Duration::from_millis(100));
    thread::scope(|scope| {
        let reader = scope.spawn(|| joined(&channel));
        standin.until_held("rdma_get_cm_event");
        let start = Instant::now();
        drop(membership);
        assert!(start.elapsed() > Duration::from_millis(25), "it has waited");
        assert_eq!(reader.join().unwrap(), (id.token(), GROUP));
    });
    drop((id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_leave_that_fails_says_so_once() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = bound(&channel);
    let membership = join(&id, GROUP);
    standin.fail("rdma_leave_multicast", -1, libc::ENOENT);
    standin.record();
    let error = membership.leave().unwrap_err();
    assert_eq!(error.op(), "rdma_leave_multicast");
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    assert_eq!(standin.calls_of("rdma_leave_multicast").len(), 1);
    drop((id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn groups_are_left_before_their_id_in_every_order_of_drops() {
    let standin = Standin::start();
    for unread in [false, true] {
        for number in 0..24 {
            // Each number of four digits, to the bases 4, 3, 2 and 1, picks another order.
            let mut left = vec![0, 1, 2, 3];
            let order = [number / 6, number / 2 % 3, number % 2, 0].map(|place| left.remove(place));
            standin.record();
            let channel = EventChannel::new().unwrap();
            let id = bound(&channel);
            let (first, second) = (join(&id, GROUP), join(&id, OTHER));
            if !unread {
                joined(&channel);
                joined(&channel);
            }
            let mut things: [Option<Box<dyn std::any::Any>>; 4] = [
                Some(Box::new(channel)),
                Some(Box::new(id)),
                Some(Box::new(first)),
                Some(Box::new(second)),
            ];
            for thing in order {
                drop(things[thing].take());
            }
            let destroyed = standin.call_of("rdma_destroy_id");
            let leaves = standin.calls_of("rdma_leave_multicast");
            assert_eq!(leaves.len(), 2);
            assert!(leaves.iter().all(|leave| leave.is_before(&destroyed)));
            assert!(destroyed.is_before(&standin.call_of("rdma_destroy_event_channel")));
            standin.nothing_left();
        }
    }
}

//! Multicast groups on a real device.

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use common::cm::{RESOLVE, assert_state, event, quiet};
use common::removal::Removal;
use common::{ADDR_OF_SECOND, any_port, device, eventually, in_time};
use rdmacm::{
    CmId, Destination, ErrorKind, EventChannel, EventKind, JoinState, Membership, UDP_QKEY,
};

/// A group, and how /proc/net/igmp writes it.
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 9, 1, 2));
const GROUP_IN_PROC: &str = "020109EF";

fn bound(at: SocketAddr) -> (CmId, EventChannel) {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    id.bind_addr(at).expect("bind");
    (id, channel)
}

/// The destination in the next event, which must be that `group` was joined.
fn joined(channel: &EventChannel, group: IpAddr) -> Destination {
    match event(channel).kind {
        EventKind::MulticastJoined {
            group: found,
            destination,
        } => {
            assert_eq!(found, group);
            destination
        }
        other => panic!("not MULTICAST_JOIN: {other:?}"),
    }
}

/// Whether the machine receives packets to the group.
fn is_member() -> bool {
    std::fs::read_to_string("/proc/net/igmp")
        .expect("/proc/net/igmp")
        .contains(GROUP_IN_PROC)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_80_a_joined_group_is_a_destination() {
    device();
    let (id, channel) = bound(any_port());
    assert!(!is_member());
    let membership = id
        .join_multicast(GROUP, JoinState::FullMember)
        .expect("join");
    let destination = joined(&channel, GROUP);
    assert!(is_member());
    assert_eq!(destination.qp_num(), 0x00ff_ffff);
    assert_eq!(destination.qkey(), UDP_QKEY);
    assert_eq!(destination.private_data(), b"");
    let address = destination.address();
    let dgid = address.dgid().expect("RoCE has global addresses");
    assert_eq!(dgid, GROUP.into());
    assert_eq!(address.port_num(), 1);
    membership.leave().expect("leave");
    assert!(!is_member());
    quiet(&channel);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn one_that_only_sends_is_no_member_of_the_machines() {
    device();
    let (id, channel) = bound(any_port());
    let membership = id
        .join_multicast(GROUP, JoinState::SendOnlyFullMember)
        .expect("join");
    assert_eq!(membership.state(), JoinState::SendOnlyFullMember);
    assert_eq!(joined(&channel, GROUP).qp_num(), 0x00ff_ffff);
    assert!(!is_member());
    drop(membership);
    quiet(&channel);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_79_an_ipv6_group_gives_the_error_that_c_gives() {
    device();
    let (id, channel) = bound(SocketAddr::new(common::ADDR6.parse().unwrap(), 0));
    let group: IpAddr = "ff0e::1234".parse().unwrap();
    let error = id.join_multicast(group, JoinState::FullMember).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.raw_os_error(), Some(524), "{error}");
    assert_eq!(error.peer_addr().map(|addr| addr.ip()), Some(group));
    quiet(&channel);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_79_only_a_datagram_id_with_a_device_and_without_a_route_joins() {
    device();
    let refused = |id: &CmId, found: &str| {
        let error = id.join_multicast(GROUP, JoinState::FullMember).unwrap_err();
        assert_state(&error, "rdma_join_multicast_ex", found);
    };
    let channel = EventChannel::new().expect("a channel");
    refused(&CmId::new_datagram(&channel).expect("an id"), "is new");
    refused(&CmId::new(&channel).expect("an id"), "for connections");
    let (id, _channel) = bound(SocketAddr::new([0, 0, 0, 0].into(), 0));
    refused(&id, "bound to every address");

    // As the kernel has it: the group's own address may be resolved, a route may not.
    let id = CmId::new_datagram(&channel).expect("an id");
    let local = any_port();
    id.resolve_addr(Some(local), SocketAddr::new(GROUP, 0), RESOLVE)
        .expect("resolve_addr");
    assert!(matches!(event(&channel).kind, EventKind::AddrResolved));
    let membership = id
        .join_multicast(GROUP, JoinState::FullMember)
        .expect("join");
    joined(&channel, GROUP);
    refused(&id, "it has joined this one");
    drop(membership);
    let (id, _channel) = bound(any_port());
    id.listen(0).expect("listen");
    refused(&id, "the id listens");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_group_is_left_at_once_and_may_be_joined_again() {
    device();
    let (id, channel) = bound(any_port());
    for _ in 0..200 {
        // Left before, while and after the event comes.
        drop(
            id.join_multicast(GROUP, JoinState::FullMember)
                .expect("join"),
        );
    }
    assert!(channel.try_event().expect("reading").is_none());
    let membership = id
        .join_multicast(GROUP, JoinState::FullMember)
        .expect("join");
    joined(&channel, GROUP);
    quiet(&channel);
    // The guard keeps the id, and so the membership.
    drop((id, channel));
    assert!(is_member());
    drop(membership);
    eventually("the group is left", || !is_member());
}

/// Joins 200 groups, and leaves each when the next one is joined.
fn wander(id: &CmId, net: u8) {
    let mut last: Option<Membership> = None;
    for number in 0..200 {
        let group = IpAddr::from([239, 9, net, number]);
        let next = id.join_multicast(group, JoinState::FullMember);
        drop(last.replace(next.expect("join")));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn groups_are_joined_and_left_while_others_read() {
    device();
    let (id, channel) = bound(any_port());
    let (other, _) = bound(any_port());
    other.migrate(&channel).expect("migrate");
    in_time("readers beside leavers", move || {
        thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut events = 0;
                        while let Some(event) = channel.wait(None).expect("reading") {
                            assert!(matches!(event.kind, EventKind::MulticastJoined { .. }));
                            events += 1;
                        }
                        events
                    })
                })
                .collect();
            let leaver = scope.spawn(|| wander(&id, 2));
            wander(&other, 3);
            leaver.join().unwrap();
            channel.wake();
            channel.wake();
            let read: u32 = readers
                .into_iter()
                .map(|reader| reader.join().unwrap())
                .sum();
            assert!(read <= 400);
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_114_a_group_of_a_removed_device_goes_with_its_id() {
    device();
    in_time("a removal", || {
        let (id, channel) = bound(SocketAddr::new(ADDR_OF_SECOND.parse().unwrap(), 0));
        let membership = id
            .join_multicast(GROUP, JoinState::FullMember)
            .expect("join");
        let mut removal = Removal::start();
        thread::sleep(Duration::from_millis(500));
        assert!(!removal.is_over(), "the id is still there");
        membership.leave().expect("nothing to leave");
        // The kernel has more events of the group queued than C may read after a leave; here they are read before it.
        assert!(matches!(event(&channel).kind, EventKind::DeviceRemoval));
        quiet(&channel);
        drop((id, channel));
        removal.must_end("the removal ends with the id");
    });
}

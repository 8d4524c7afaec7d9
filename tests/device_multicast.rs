//! Multicast groups on a real device.

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use common::cm::{RESOLVE, assert_state, event, quiet};
use common::datagram::{End, group, join, member, own_index};
use common::removal::Removal;
use common::{ADDR_OF_SECOND, any_port, device, eventually, in_time};
use rdmacm::{
    AddressVector, CmId, Destination, ErrorKind, EventChannel, EventKind, Gid, JoinState,
    Membership, UDP_QKEY,
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
fn a_joined_group_is_a_destination() {
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
fn an_ipv6_group_gives_the_error_that_c_gives() {
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
fn only_a_datagram_id_with_a_device_and_without_a_route_joins() {
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
fn a_group_of_a_removed_device_goes_with_its_id() {
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

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn every_full_member_gets_what_is_sent_to_a_group() {
    device();
    let (mut one, one_id, one_channel) = member();
    let (mut two, two_id, two_channel) = member();
    let (mut sender, id, channel) = member();
    let full = JoinState::FullMember;
    let (first, to) = join(&mut one, &one_id, &one_channel, group(1), full);
    let (second, _) = join(&mut two, &two_id, &two_channel, group(1), full);
    let only = JoinState::SendOnlyFullMember;
    let (third, to_all) = join(&mut sender, &id, &channel, group(1), only);
    let buf = sender.buf(b"to all");
    sender.pair.send.send(to_all, buf, 0).expect("send");
    for end in [&mut one, &mut two] {
        end.message(|message| {
            assert_eq!(message.payload(), b"to all");
            let grh = message.grh().expect("a header");
            assert!(grh.is_multicast());
            assert_eq!(grh.destination(), group(1).into());
            assert_eq!(grh.source(), any_port().ip().into());
            // It says what to do in its place.
            let error = message.sender().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        });
    }
    sender.silent();
    // A full member hears itself.
    let buf = one.buf(b"mine");
    one.pair.send.send(to, buf, 0).expect("send");
    assert_eq!(one.payload(), b"mine");
    assert_eq!(two.payload(), b"mine");
    // Who has left hears nothing.
    second.leave().expect("leave");
    let buf = sender.buf(b"again");
    sender.pair.send.send(to_all, buf, 0).expect("send");
    assert_eq!(one.payload(), b"again");
    two.silent();
    drop((first, third));
    one.close();
    two.close();
    sender.close();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_member_ends_in_any_order() {
    device();
    for order in 0..5 {
        let (mut end, id, channel) = member();
        let full = JoinState::FullMember;
        let (membership, to) = join(&mut end, &id, &channel, group(2), full);
        let buf = end.buf(b"before");
        end.pair.send.send(to, buf, 0).expect("send");
        assert_eq!(end.payload(), b"before");
        match order {
            0 => {
                drop(membership);
                end.close();
                drop((id, channel));
            }
            1 => {
                // The pair leaves the group's device before it ends; EBUSY otherwise.
                end.close();
                drop((membership, id, channel));
            }
            2 => {
                drop((id, channel));
                end.close();
                drop(membership);
            }
            3 => {
                drop((id, channel, membership));
                end.close();
            }
            _ => {
                // A second pair takes the place of the first, and is attached in its stead.
                end.close();
                let context = id.context().expect("a device");
                let mut end = End::new(&context, |pd, init| id.create_datagram_qp(pd, init));
                let address = AddressVector::global(1, group(2).into(), own_index(&context));
                let ah = end.pd.create_ah(&address).expect("create_ah");
                let to = end.pair.send.add_peer(&ah, 0xff_ffff, UDP_QKEY).unwrap();
                let buf = end.buf(b"after");
                end.pair.send.send(to, buf, 0).expect("send");
                assert_eq!(end.payload(), b"after");
                end.close();
            }
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_pair_is_attached_by_hand_until_it_or_the_attachment_goes() {
    device();
    // Somebody's membership has the machine receive what is sent to the group: soft-RoCE does not see to that.
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    id.bind_addr(any_port()).expect("bind");
    let _membership = id
        .join_multicast(group(3), JoinState::FullMember)
        .expect("join");
    assert!(matches!(
        event(&channel).kind,
        EventKind::MulticastJoined { .. }
    ));
    let context = id.context().expect("a device");
    let (mut here, mut there) = (End::by_hand(&context, 5), End::by_hand(&context, 5));
    let gid = Gid::from(group(3));
    let attachment = there.pair.attach_multicast(gid, 0).expect("attach");
    assert_eq!(attachment.group(), gid);
    let error = there.pair.attach_multicast(gid, 0).unwrap_err();
    assert_state(&error, "ibv_attach_mcast", "attached to it");
    let error = there
        .pair
        .attach_multicast(any_port().ip().into(), 0)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let address = AddressVector::global(1, gid, own_index(&context));
    let ah = here.pd.create_ah(&address).expect("create_ah");
    let to = here.pair.send.add_peer(&ah, 0xff_ffff, 5).expect("a peer");
    let buf = here.buf(b"to the group");
    here.pair.send.send(to, buf, 0).expect("send");
    assert_eq!(there.payload(), b"to the group");
    attachment.detach().expect("detach");
    let buf = here.buf(b"to nobody");
    here.pair.send.send(to, buf, 0).expect("send");
    there.silent();
    let attachment = there.pair.attach_multicast(gid, 0).expect("attach again");
    there.close();
    drop(attachment);
    here.close();
}

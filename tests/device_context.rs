//! What a device and its ports are, on soft-RoCE (rxe): compared with what the kernel says under `/sys`.
mod common;

use std::net::IpAddr;
use std::path::Path;

use common::cm::{Listening, routed};
use common::{ADDR, ADDR6, any_port, device, in_time, netdev_of};
use rdmacm::{
    AtomicCapability, CmId, Context, DeviceFlags, ErrorKind, EventChannel, Gid, GidType, LinkLayer,
    Mtu, PortState,
};

/// The first device, by an id that is bound to it; the id is gone afterwards.
fn context() -> Context {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new(&channel).expect("an id");
    assert_eq!(id.port_num(), None, "it is bound to no device yet");
    id.bind_addr(any_port()).expect("rxe0");
    assert_eq!(id.port_num(), Some(1));
    id.context().expect("rxe0")
}

/// A file of the device under `/sys`, without the end of its line.
fn sys(file: impl AsRef<Path>) -> String {
    let path = Path::new("/sys/class/infiniband/rxe0").join(file);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim_end().to_owned()
}

/// A number as `/sys` writes it: four groups of hexadecimal digits.
fn guid(text: &str) -> u64 {
    u64::from_str_radix(&text.replace(':', ""), 16).expect("hexadecimal digits")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_limits_are_the_devices() {
    device();
    in_time("device attributes", || {
        let context = context();
        let limits = context.limits();
        assert_eq!(context.name(), "rxe0");
        assert_eq!(limits.node_guid(), guid(&sys("node_guid")));
        assert_eq!(limits.sys_image_guid(), guid(&sys("sys_image_guid")));
        assert_ne!(limits.node_guid(), 0);
        // rxe leaves it to its provider, which writes the number that it has not got.
        assert_eq!(limits.firmware(), "0.0.0");
        assert_eq!(limits.port_count(), 1);
        assert_eq!(limits.atomics(), AtomicCapability::Device);
        // rxe's own number, and what it has had since its first version.
        assert_eq!(limits.vendor_id(), 0xff_ffff);
        assert_eq!(limits.max_qp_rd_atom(), 128);
        assert_eq!(limits.max_qp_init_rd_atom(), 128);
        assert_eq!(limits.max_sge(), 32);
        assert_eq!(limits.max_cqe(), 32_767);
        assert_eq!(limits.max_srq_sge(), 27);
        assert_eq!(limits.max_pkeys(), 64);
        let flags = DeviceFlags::RC_RNR_NAK_GEN | DeviceFlags::SRQ_RESIZE;
        assert!(limits.flags().contains(flags), "{:?}", limits.flags());
        for (name, limit) in [
            ("max_qp", limits.max_qp()),
            ("max_qp_wr", limits.max_qp_wr()),
            ("max_cq", limits.max_cq()),
            ("max_mr", limits.max_mr()),
            ("max_mw", limits.max_mw()),
            ("max_pd", limits.max_pd()),
            ("max_ah", limits.max_ah()),
            ("max_srq", limits.max_srq()),
            ("max_srq_wr", limits.max_srq_wr()),
            ("max_mcast_grp", limits.max_mcast_grp()),
        ] {
            assert!(limit >= 1_000, "{name}: {limit}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_port_is_active_ethernet_with_the_networks_packet_size() {
    device();
    in_time("ports", || {
        let context = context();
        let [port] = context.ports().unwrap()[..] else {
            panic!("rxe has one port");
        };
        assert_eq!(port.number(), 1);
        assert_eq!(port.state(), PortState::Active, "{port:?}");
        assert_eq!(port.link_layer(), LinkLayer::Ethernet);
        assert!(port.needs_grh());
        assert_eq!(port.max_mtu(), Mtu::B4096);
        // The largest that fits into a frame of the network device beside the headers.
        let net = Path::new("/sys/class/net")
            .join(netdev_of(ADDR))
            .join("mtu");
        let frame: u32 = std::fs::read_to_string(net)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let sizes = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];
        let fits = sizes.into_iter().rev().find(|mtu| {
            // Headers of IP, UDP and the transport, at most.
            mtu.bytes().unwrap() + 100 <= frame
        });
        assert_eq!(Some(port.active_mtu()), fits, "{frame} bytes in a frame");
        assert_eq!((port.lid(), port.lmc(), port.sm_lid()), (0, 0, 0));
        let entries = std::fs::read_dir("/sys/class/infiniband/rxe0/ports/1/gids").unwrap();
        assert_eq!(
            port.gid_table_len(),
            u32::try_from(entries.count()).unwrap()
        );
        let keys = std::fs::read_dir("/sys/class/infiniband/rxe0/ports/1/pkeys").unwrap();
        assert_eq!(port.pkey_table_len(), u16::try_from(keys.count()).unwrap());
        assert!(port.max_msg_size() >= 1 << 23, "{}", port.max_msg_size());
        // As `rate` has it: "2.5 Gb/sec (1X SDR)".
        let rate = sys("ports/1/rate");
        let gigabits: f64 = rate.split(' ').next().unwrap().parse().unwrap();
        let megabits = port.megabits().unwrap();
        assert!(
            (f64::from(megabits) - gigabits * 1000.0).abs() < 1.0,
            "{rate}: {megabits}"
        );

        let error = context.port(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(error.raw_os_error(), None, "no call was made");
        let text = "ibv_query_port: port_num is 2, the limit is 1; the device has no more ports";
        assert_eq!(error.to_string(), text);
        let error = context.port(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_addresses_are_those_of_the_network_interface() {
    device();
    in_time("addresses", || {
        let context = context();
        let gids = context.gids(1).unwrap();
        let interface = Path::new("/sys/class/net").join(netdev_of(ADDR));
        let index = std::fs::read_to_string(interface.join("ifindex")).unwrap();
        let index: u32 = index.trim().parse().unwrap();
        for (addr, shown) in [(ADDR, "::ffff:10.9.0.1"), (ADDR6, "fd09::1")] {
            let ip: IpAddr = addr.parse().unwrap();
            let Some(entry) = gids
                .iter()
                .find(|entry| entry.gid() == Gid::from(ip) && entry.gid_type() == GidType::RoceV2)
            else {
                panic!("{addr} is not in {gids:?}");
            };
            assert_eq!(entry.gid().to_string(), shown);
            assert_eq!(entry.gid().to_ip(), ip);
            assert_eq!(entry.port_num(), 1);
            assert_eq!(entry.interface_index(), Some(index));
            assert_eq!(context.gid(1, entry.index()).unwrap(), *entry);
        }
        // Every entry, beside what the kernel lists.
        let len = context.port(1).unwrap().gid_table_len();
        let mut places = gids.iter().map(|entry| entry.index());
        for place in 0..len {
            let gid = sys(format!("ports/1/gids/{place}"));
            if guid_groups(&gid) == [0; 8] {
                continue;
            }
            assert_eq!(places.next(), Some(place), "{gids:?}");
            let entry = context.gid(1, place).unwrap();
            assert_eq!(
                std::net::Ipv6Addr::from(entry.gid()).segments(),
                guid_groups(&gid)
            );
            let kind = sys(format!("ports/1/gid_attrs/types/{place}"));
            let named = match entry.gid_type() {
                GidType::RoceV2 => "RoCE v2",
                GidType::RoceV1 | GidType::InfiniBand => "IB/RoCE v1",
                other => panic!("{other:?}"),
            };
            assert_eq!(kind, named);
        }
        assert_eq!(places.next(), None, "{gids:?}");

        let free = (0..len).find(|place| !gids.iter().any(|entry| entry.index() == *place));
        let error = context.gid(1, free.unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::ENODATA));
        let error = context.gid(1, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        let error = context.gids(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    });
}

/// The eight groups of an address as `/sys` writes it.
fn guid_groups(text: &str) -> [u16; 8] {
    let groups: Vec<u16> = text
        .split(':')
        .map(|group| u16::from_str_radix(group, 16).expect("hexadecimal digits"))
        .collect();
    groups.try_into().expect("eight groups")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_id_knows_its_port_once_its_address_is_resolved() {
    device();
    in_time("the port of an id", || {
        let listening = Listening::new();
        let (id, _channel) = routed(listening.addr());
        assert_eq!(id.port_num(), Some(1));
        let port = id.context().unwrap().port(id.port_num().unwrap()).unwrap();
        assert_eq!(port.state(), PortState::Active);
    });
}

//! Address handles on a real device.

mod common;

use std::net::{IpAddr, SocketAddr};

use common::{any_port, device};
use rdmacm::{AddressVector, CmId, Context, ErrorKind, EventChannel, Gid, GidType};

/// The first device.
fn context() -> Context {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    id.bind_addr(any_port()).expect("bind");
    id.context().expect("a device")
}

/// The index of the device's own IPv4 address.
fn own_index(context: &Context) -> u8 {
    let own = Gid::from(any_port().ip());
    let gids = context.gids(1).expect("addresses");
    let entry = gids
        .iter()
        .find(|entry| entry.gid() == own && entry.gid_type() == GidType::RoceV2)
        .expect("its own address");
    entry.index().try_into().expect("a small index")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_78_an_address_handle_outlives_what_it_was_made_of() {
    device();
    let context = context();
    let pd = context.alloc_pd().expect("a domain");
    let there = Gid::from(IpAddr::from([10, 9, 0, 77]));
    let address = AddressVector::global(1, there, own_index(&context)).with_traffic_class(0x20);
    let ah = pd.create_ah(&address).expect("create_ah");
    assert_eq!(ah.protection_domain(), &pd);
    let clone = ah.clone();
    assert_eq!(clone.as_raw(), ah.as_raw());
    drop((context, pd, ah));
    assert_eq!(clone.address().dgid(), Some(there));
    assert_eq!(clone.address().traffic_class(), 0x20);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn case_78_an_address_that_leads_nowhere_says_why() {
    device();
    let context = context();
    let pd = context.alloc_pd().expect("a domain");
    let there = Gid::from(any_port().ip());
    let refused = |address: AddressVector| pd.create_ah(&address).map(drop).unwrap_err();

    let error = refused(AddressVector::local(1, 5));
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("only a GID"), "{error}");
    let error = refused(AddressVector::global(2, there, 0));
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("port"), "{error}");
    let unused = (0..=255_u8).find(|&index| context.gid(1, index.into()).is_err());
    let error = refused(AddressVector::global(
        1,
        there,
        unused.expect("a free entry"),
    ));
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
}

/// That the look-up's answer and the address by hand are the same.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_by_hand_is_the_one_that_a_look_up_gives() {
    device();
    let server = EventChannel::new().expect("a channel");
    let listener = CmId::new_datagram(&server).expect("an id");
    listener.bind_addr(any_port()).expect("bind");
    listener.listen(0).expect("listen");
    let addr: SocketAddr = listener.local_addr().expect("an address");
    let client = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&client).expect("an id");
    common::cm::route(&id, &client, None, addr);
    id.look_up(b"").expect("look_up");
    match common::cm::event(&server).kind {
        rdmacm::EventKind::LookupRequest(request) => request.accept(7, b"").expect("accept"),
        other => panic!("not a look-up: {other:?}"),
    }
    let rdmacm::EventKind::LookedUp(destination) = common::cm::event(&client).kind else {
        panic!("no destination");
    };
    let context = id.context().expect("a device");
    let by_hand = AddressVector::global(1, addr.ip().into(), own_index(&context));
    let looked_up = destination.address();
    assert_eq!(looked_up.dgid(), by_hand.dgid());
    assert_eq!(looked_up.port_num(), by_hand.port_num());
    assert_eq!(looked_up.sgid_index(), by_hand.sgid_index());
    assert_eq!(looked_up.hop_limit(), by_hand.hop_limit());
}

//! Datagram look-ups (`RDMA_PS_UDP`) on a real device.

mod common;

use std::net::SocketAddr;

use common::cm::{assert_state, assert_too_large, event, quiet, route};
use common::{any_port, device};
use rdmacm::{
    CmId, ConnParam, ErrorKind, EventChannel, EventKind, LookupRequest, LookupStatus, UDP_QKEY,
};

/// A listener for look-ups.
fn listening() -> (CmId, EventChannel, SocketAddr) {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    id.bind_addr(any_port()).expect("bind");
    id.listen(0).expect("listen");
    let addr = id.local_addr().expect("an address");
    (id, channel, addr)
}

/// A datagram id with its route to `peer` resolved.
fn routed(peer: SocketAddr) -> (CmId, EventChannel) {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    route(&id, &channel, None, peer);
    (id, channel)
}

fn request(channel: &EventChannel) -> LookupRequest {
    match event(channel).kind {
        EventKind::LookupRequest(request) => request,
        other => panic!("not a look-up request: {other:?}"),
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_answer_has_a_number_and_private_data_and_the_services_key() {
    device();
    let (_listener, server, addr) = listening();
    let (id, client) = routed(addr);
    id.look_up(b"where?").expect("look_up");
    let asked = request(&server);
    assert_eq!(asked.private_data().len(), 180);
    assert!(asked.private_data().starts_with(b"where?\0"));
    assert_eq!(asked.peer_addr(), id.local_addr());
    assert_eq!(asked.local_addr(), Some(addr));
    asked.accept(4242, b"here").expect("accept");
    let EventKind::LookedUp(destination) = event(&client).kind else {
        panic!("no destination");
    };
    assert_eq!(destination.qp_num(), 4242);
    assert_eq!(destination.qkey(), UDP_QKEY);
    assert_eq!(UDP_QKEY, 0x0123_4567);
    assert_eq!(destination.private_data().len(), 136);
    assert!(destination.private_data().starts_with(b"here\0"));
    let dgid = destination
        .address()
        .dgid()
        .expect("RoCE has global addresses");
    assert_eq!(dgid.to_string(), "::ffff:10.9.0.1");
    assert_eq!(destination.address().port_num(), 1);
    quiet(&server);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_rejected_look_up_has_a_status_and_no_errno() {
    device();
    let (listener, server, addr) = listening();
    let (id, client) = routed(addr);
    id.look_up(b"").expect("look_up");
    request(&server).reject(b"not here").expect("reject");
    let EventKind::LookupFailed(failure) = event(&client).kind else {
        panic!("no failure");
    };
    assert_eq!(failure.status(), LookupStatus::REJECTED);
    assert_eq!(failure.private_data().len(), 136);
    assert!(failure.private_data().starts_with(b"not here\0"));

    // A dropped request is a rejected one.
    let (id, client) = routed(addr);
    id.look_up(b"").expect("look_up");
    drop(request(&server));
    let EventKind::LookupFailed(failure) = event(&client).kind else {
        panic!("no failure");
    };
    assert_eq!(failure.status().as_raw(), 2);

    drop(listener);
    let (id, client) = routed(addr);
    id.look_up(b"").expect("look_up");
    let EventKind::LookupFailed(failure) = event(&client).kind else {
        panic!("no failure");
    };
    assert_eq!(failure.status(), LookupStatus::NO_SUCH_SERVICE);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn private_data_of_181_and_137_bytes_is_refused_before_the_call() {
    device();
    let (_listener, server, addr) = listening();
    let (id, client) = routed(addr);
    let error = id.look_up(&[1; 181]).unwrap_err();
    assert_too_large(&error, "rdma_connect", "private_data_len", 181, 180);
    id.look_up(&[1; 180]).expect("the id is as it was");

    let asked = request(&server);
    assert_eq!(asked.private_data(), [1; 180]);
    let failed = asked.accept(1, &[2; 137]).unwrap_err();
    assert_too_large(failed.error(), "rdma_accept", "private_data_len", 137, 136);
    let asked = failed.into_inner().expect("the request comes back");
    asked
        .accept(1, &[2; 136])
        .expect("the request is as it was");
    let EventKind::LookedUp(destination) = event(&client).kind else {
        panic!("no destination");
    };
    assert_eq!(destination.private_data(), [2; 136]);

    let (id, client) = routed(addr);
    id.look_up(b"").expect("look_up");
    let error = request(&server).reject(&[3; 137]).unwrap_err();
    assert_too_large(&error, "rdma_reject", "private_data_len", 137, 136);
    let failed = event(&client).kind;
    assert!(
        matches!(failed, EventKind::LookupFailed(_)),
        "rejected all the same: {failed:?}"
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_two_services_do_not_mix() {
    device();
    let (listener, _server, addr) = listening();
    let error = listener.connect(ConnParam::new()).unwrap_err();
    assert_state(&error, "rdma_connect", "this one is for datagrams");
    let (id, _client) = routed(addr);
    let pd = id
        .context()
        .expect("a device")
        .alloc_pd()
        .expect("a domain");
    let cq = pd.context().create_cq(32).expect("a queue");
    let init = rdmacm::QueuePairInit::new(&cq.handle());
    assert_state(
        &id.create_qp(&pd, &init).unwrap_err(),
        "rdma_create_qp",
        "for datagrams",
    );

    let channel = EventChannel::new().expect("a channel");
    let connected = CmId::new(&channel).expect("an id");
    let error = connected.look_up(b"").unwrap_err();
    assert_state(&error, "rdma_connect", "this one is for connections");
    assert_eq!(error.kind(), ErrorKind::State);
}

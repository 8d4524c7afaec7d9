//! Queue pairs that librdmacm does not know, the event's own parameters, and the options of an id, on a real device.

mod common;

use std::time::Duration;

use common::cm::{
    Done, End, Listening, Parts, assert_state, assert_too_large, disconnected, established, event,
    routed,
};
use common::device;
use rdmacm::{ConnParam, Ece, EventChannel, EventKind, Notice, RnrRetry, Status};

/// The client's end of a connection with an external queue pair, after it has asked.
fn external_client(listening: &Listening, param: ConnParam<'_>) -> End {
    let (id, channel) = routed(listening.addr());
    let context = id.context().expect("a device");
    let mut parts = Parts::try_new(&context, |pd, init| id.create_external_qp(pd, init))
        .expect("an end's parts");
    parts.post_recv(1);
    id.connect(param).expect("connect");
    End { parts, id, channel }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn both_ends_with_external_queue_pairs() {
    device();
    let listening = Listening::new();
    let param = ConnParam::new().responder_resources(5).initiator_depth(3);
    let mut client = external_client(&listening, param);
    let error = client.id.establish().unwrap_err();
    assert_state(&error, "rdma_establish", "the id is connecting");

    let request = listening.request();
    let context = request.context().expect("a device");
    let mut server = Parts::try_new(&context, |pd, init| request.create_external_qp(pd, init))
        .expect("an end's parts");
    assert_state(
        &request
            .create_qp(&server.pd, &rdmacm::QueuePairInit::new(&server.cq.handle()))
            .unwrap_err(),
        "rdma_create_qp",
        "there is one already",
    );
    server.post_recv(2);
    let server_id = request
        .accept_with(&ConnParam::new().private_data(&b"yes"[..]))
        .expect("accept");

    let answer = match event(&client.channel).kind {
        EventKind::ConnectResponse(answer) => answer,
        other => panic!("not CONNECT_RESPONSE: {other:?}"),
    };
    assert!(answer.private_data().starts_with(b"yes\0"));
    let negotiated = client.id.negotiated().expect("answered");
    assert_eq!(
        (negotiated.responder_resources, negotiated.initiator_depth),
        (5, 3)
    );
    client.id.establish().expect("establish");
    established(&listening.channel);
    let error = client.id.establish().unwrap_err();
    assert_state(&error, "rdma_establish", "the id is connected");

    client.parts.send(b"ping", 7);
    assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, 7));
    assert_eq!(
        server.completion(),
        Done::Received(Status::SUCCESS, 2, b"ping".to_vec())
    );
    server.send(b"pong", 8);
    assert_eq!(server.completion(), Done::Sent(Status::SUCCESS, 8));
    assert_eq!(
        client.parts.completion(),
        Done::Received(Status::SUCCESS, 1, b"pong".to_vec())
    );

    // What is posted is flushed when the peer hangs up, also on a queue pair that the library does not know.
    server.post_recv(3);
    client.id.disconnect().expect("disconnect");
    disconnected(&listening.channel);
    assert_eq!(
        server.completion(),
        Done::Received(Status::FLUSHED, 3, vec![])
    );
    disconnected(&client.channel);
    server.qp.destroy().expect("destroyed");
    client.parts.qp.destroy().expect("destroyed");
    drop(server_id);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_external_queue_pair_can_be_accepted_as_the_library_chooses() {
    device();
    let listening = Listening::new();
    let client = End::connecting(listening.addr());
    let request = listening.request();
    let context = request.context().expect("a device");
    let mut server = Parts::try_new(&context, |pd, init| request.create_external_qp(pd, init))
        .expect("an end's parts");
    server.post_recv(1);
    let id = request.accept().expect("accept");
    let answer = established(&client.channel);
    assert_eq!(answer.negotiated().initiator_depth, 128);
    assert_eq!(id.negotiated().expect("accepted").responder_resources, 128);
    established(&listening.channel);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_events_own_parameters_send_the_peers_data_back() {
    device();
    let listening = Listening::new();
    let client = End::client(listening.addr());
    let times = RnrRetry::times(5).expect("1 to 6");
    let param = ConnParam::new()
        .private_data(&b"echo"[..])
        .responder_resources(4)
        .initiator_depth(2)
        .rnr_retry(times);
    client.id.connect(param).expect("connect");

    let request = listening.request();
    assert_eq!(request.offer().rnr_retry(), times);
    let failed = request.accept_as_offered().unwrap_err();
    assert_state(failed.error(), "rdma_accept", "there is none");
    let request = failed.into_inner().expect("the request comes back");
    let server = Parts::of_request(&request);
    let id = request.accept_as_offered().expect("accept");
    let answer = established(&client.channel);
    assert!(answer.private_data().starts_with(b"echo\0"));
    let ours = client.id.negotiated().expect("answered");
    assert_eq!((ours.responder_resources, ours.initiator_depth), (4, 2));
    let theirs = id.negotiated().expect("accepted");
    assert_eq!((theirs.responder_resources, theirs.initiator_depth), (2, 4));
    drop(server);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_ack_timeout_is_refused_once_it_would_have_no_effect() {
    device();
    let listening = Listening::new();
    let second = Duration::from_secs(1);
    let client = End::client(listening.addr());
    client.id.set_ack_timeout(second).expect("before connect");
    client.id.set_tos(8).expect_err("the route is resolved");
    client.id.connect(ConnParam::new()).expect("connect");
    let request = listening.request();
    request.id().set_ack_timeout(second).expect("before accept");
    request.id().set_tos(8).expect("before accept");
    let server = Parts::of_request(&request);
    let id = request.accept().expect("accept");
    established(&client.channel);
    for end in [&client.id, &id] {
        let error = end.set_ack_timeout(second).unwrap_err();
        assert_state(&error, "rdma_set_option", "the id is connect");
    }
    let error = listening.id.set_ack_timeout(second).unwrap_err();
    assert_state(&error, "rdma_set_option", "the id listens");
    drop(server);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn options_of_binding_are_for_new_ids() {
    device();
    let channel = EventChannel::new().expect("a channel");
    let id = rdmacm::CmId::new(&channel).expect("an id");
    id.set_reuse_addr(true).expect("new");
    id.set_ipv6_only(true).expect("new");
    id.set_tos(4).expect("new");
    id.bind_addr("[::]:0".parse().expect("an address"))
        .expect("bind");
    assert_state(
        &id.set_reuse_addr(true).unwrap_err(),
        "rdma_set_option",
        "bound",
    );
    assert_state(
        &id.set_ipv6_only(true).unwrap_err(),
        "rdma_set_option",
        "bound",
    );
    id.listen(0).expect("listen");
    let port = id.local_addr().expect("bound").port();

    // With IPv6 only, the same port is free for IPv4.
    let other = rdmacm::CmId::new(&channel).expect("an id");
    let addr = std::net::SocketAddr::from(([0, 0, 0, 0], port));
    other.bind_addr(addr).expect("bind");
    other.listen(0).expect("listen");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ece_is_for_external_queue_pairs_and_soft_roce_has_none() {
    device();
    let listening = Listening::new();
    let client = external_client(&listening, ConnParam::new());
    let request = listening.request();
    assert_eq!(request.id().remote_ece().expect("no queue pair yet"), None);
    let ece = Ece {
        vendor_id: 0x1234,
        options: 1,
    };
    request.id().set_local_ece(ece).expect("not answered yet");
    let error = request
        .id()
        .set_local_ece(Ece {
            vendor_id: 0,
            ..ece
        })
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    let server = Parts::of_request(&request);
    assert_state(
        &request.id().remote_ece().unwrap_err(),
        "rdma_get_remote_ece",
        "there is one",
    );
    drop(request);
    drop((server, client));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_rejection_because_of_ece_has_a_reason_of_its_own() {
    device();
    let listening = Listening::new();
    let client = End::connecting(listening.addr());
    listening
        .request()
        .reject_ece(b"not yours")
        .expect("reject");
    let rejection = common::cm::rejected(&client.channel);
    assert_eq!(rejection.reason().as_raw(), 35);
    assert!(rejection.private_data().starts_with(b"not yours\0"));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_notice_is_for_connecting_ids() {
    device();
    let listening = Listening::new();
    let error = listening
        .id
        .notify(Notice::CommunicationEstablished)
        .unwrap_err();
    assert_state(&error, "rdma_notify", "the id listens");
    let client = End::connecting(listening.addr());
    let request = listening.request();
    let server = Parts::of_request(&request);
    let id = request.accept().expect("accept");
    // The client has read nothing, so its last message has not come: the notice takes its place.
    id.notify(Notice::CommunicationEstablished).expect("notify");
    established(&listening.channel);
    established(&client.channel);
    drop(server);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_offer_above_the_limits_of_the_call_comes_back() {
    device();
    let listening = Listening::new();
    let client = End::connecting(listening.addr());
    let request = listening.request();
    let server = Parts::of_request(&request);
    let failed = request
        .accept_with(&ConnParam::new().responder_resources(129))
        .unwrap_err();
    assert_too_large(
        failed.error(),
        "rdma_accept",
        "responder_resources",
        129,
        128,
    );
    let request = failed.into_inner().expect("the request comes back");
    request.accept().expect("accept");
    established(&client.channel);
    drop(server);
}

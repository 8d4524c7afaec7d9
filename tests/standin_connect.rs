//! Making a connection: what no device here can show.

mod standin;

use std::io;
use std::time::{Duration, Instant};

use rdmacm::{
    CmId, ConnParam, Connector, ErrorKind, EventChannel, EventKind, Listener, Options, RejectReason,
};
use standin::{Client, Device, Plan, RXE0, Server, Standin, addr, next_event, small_qp};

/// `RDMA_CM_EVENT_ROUTE_ERROR`.
const ROUTE_ERROR: u32 = 3;

/// Options of a client that gives up soon.
fn hasty() -> Options {
    Options::new().timeout(Duration::from_millis(200))
}

fn depths(limit: i32) -> Device {
    Device {
        max_qp_rd_atom: Some(limit),
        max_qp_init_rd_atom: Some(limit),
        ..Device::default()
    }
}

fn asked(depth: u32) -> ConnParam<'static> {
    ConnParam::new()
        .responder_resources(depth)
        .initiator_depth(depth)
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn limits_above_255_are_what_the_library_makes_of_them() {
    let standin = Standin::start();
    // 256 is 0 in 8 bits, 300 is 44.
    for (limit, kept) in [(256, 0), (300, 44)] {
        standin.device(RXE0, depths(limit));
        let server = Server::start();
        let client = Client::ready(server.addr());
        let error = client.id.connect(asked(kept + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let text = format!("is {}, the limit is {kept}", kept + 1);
        assert!(error.to_string().contains(&text), "{error}");
        assert!(standin.calls_of("rdma_connect").is_empty());
        // The id can be used again: with what the library takes, and both ends agree on it.
        client.id.connect(asked(kept)).unwrap();
        let request = server.request();
        let context = request.context().unwrap();
        let made = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
        let accepted = request.accept().unwrap();
        let EventKind::Established(answer) = client.event().kind else {
            panic!("not established");
        };
        let kept = u8::try_from(kept).unwrap();
        assert_eq!(answer.negotiated().initiator_depth, kept);
        let negotiated = accepted.negotiated().unwrap();
        assert_eq!(negotiated.responder_resources, kept);
        assert_eq!(negotiated.initiator_depth, kept);
        drop((made, accepted, context, client, server));
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_default_is_never_above_what_the_library_keeps() {
    let standin = Standin::start();
    standin.device(RXE0, depths(300));
    let server = Server::start();
    let client = Client::asking(server.addr(), ConnParam::new());
    let request = server.request();
    assert_eq!(request.offer().initiator_depth(), 44);
    let context = request.context().unwrap();
    let made = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let accepted = request.accept().unwrap();
    assert_eq!(accepted.negotiated().unwrap().initiator_depth, 44);
    drop((made, accepted, context, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn depths_are_turned_round_on_the_way() {
    let standin = Standin::start();
    let server = Server::start();
    let param = ConnParam::new().responder_resources(5).initiator_depth(3);
    let client = Client::asking(server.addr(), param);
    let request = server.request();
    let offer = request.offer();
    assert_eq!(
        (offer.responder_resources(), offer.initiator_depth()),
        (3, 5)
    );
    let context = request.context().unwrap();
    let made = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let accepted = request.accept().unwrap();
    let EventKind::Established(answer) = client.event().kind else {
        panic!("not established");
    };
    assert_eq!(answer.negotiated().responder_resources, 5);
    assert_eq!(answer.negotiated().initiator_depth, 3);
    assert_eq!(client.id.negotiated(), Some(answer.negotiated()));
    drop((made, accepted, context, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn accept_without_a_queue_pair_is_an_error_and_no_call() {
    let standin = Standin::start();
    let server = Server::start();
    let peer = standin.peer(server.addr(), (1, 1), b"");
    standin.record();
    let failed = server.request().accept().unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::State);
    let failed = failed.into_inner().unwrap().accept_as_offered();
    let failed = failed.unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::State);
    assert!(standin.calls_of("rdma_accept").is_empty());
    drop((failed, peer, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn private_data_is_padded_over_roce_and_exact_over_iwarp() {
    let standin = Standin::start();
    for (ip, sent, arrives) in [
        ("10.9.0.1", &b"abc"[..], 56),
        ("10.9.0.1", b"", 56),
        ("10.9.2.1", b"abc", 3),
        ("10.9.2.1", b"", 0),
    ] {
        let server = Server::at(format!("{ip}:0").parse().unwrap());
        let client = Client::asking(server.addr(), ConnParam::new().private_data(sent));
        let request = server.request();
        assert_eq!(request.private_data().len(), arrives, "{ip}");
        assert!(request.private_data().starts_with(sent));
        drop((request, client, server));
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_device_that_the_library_does_not_find_is_no_device() {
    let standin = Standin::start();
    let device = Device {
        hidden: Some(1),
        ..Device::default()
    };
    standin.device(RXE0, device);
    let error = Connector::with(hasty()).connect(addr(7471)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
    assert_eq!(error.peer_addr(), Some(addr(7471)));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_old_library_says_resolved_and_has_no_device() {
    let standin = Standin::start();
    let device = Device {
        hidden: Some(2),
        ..Device::default()
    };
    standin.device(RXE0, device);
    let error = Connector::with(hasty()).connect(addr(7471)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
    assert_eq!(error.op(), "rdma_resolve_addr");
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn bound_to_such_a_device_an_id_has_none() {
    let standin = Standin::start();
    let device = Device {
        hidden: Some(2),
        ..Device::default()
    };
    standin.device(RXE0, device);
    let channel = EventChannel::new().unwrap();
    let id = CmId::new(&channel).unwrap();
    id.bind_addr(addr(0)).unwrap();
    assert_eq!(id.context().unwrap_err().kind(), ErrorKind::State);
    drop((id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn minus_one_is_the_librarys_errno() {
    let standin = Standin::start();
    let server = Server::start();
    let mut client = Client::asking(server.addr(), ConnParam::new());
    let (made, accepted) = server.accept();
    // The queue pair is in ERR, so the library cannot make it ready when it reads the answer.
    client.qp.as_mut().unwrap().to_error().unwrap();
    let EventKind::ConnectError(status) = client.event().kind else {
        panic!("no error");
    };
    assert_eq!(status.as_raw(), -1);
    assert_eq!(status.errno(), Some(libc::EINVAL));
    drop((made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_refusal_to_modify_is_not_eperm() {
    let standin = Standin::start();
    let listener = Listener::bind(addr(0)).unwrap();
    let to = listener.local_addr();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listener.request().unwrap().accept_with(&hasty()));
        // INIT for both ends, RTR and RTS for the server, then the client's INIT once more.
        standin.fail_later("ibv_modify_qp", 5, 1, 5, libc::ENOMEM);
        let error = Connector::with(hasty()).connect(to).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        let error = server.join().unwrap().unwrap_err();
        assert_ne!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    });
    drop(listener);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_port_that_is_taken_names_the_address() {
    let standin = Standin::start();
    let server = Server::start();
    let error = Listener::bind(server.addr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(error.local_addr(), Some(server.addr()));
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AddrInUse);
    // Over iWARP it may be listen that says so.
    let channel = EventChannel::new().unwrap();
    let id = CmId::new(&channel).unwrap();
    id.bind_addr(addr(0)).unwrap();
    standin.fail("rdma_listen", -1, libc::EADDRINUSE);
    assert_eq!(id.listen(0).unwrap_err().kind(), ErrorKind::AddrInUse);
    // And it can be tried again.
    id.listen(0).unwrap();
    drop((id, channel, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn no_connection_manager_says_what_to_do() {
    let standin = Standin::start();
    for (errno, hint) in [
        (libc::ENOENT, "modprobe rdma_ucm"),
        (libc::ENODEV, "rdma link"),
    ] {
        standin.fail("rdma_create_event_channel", 0, errno);
        let error = Listener::bind(addr(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoDevice);
        assert_eq!(error.raw_os_error(), Some(errno));
        assert!(error.to_string().contains(hint), "{error}");
    }
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_stale_connection_has_its_name_and_number() {
    let standin = Standin::start();
    standin.answer("rdma_connect", Some(&Plan::failed(8, 10)));
    let error = Connector::with(hasty()).connect(addr(7471)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    let reason = error.rejection().unwrap().reason();
    assert_eq!(reason, RejectReason::STALE_CONNECTION);
    assert!(error.to_string().contains("stale connection"), "{error}");
    assert!(error.to_string().contains("10"), "{error}");
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_step_without_an_answer_ends_in_time() {
    let standin = Standin::start();
    for step in ["rdma_resolve_addr", "rdma_resolve_route", "rdma_connect"] {
        standin.answer(step, None);
        let start = Instant::now();
        let error = Connector::with(hasty()).connect(addr(7471)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{step}: {error}");
        assert_eq!(error.op(), step);
        assert_eq!(error.peer_addr(), Some(addr(7471)));
        assert!(start.elapsed() < Duration::from_secs(2), "{step}");
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_id_that_was_rejected_is_used_up() {
    let standin = Standin::start();
    let client = Client::asking(addr(7471), ConnParam::new());
    assert!(matches!(client.event().kind, EventKind::Rejected(_)));
    standin.record();
    let again = client.id.connect(ConnParam::new()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::State);
    let again = client.id.resolve_route(Duration::from_secs(1));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::State);
    assert!(standin.calls().is_empty());
    drop(client);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_resolution_that_failed_can_be_tried_again() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = CmId::new(&channel).unwrap();
    let patience = Duration::from_secs(1);
    let no_network = "192.0.2.1:7471".parse().unwrap();
    for _ in 0..2 {
        id.resolve_addr(None, no_network, patience).unwrap();
        let early = id.resolve_addr(None, addr(7471), patience).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::State);
        let EventKind::AddrError(status) = next_event(&channel).kind else {
            panic!("resolved");
        };
        assert_eq!(status.errno(), Some(libc::ENODEV));
        // It is bound, but has no device and no route.
        let bound = id.bind_addr(addr(0)).unwrap_err();
        assert_eq!(bound.kind(), ErrorKind::State);
        let route = id.resolve_route(patience).unwrap_err();
        assert_eq!(route.kind(), ErrorKind::State);
        assert_eq!(id.context().unwrap_err().kind(), ErrorKind::State);
    }
    id.resolve_addr(None, addr(7471), patience).unwrap();
    let event = next_event(&channel);
    assert!(matches!(event.kind, EventKind::AddrResolved), "{event:?}");
    assert_eq!(id.peer_addr(), Some(addr(7471)));

    let failure = Plan {
        event: ROUTE_ERROR,
        status: -libc::ETIMEDOUT,
        ..Plan::default()
    };
    standin.answer("rdma_resolve_route", Some(&failure));
    id.resolve_route(patience).unwrap();
    let event = next_event(&channel);
    assert!(matches!(event.kind, EventKind::RouteError(_)), "{event:?}");
    // Its address is resolved still, and once is enough.
    let again = id.resolve_addr(None, addr(7471), patience).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::State);
    id.resolve_route(patience).unwrap();
    let event = next_event(&channel);
    assert!(matches!(event.kind, EventKind::RouteResolved), "{event:?}");
    drop((id, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_refusal_is_one_error_on_every_transport() {
    let standin = Standin::start();
    for ip in ["10.9.0.1", "10.9.2.1"] {
        let error = Connector::with(hasty()).connect((ip, 7471)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{ip}: {error}");
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        standin.nothing_left();
    }
    // Over iWARP the id stays usable.
    let server = Server::at("10.9.2.1:7471".parse().unwrap());
    drop(server);
    let client = Client::ready("10.9.2.1:7471".parse().unwrap());
    assert!(client.id.connect(ConnParam::new()).is_err());
    let server = Server::at("10.9.2.1:7471".parse().unwrap());
    client.id.connect(ConnParam::new()).unwrap();
    server.request().reject(b"").unwrap();
    let EventKind::Rejected(rejection) = client.event().kind else {
        panic!("not rejected");
    };
    assert_eq!(rejection.reason().as_raw(), -libc::ECONNRESET);
    assert_eq!(rejection.private_data(), b"");
    drop((client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_wildcard_listener_has_no_device_and_its_requests_have() {
    let standin = Standin::start();
    let server = Server::at("0.0.0.0:0".parse().unwrap());
    assert_eq!(server.id.context().unwrap_err().kind(), ErrorKind::State);
    let port = server.addr().port();
    for (ip, device) in [
        ("10.9.0.1", "rxe0"),
        ("10.9.1.1", "rxe1"),
        ("10.9.2.1", "siw0"),
    ] {
        let to = format!("{ip}:{port}").parse().unwrap();
        let peer = standin.peer(to, (1, 1), b"");
        let request = server.request();
        assert_eq!(request.context().unwrap().name(), device);
        assert_eq!(request.local_addr(), Some(to));
        // Made on another device, nothing is passed to C.
        let other = Client::resolved("10.9.0.1:1".parse().unwrap());
        let other = other.id.context().unwrap();
        let made = small_qp(&other, |pd, init| request.create_qp(pd, init));
        if device == "rxe0" {
            made.unwrap();
        } else {
            assert_eq!(made.unwrap_err().kind(), ErrorKind::DeviceMismatch);
        }
        drop((request, peer));
    }
    drop(server);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn requests_that_are_rejected_leave_nothing() {
    let standin = Standin::start();
    let server = Server::start();
    let before = standin.living();
    for round in 0..1000 {
        let peer = standin.peer(server.addr(), (1, 1), b"");
        let request = server.request();
        match round % 2 {
            0 => request.reject(b"no").unwrap(),
            _ => drop(request),
        }
        assert_eq!(peer.saw(), [(8, 28)]);
    }
    assert_eq!(standin.living(), before);
    drop(server);
    standin.nothing_left();
}

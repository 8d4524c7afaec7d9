//! Connecting, accepting and rejecting on soft-iWARP (siw), where it differs from soft-RoCE.

mod common;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use common::cm::{
    End, Listening, Parts, QUIET, assert_too_large, disconnected, established, message, pair,
    quiet, rejected,
};
use common::iwarp::{ADDR, any_port, device, listening, nobody};
use common::raw::{qp_attr, to_error};
use common::{ADDR as ROCE, ADDR_OF_SECOND, eventually, in_time, resources};
use rdmacm::{
    CmId, ConnParam, Connector, ErrorKind, EventChannel, EventKind, Listener, Negotiated,
};

/// What siw says to a client that is rejected, or that its backlog has no room for.
const RESET: i32 = -libc::ECONNRESET;

fn depths(responder_resources: u8, initiator_depth: u8) -> Negotiated {
    Negotiated {
        responder_resources,
        initiator_depth,
    }
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn rejecting_a_client_that_is_gone_is_no_error() {
    device();
    in_time("an abandoned request", || {
        let listening = listening();
        let client = End::connecting(listening.addr());
        let request = listening.request();
        drop(client);
        thread::sleep(QUIET);
        request.reject(b"too late").unwrap();
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn accepting_a_client_that_is_gone_is_peer_gone_with_econnreset() {
    device();
    in_time("an abandoned request", || {
        let listening = listening();
        let abandoned = || {
            let client = End::connecting(listening.addr());
            let request = listening.request();
            drop(client);
            request
        };
        let [to_accept, to_drop] = [abandoned(), abandoned()];
        // The kernel hears of it on its own time.
        thread::sleep(QUIET);

        // Unlike on RoCE, the queue pair can still be made.
        let parts = Parts::of_request(&to_accept);
        let peer = to_accept.peer_addr();
        let failed = to_accept.accept().unwrap_err();
        let error = failed.error();
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        assert_eq!(error.op(), "rdma_accept");
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        assert_eq!(error.peer_addr(), peer);
        assert!(peer.is_some());
        assert!(failed.into_inner().is_none(), "nobody is left to answer");
        drop(parts);

        drop(to_drop);
        let (mut client, mut server) = pair(&listening);
        message(&mut client, &mut server, b"the listener goes on");
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_depth_above_the_devices_is_refused_and_the_id_stays_usable() {
    device();
    in_time("depths", || {
        let listening = listening();
        let client = End::client(listening.addr());
        let limits = *client.id.context().unwrap().limits();
        assert_eq!(
            (limits.max_qp_rd_atom(), limits.max_qp_init_rd_atom()),
            (128, 128)
        );
        for above in [129, 255, 256, 300] {
            let param = ConnParam::new().responder_resources(above);
            let error = client.id.connect(param).unwrap_err();
            let field = "responder_resources";
            assert_too_large(&error, "rdma_connect", field, above.into(), 128);
            let param = ConnParam::new().initiator_depth(above);
            let error = client.id.connect(param).unwrap_err();
            assert_too_large(&error, "rdma_connect", "initiator_depth", above.into(), 128);
        }
        client.id.connect(ConnParam::new()).unwrap();
        let request = listening.request();
        let offer = request.offer();
        assert_eq!(
            (offer.responder_resources(), offer.initiator_depth()),
            (128, 128)
        );
        let _parts = Parts::of_request(&request);
        let param = ConnParam::new().responder_resources(129);
        let failed = request.accept_with(&param).unwrap_err();
        assert_too_large(
            failed.error(),
            "rdma_accept",
            "responder_resources",
            129,
            128,
        );
        let request = failed.into_inner().expect("the peer was not answered");
        let id = request.accept().unwrap();
        let negotiated = id.negotiated().unwrap();
        assert_eq!(
            (negotiated.responder_resources, negotiated.initiator_depth),
            (128, 128)
        );
        established(&client.channel);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_server_may_answer_more_reads_than_it_was_asked_for_but_not_ask_more() {
    device();
    in_time("depths above the offer", || {
        let listening = listening();
        let client = End::client(listening.addr());
        let one = ConnParam::new().responder_resources(1).initiator_depth(1);
        client.id.connect(one).unwrap();
        let request = listening.request();
        let parts = Parts::of_request(&request);
        let channel = EventChannel::new().unwrap();
        request.migrate(&channel).unwrap();
        let param = ConnParam::new().initiator_depth(2);
        let failed = request.accept_with(&param).unwrap_err();
        assert_too_large(failed.error(), "rdma_accept", "initiator_depth", 2, 1);
        let request = failed.into_inner().expect("the peer was not answered");
        let param = ConnParam::new().responder_resources(16);
        let id = request.accept_with(&param).unwrap();
        assert_eq!(id.negotiated(), Some(depths(16, 1)));
        established(&client.channel);
        established(&channel);
        // On RoCE the client's queue pair has 16 for both.
        let attr = qp_attr(&client.parts.qp);
        assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (1, 16));
        drop(parts);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn the_offer_is_turned_round_and_the_default_takes_it() {
    device();
    in_time("unequal depths", || {
        let listening = listening();
        let client = End::client(listening.addr());
        let param = ConnParam::new().responder_resources(5).initiator_depth(3);
        client.id.connect(param).unwrap();
        let request = listening.request();
        let offer = request.offer();
        assert_eq!(
            (offer.responder_resources(), offer.initiator_depth()),
            (3, 5)
        );
        let server = End::accept(request, &ConnParam::new());
        assert_eq!(server.id.negotiated(), Some(depths(3, 5)));
        established(&server.channel);
        assert_eq!(server.id.negotiated(), Some(depths(3, 5)));
        // The client's own view is not looked at: siw of Linux 6.1 tells it the server's.
        established(&client.channel);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn private_data_arrives_as_long_as_it_was_sent_and_none_is_none() {
    device();
    in_time("lengths of private data", || {
        let listening = listening();
        for sent in [&b""[..], b"abc", b"a\0\0"] {
            let client = End::client(listening.addr());
            let param = || ConnParam::new().private_data(sent);
            client.id.connect(param()).unwrap();
            let request = listening.request();
            assert_eq!(request.private_data(), sent);
            let server = End::accept(request, &param());
            assert_eq!(established(&client.channel).private_data(), sent);
            assert_eq!(established(&server.channel).private_data(), b"");
            drop(server);

            let client = End::connecting(listening.addr());
            let request = listening.request();
            assert_eq!(request.private_data(), b"");
            request.reject(sent).unwrap();
            let rejection = rejected(&client.channel);
            assert_eq!(rejection.private_data(), sent);
            assert_eq!(rejection.reason().as_raw(), RESET);
        }
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn private_data_above_roces_limits_arrives_and_above_255_bytes_is_refused() {
    device();
    in_time("limits of private data", || {
        let listening = listening();
        // Above 251 bytes siw of Linux 6.1 miscounts: it adds 4 of its own, in eight bits.
        for length in [57_u8, 149, 197, 251] {
            let data: Vec<u8> = (0..length).collect();
            let param = || ConnParam::new().private_data(&data[..]);
            let client = End::client(listening.addr());
            client.id.connect(param()).unwrap();
            let request = listening.request();
            assert_eq!(request.private_data(), data);
            let _server = End::accept(request, &param());
            assert_eq!(established(&client.channel).private_data(), data);

            let client = End::connecting(listening.addr());
            listening.request().reject(&data).unwrap();
            assert_eq!(rejected(&client.channel).private_data(), data);
        }

        let client = End::client(listening.addr());
        let field = "private_data_len";
        // 300 would wrap to 44 in C's eight bits.
        for above in [256, 300, 512] {
            let param = ConnParam::new().private_data(vec![9; above]);
            let error = client.id.connect(param).unwrap_err();
            assert_too_large(&error, "rdma_connect", field, above as u64, 255);
        }
        client.id.connect(ConnParam::new()).unwrap();
        let request = listening.request();
        let _parts = Parts::of_request(&request);
        let param = ConnParam::new().private_data(vec![9; 256]);
        let failed = request.accept_with(&param).unwrap_err();
        assert_too_large(failed.error(), "rdma_accept", field, 256, 255);
        let request = failed.into_inner().expect("the peer was not answered");
        let error = request.reject(&[9; 256]).unwrap_err();
        assert_too_large(&error, "rdma_reject", field, 256, 255);
        let rejection = rejected(&client.channel);
        assert_eq!(rejection.private_data(), b"", "rejected without them");
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn requests_that_are_rejected_or_dropped_leave_nothing() {
    device();
    in_time("rejections", || {
        let listening = listening();
        let round = |drop_it: bool| {
            let client = End::connecting(listening.addr());
            let request = listening.request();
            if drop_it {
                drop(request);
            } else {
                request.reject(b"no").unwrap();
            }
            assert_eq!(rejected(&client.channel).reason().as_raw(), RESET);
        };
        // librdmacm opens the device once and keeps it.
        round(false);
        let before = resources();
        for number in 0..50 {
            round(number % 2 == 0);
        }
        eventually("ids, queue pairs and the rest are back", || {
            resources() == before
        });
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn the_server_is_established_although_the_client_reads_nothing() {
    device();
    in_time("a client that reads nothing", || {
        let listening = listening();
        let client = End::connecting(listening.addr());
        let server = End::accept(listening.request(), &ConnParam::new());
        established(&server.channel);
        established(&client.channel);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_client_that_goes_before_it_reads_is_established_and_then_disconnected() {
    device();
    in_time("a client that goes", || {
        let listening = listening();
        let client = End::connecting(listening.addr());
        let server = End::accept(listening.request(), &ConnParam::new());
        drop(client);
        established(&server.channel);
        disconnected(&server.channel);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_queue_pair_in_error_is_established_and_then_disconnected() {
    device();
    in_time("a queue pair in error", || {
        let listening = listening();
        let client = End::connecting(listening.addr());
        let server = End::accept(listening.request(), &ConnParam::new());
        established(&server.channel);
        to_error(&client.parts.qp);
        established(&client.channel);
        disconnected(&client.channel);
        disconnected(&server.channel);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn an_id_that_was_refused_can_connect_once_somebody_listens() {
    device();
    in_time("connecting again", || {
        let addr = nobody();
        let client = End::client(addr);
        for _ in 0..3 {
            let error = client.id.connect(ConnParam::new()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED), "{error}");
        }
        let listening = Listening::at(addr, 0);
        client.id.connect(ConnParam::new()).unwrap();
        let mut server = End::accept(listening.request(), &ConnParam::new());
        established(&client.channel);
        established(&server.channel);
        let mut client = client;
        message(&mut client, &mut server, b"the same id");
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn where_nobody_listens_connect_itself_is_refused_and_no_event_comes() {
    device();
    in_time("refusals", || {
        let addr = nobody();
        let client = End::client(addr);
        let error = client.id.connect(ConnParam::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
        assert_eq!(error.op(), "rdma_connect");
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
        assert_eq!(error.peer_addr(), Some(addr));
        assert!(error.rejection().is_none(), "nobody has said anything");
        quiet(&client.channel);

        // To who takes whole connections it is the same error as over RoCE.
        let error = Connector::new().connect(addr).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn the_status_of_a_rejection_is_an_errno_with_its_name() {
    device();
    in_time("a rejection", || {
        let listener = Listener::bind(any_port()).unwrap();
        let addr = listener.local_addr();
        let client = thread::spawn(move || Connector::new().connect(addr).map(drop).unwrap_err());
        let request = listener.request().unwrap();
        let peer = request.peer_addr();
        request.reject(b"not today").unwrap();
        let error = client.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
        let rejection = error.rejection().expect("a rejection");
        assert_eq!(rejection.reason().as_raw(), RESET);
        assert_eq!(rejection.private_data(), b"not today");
        assert_eq!(
            error.to_string(),
            format!(
                "rdma_connect (local {peer}, peer {addr}): the peer rejected the connection: \
                 Connection reset by peer (os error 104) (reason -104)"
            )
        );
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn clients_beyond_the_backlog_are_reset() {
    device();
    in_time("a full backlog", || {
        let listening = Listening::at(any_port(), 1);
        let clients: Vec<End> = (0..6).map(|_| End::connecting(listening.addr())).collect();
        let mut reset = 0;
        for client in &clients {
            let Some(event) = client.channel.wait(Some(QUIET)).unwrap() else {
                continue;
            };
            let EventKind::Rejected(rejection) = event.kind else {
                panic!("not REJECTED: {event:?}");
            };
            assert_eq!(rejection.reason().as_raw(), RESET);
            reset += 1;
        }
        assert_eq!(reset, 5);
        let server = End::accept(listening.request(), &ConnParam::new());
        established(&server.channel);
        drop(clients);
        // There is room again.
        pair(&listening);
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_port_is_shared_with_tcp_and_listen_says_when_it_is_taken() {
    device();
    in_time("a port that TCP has", || {
        let tcp = TcpListener::bind(any_port()).unwrap();
        let addr = tcp.local_addr().unwrap();
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        id.bind_addr(addr).unwrap();
        let error = id.listen(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert_eq!(error.op(), "rdma_listen");
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        assert_eq!(error.local_addr(), Some(addr));
        let error = Listener::bind(addr).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AddrInUse);

        // Once TCP has gone the very id can listen, and it is TCP's turn to be refused.
        drop(tcp);
        id.listen(0).unwrap();
        let error = TcpListener::bind(addr).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(id);
        TcpListener::bind(addr).unwrap();
    });
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn a_listener_on_every_address_has_children_on_devices_of_two_transports() {
    device();
    in_time("a listener on every address", || {
        let listening = Listening::at(at("0.0.0.0", 0), 0);
        let error = listening.id.context().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        let port = listening.addr().port();
        for (ip, device, iwarp) in [
            (ADDR, "siw0", true),
            (ROCE, "rxe0", false),
            (ADDR_OF_SECOND, "rxe1", false),
            (ADDR, "siw0", true),
        ] {
            let mut client = End::connecting(at(ip, port));
            let request = listening.request();
            let context = request.context().unwrap();
            assert_eq!(context.name(), device);
            assert_eq!(context.is_iwarp(), iwarp);
            assert_eq!(request.local_addr(), Some(at(ip, port)));
            assert_eq!(request.peer_addr(), client.id.local_addr());
            let mut server = End::accept(request, &ConnParam::new());
            established(&client.channel);
            established(&server.channel);
            message(&mut client, &mut server, device.as_bytes());
        }
        // What one device has is of no use to a request on the other.
        let on_roce = End::client(at(ROCE, port));
        let _on_iwarp = End::connecting(at(ADDR, port));
        let request = listening.request();
        let init = rdmacm::QueuePairInit::new(&on_roce.parts.cq.handle());
        let error = request.create_qp(&on_roce.parts.pd, &init).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceMismatch, "{error}");
    });
}

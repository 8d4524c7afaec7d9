//! Making a connection, and the ways in which that fails, on soft-RoCE (rxe).

mod common;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{
    End, Listening, Parts, RESOLVE, assert_state, established, event, message, pair, quiet,
    rejected, route, routed,
};
use common::load::full;
use common::{
    ADDR, ADDR_OF_SECOND, ADDR6, PATIENCE, PlainNetdev, any_port, command, device, in_time,
    netdev_of, within,
};
use rdmacm::{
    CmId, ConnParam, Connection, Connector, ErrorKind, EventChannel, EventKind, Listener, Options,
    RejectReason,
};

/// An address of the first device's network that nobody has.
const DEAD: &str = "10.9.0.99:7471";

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

fn new_id() -> (CmId, EventChannel) {
    let channel = EventChannel::new().expect("a channel");
    (CmId::new(&channel).expect("an id"), channel)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_rejection_is_told_with_call_addresses_and_reason() {
    device();
    in_time("a rejection", || {
        let listener = Listener::bind(common::any_port()).unwrap();
        let addr = listener.local_addr();
        let client = thread::spawn(move || Connection::connect(addr).map(drop).unwrap_err());
        let request = listener.request().unwrap();
        let peer = request.peer_addr();
        request.reject(b"not today").unwrap();
        let error = client.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Rejected);
        assert_eq!(error.raw_os_error(), None, "28 is no errno");
        let rejection = error.rejection().expect("a rejection");
        assert_eq!(rejection.reason(), RejectReason::CONSUMER_DEFINED);
        assert!(rejection.private_data().starts_with(b"not today\0"));
        assert_eq!(
            error.to_string(),
            format!(
                "rdma_connect (local {peer}, peer {addr}): the peer rejected the connection: \
                 the program there said no (reason 28)"
            )
        );
        let error = std::io::Error::from(error);
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_behind_a_plain_netdev_has_no_device() {
    device();
    in_time("a plain netdev", || {
        let _plain = PlainNetdev::new();
        let (id, _channel) = new_id();
        let local = at(PlainNetdev::ADDR, 0);
        let error = id.bind_addr(local).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(error.local_addr(), Some(local));
        assert_eq!(id.local_addr(), None);
        drop(id);

        let (id, channel) = new_id();
        let peer = at(PlainNetdev::PEER, 7471);
        // The id can try it again.
        for _ in 0..2 {
            id.resolve_addr(None, peer, RESOLVE).unwrap();
            let event = event(&channel);
            let EventKind::AddrError(status) = event.kind else {
                panic!("not ADDR_ERROR: {event:?}");
            };
            assert_eq!(status.as_raw(), -libc::ENODEV);
            assert_eq!(status.errno(), Some(libc::ENODEV));
        }

        let error = Connection::connect(peer).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoDevice, "{error}");
        assert_eq!(error.op(), "rdma_resolve_addr");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(error.peer_addr(), Some(peer));
        assert!(error.to_string().contains("rdma link"), "{error}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_call_without_a_device_is_an_error_and_no_crash() {
    device();
    in_time("calls on fresh ids", || {
        let (id, channel) = new_id();
        let check = |id: &CmId, found: &str| {
            let error = id.resolve_route(RESOLVE).unwrap_err();
            assert_state(&error, "rdma_resolve_route", found);
            assert_eq!(
                id.connect(ConnParam::new()).unwrap_err().kind(),
                ErrorKind::State
            );
        };
        check(&id, "the id is new");
        assert_eq!(id.context().unwrap_err().kind(), ErrorKind::State);
        id.bind_addr(at("0.0.0.0", 0)).unwrap();
        check(&id, "the id is bound and nothing more");
        assert_eq!(id.context().unwrap_err().kind(), ErrorKind::State);

        let listening = Listening::new();
        id.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
        // Whether the event has been read makes no difference to the library, but to the phase.
        let error = id.resolve_route(RESOLVE).unwrap_err();
        assert_state(&error, "rdma_resolve_route", "still being resolved");
        event(&channel);
        let parts = Parts::of_id(&id);
        let error = id.connect(ConnParam::new()).unwrap_err();
        assert_state(&error, "rdma_connect", "address resolved, not its route");
        id.resolve_route(RESOLVE).unwrap();
        event(&channel);
        drop(parts);
        let error = id.connect(ConnParam::new()).unwrap_err();
        assert_state(&error, "rdma_connect", "a queue pair on the id");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_source_port_that_is_taken_is_named() {
    device();
    in_time("a fixed source port", || {
        let listening = Listening::new();
        let (first, first_channel) = new_id();
        first.bind_addr(any_port()).unwrap();
        let source = first.local_addr().unwrap();
        assert_ne!(source.port(), 0);
        route(&first, &first_channel, None, listening.addr());

        let (second, _channel) = new_id();
        let error = second.bind_addr(source).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert_eq!(error.op(), "rdma_bind_addr");
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        assert_eq!(error.local_addr(), Some(source));
        let error = second
            .resolve_addr(Some(source), listening.addr(), RESOLVE)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert_eq!(error.op(), "rdma_resolve_addr");
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        assert!(error.to_string().contains(&source.to_string()), "{error}");

        // Once the first is gone the port is free, for the very id that was refused.
        drop(first);
        let (third, channel) = new_id();
        route(&third, &channel, Some(source), listening.addr());
        assert_eq!(third.local_addr(), Some(source));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn connecting_to_a_dead_host_ends_with_the_time_that_was_given() {
    device();
    in_time("a dead host", || {
        let start = Instant::now();
        let connector = Connector::with(Options::new().timeout(Duration::from_secs(2)));
        let error = connector.connect(DEAD).map(drop).unwrap_err();
        let took = start.elapsed();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(error.op(), "rdma_connect");
        assert_eq!(error.peer_addr(), Some(DEAD.parse().unwrap()));
        assert_eq!(
            error.local_addr().map(|addr| addr.ip()),
            Some(ADDR.parse().unwrap())
        );
        assert!(took >= Duration::from_secs(2), "{took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
        let error = std::io::Error::from(error);
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    });
}

/// Takes 102 s on Linux 6.1, so it runs only with `RDMACM_FULL=1`.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_kernels_own_time_out_is_unreachable() {
    device();
    if !full() {
        println!("skipped: RDMACM_FULL=1 waits two minutes for it");
        return;
    }
    within(Duration::from_secs(300), "UNREACHABLE", || {
        let client = End::connecting(DEAD.parse().unwrap());
        let start = Instant::now();
        let event = client.channel.wait(Some(Duration::from_secs(250))).unwrap();
        let event = event.expect("UNREACHABLE");
        let EventKind::Unreachable(status) = event.kind else {
            panic!("not UNREACHABLE: {event:?}");
        };
        assert_eq!(status.as_raw(), -libc::ETIMEDOUT);
        println!("UNREACHABLE after {:?}", start.elapsed());
        drop(client);

        let connector = Connector::with(Options::new().timeout(Duration::from_secs(250)));
        let error = connector.connect(DEAD).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn after_a_failed_connect_an_id_is_of_no_more_use_and_says_so() {
    device();
    in_time("reusing an id", || {
        let nobody = { Listening::new().addr() };
        let client = End::connecting(nobody);
        let rejection = rejected(&client.channel);
        assert_eq!(rejection.reason(), RejectReason::INVALID_SERVICE_ID);
        let found = "the id has failed; a new attempt needs a new id";
        let error = client.id.connect(ConnParam::new()).unwrap_err();
        assert_state(&error, "rdma_connect", found);
        let error = client.id.resolve_addr(None, nobody, RESOLVE).unwrap_err();
        assert_state(&error, "rdma_resolve_addr", found);
        let error = client.id.resolve_route(RESOLVE).unwrap_err();
        assert_state(&error, "rdma_resolve_route", found);
        let error = client.id.bind_addr(any_port()).unwrap_err();
        assert_state(&error, "rdma_bind_addr", found);
        let End { parts, id, channel } = client;
        drop(parts.qp);
        let init = rdmacm::QueuePairInit::new(&parts.cq.handle());
        let error = id.create_qp(&parts.pd, &init).unwrap_err();
        assert_state(&error, "rdma_create_qp", found);
        drop((id, channel));

        // A new attempt with everything new works, and a connector may be used again.
        let connector = Connector::new();
        let error = connector.connect(nobody).map(drop).unwrap_err();
        assert_eq!(error.rejection().unwrap().reason().as_raw(), 8);
        let listener = Listener::bind(nobody).unwrap();
        let server = thread::spawn(move || listener.accept().map(drop));
        connector.connect(nobody).unwrap();
        server.join().unwrap().unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn two_devices_that_do_not_reach_each_other_time_out_with_both_addresses() {
    device();
    in_time("two devices of one host", || {
        let listening = Listening::at(at(ADDR_OF_SECOND, 0), 0);
        let (id, channel) = new_id();
        route(&id, &channel, Some(at(ADDR, 0)), listening.addr());
        assert_eq!(id.context().unwrap().name(), "rxe0");

        let connector = Connector::with(Options::new().timeout(Duration::from_secs(2)));
        let error = connector
            .bind(at(ADDR, 0))
            .connect(listening.addr())
            .map(drop)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(error.peer_addr(), Some(listening.addr()));
        let local = error.local_addr().unwrap();
        assert_eq!(local.ip(), at(ADDR, 0).ip());
        assert_ne!(local.port(), 0);
        assert!(error.to_string().contains(&local.to_string()), "{error}");
        quiet(&listening.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn two_that_connect_to_each_other_make_two_connections_or_two_rejections() {
    device();
    in_time("simultaneous connects", || {
        let [one, two] = [Listening::new(), Listening::new()];
        let to_two = End::connecting(two.addr());
        let to_one = End::connecting(one.addr());
        drop((one.request(), two.request()));
        for client in [to_two, to_one] {
            assert_eq!(rejected(&client.channel).reason().as_raw(), 28);
        }

        let mut to_two = End::connecting(two.addr());
        let mut to_one = End::connecting(one.addr());
        let mut at_one = End::accept(one.request(), &ConnParam::new());
        let mut at_two = End::accept(two.request(), &ConnParam::new());
        established(&to_two.channel);
        established(&to_one.channel);
        message(&mut to_two, &mut at_two, b"to two");
        message(&mut to_one, &mut at_one, b"to one");
        drop((to_two, at_two));
        message(&mut at_one, &mut to_one, b"the other lives on");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_is_resolved_once() {
    device();
    in_time("resolving twice", || {
        let listening = Listening::new();
        let (id, channel) = new_id();
        id.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
        let error = id
            .resolve_addr(None, listening.addr(), RESOLVE)
            .unwrap_err();
        assert_state(&error, "rdma_resolve_addr", "still being resolved");
        event(&channel);
        let error = id
            .resolve_addr(None, listening.addr(), RESOLVE)
            .unwrap_err();
        assert_state(&error, "rdma_resolve_addr", "has its address resolved");
        assert_eq!(error.peer_addr(), Some(listening.addr()));
        quiet(&channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_address_that_is_taken_away_is_no_event() {
    device();
    in_time("an address that goes", || {
        const GOING: &str = "10.9.0.7";
        let netdev = netdev_of(ADDR);
        command("ip", &["addr", "add", "10.9.0.7/24", "dev", &netdev]);
        let listening = Listening::at(at(GOING, 0), 0);
        let (client, server) = pair(&listening);
        assert_eq!(client.id.peer_addr().unwrap().ip(), at(GOING, 0).ip());
        command("ip", &["addr", "del", "10.9.0.7/24", "dev", &netdev]);
        quiet(&client.channel);
        quiet(&server.channel);
        quiet(&listening.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_status_is_told_for_what_it_is() {
    device();
    in_time("statuses", || {
        let nobody = { Listening::new().addr() };
        let error = Connection::connect(nobody).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected);
        assert_eq!(error.raw_os_error(), None, "8 is no ENOEXEC");
        let text = error.to_string();
        assert!(text.ends_with("nobody listens there (reason 8)"), "{text}");
        assert_eq!(
            std::io::Error::from(error).kind(),
            std::io::ErrorKind::ConnectionRefused
        );
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn both_ends_know_both_addresses_in_both_families() {
    device();
    in_time("addresses", || {
        for ip in [ADDR, ADDR6] {
            let listening = Listening::at(at(ip, 0), 0);
            assert_ne!(listening.addr().port(), 0);
            let (id, _channel) = new_id();
            assert_eq!((id.local_addr(), id.peer_addr()), (None, None));

            let (id, channel) = routed(listening.addr());
            let local = id.local_addr().expect("resolved");
            assert_eq!(local.ip(), at(ip, 0).ip());
            assert_ne!(local.port(), 0);
            assert_eq!(id.peer_addr(), Some(listening.addr()));
            let parts = Parts::of_id(&id);
            id.connect(ConnParam::new()).unwrap();
            let request = listening.request();
            assert_eq!(
                request.peer_addr(),
                Some(local),
                "the peer of the server is the client"
            );
            assert_eq!(request.local_addr(), Some(listening.addr()));
            let mut server = End::accept(request, &ConnParam::new());
            established(&channel);
            assert_eq!(server.id.peer_addr(), Some(local));
            assert_eq!(server.id.local_addr(), Some(listening.addr()));
            let mut client = End { parts, id, channel };
            message(&mut client, &mut server, b"over either family");
        }
        // Mixed families are refused by the kernel.
        let (id, _channel) = new_id();
        let error = id
            .resolve_addr(Some(at(ADDR6, 0)), at(ADDR, 7471), RESOLVE)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_blocking_client_and_server_need_a_thread_each_and_no_more() {
    device();
    in_time("a blocking pair", || {
        let listener = Listener::bind(any_port()).unwrap();
        let addr = listener.local_addr();
        let server = thread::spawn(move || {
            let request = listener.request_timeout(PATIENCE).unwrap().unwrap();
            let mut connection = request.accept().unwrap();
            let message = connection.recv().unwrap().unwrap();
            connection.send_buf(message).unwrap();
            connection.flush().unwrap();
            assert!(connection.recv().unwrap().is_none(), "the client has ended");
        });
        let mut connection = Connection::connect(addr).unwrap();
        connection.send(b"round").unwrap();
        assert_eq!(&connection.recv().unwrap().unwrap()[..], b"round");
        connection.close().unwrap();
        server.join().unwrap();
    });
}

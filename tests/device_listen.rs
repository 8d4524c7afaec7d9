//! Listeners, on soft-RoCE (rxe).

mod common;

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{
    End, Listening, Parts, RESOLVE, assert_state, established, event, message, quiet,
};
use common::{ADDR, ADDR_OF_SECOND, PATIENCE, any_port, device, in_time};
use rdmacm::{
    CmId, ConnParam, ConnRequest, ErrorKind, EventChannel, EventKind, Listener, QueuePairInit,
};

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

/// Reads requests until `wanted` have come.
fn requests(listening: &Listening, wanted: usize) -> Vec<ConnRequest> {
    (0..wanted).map(|_| listening.request()).collect()
}

/// The requests that can be read now.
fn requests_now(listening: &Listening) -> Vec<ConnRequest> {
    let mut requests = Vec::new();
    while let Some(event) = listening.channel.try_event().unwrap() {
        match event.kind {
            EventKind::ConnectRequest(request) => requests.push(request),
            other => panic!("not CONNECT_REQUEST: {other:?}"),
        }
    }
    requests
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_full_backlog_delays_clients_and_rejects_nobody() {
    device();
    in_time("a full backlog", || {
        // More would not be more: each time all that were dropped come again, and as many fit as before.
        const CLIENTS: usize = 3;
        let listening = Listening::at(any_port(), 1);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| End::client(listening.addr()))
            .collect();
        for client in &clients {
            client.id.connect(ConnParam::new()).unwrap();
        }
        thread::sleep(Duration::from_secs(1));
        let start = Instant::now();
        let mut all = requests_now(&listening);
        assert_eq!(all.len(), 1, "the backlog is 1");
        // rxe: the others' requests were dropped, and are sent again after some seconds.
        while all.len() < CLIENTS {
            assert!(start.elapsed() < PATIENCE, "{} of {CLIENTS}", all.len());
            thread::sleep(Duration::from_millis(20));
            all.append(&mut requests_now(&listening));
        }
        let took = start.elapsed();
        assert!(took > Duration::from_secs(1), "{took:?}");
        let servers: Vec<_> = all
            .into_iter()
            .map(|request| End::accept(request, &ConnParam::new()))
            .collect();
        for client in &clients {
            established(&client.channel);
        }
        drop(servers);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_backlog_of_0_or_of_everything_is_as_much_as_the_system_allows() {
    device();
    in_time("the largest backlog", || {
        for backlog in [0, u32::MAX] {
            let listening = Listening::at(any_port(), backlog);
            let clients: Vec<_> = (0..6).map(|_| End::connecting(listening.addr())).collect();
            let start = Instant::now();
            drop(requests(&listening, clients.len()));
            let took = start.elapsed();
            assert!(took < Duration::from_secs(2), "none had to wait: {took:?}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn over_rxe_a_port_is_not_tcps_and_is_free_as_soon_as_the_listener_is_gone() {
    device();
    in_time("ports", || {
        let tcp = TcpListener::bind(any_port()).unwrap();
        let addr = tcp.local_addr().unwrap();
        // rxe: the port space is RDMA's own. (Over iWARP this is EADDRINUSE.)
        let listening = Listening::at(addr, 0);
        drop(tcp);
        let tcp = TcpListener::bind(addr).unwrap();

        let (id, _channel) = {
            let channel = EventChannel::new().unwrap();
            (CmId::new(&channel).unwrap(), channel)
        };
        let error = id.bind_addr(addr).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        assert_eq!(error.local_addr(), Some(addr));
        let error = Listener::bind(addr).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert!(error.to_string().contains(&addr.to_string()), "{error}");

        drop(listening);
        for _ in 0..20 {
            drop(Listening::at(addr, 0));
        }
        id.bind_addr(addr).unwrap();
        drop(tcp);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_wildcard_listener_has_no_device_and_its_requests_have() {
    device();
    in_time("a wildcard listener", || {
        let listening = Listening::at(at("0.0.0.0", 0), 0);
        let error = listening.id.context().unwrap_err();
        assert_state(
            &error,
            "rdma_cm_id.verbs",
            "the id is new, or bound to every address",
        );
        let port = listening.addr().port();
        assert_ne!(port, 0);

        let mut ends = Vec::new();
        for (ip, device) in [(ADDR, "rxe0"), (ADDR_OF_SECOND, "rxe1")] {
            let client = End::connecting(at(ip, port));
            let request = listening.request();
            let context = request.context().unwrap();
            assert_eq!(context.name(), device);
            assert!(!context.is_iwarp());
            assert_eq!(request.local_addr(), Some(at(ip, port)));
            assert_eq!(request.peer_addr(), client.id.local_addr());
            ends.push((client, request));
        }
        let (second_client, second) = ends.pop().unwrap();
        let (first_client, first) = ends.pop().unwrap();
        assert_ne!(first.context().unwrap(), second.context().unwrap());

        // What belongs to the one device is refused on the other, before the call.
        let parts = Parts::of_request(&first);
        let init = QueuePairInit::new(&parts.cq.handle());
        let error = second.create_qp(&parts.pd, &init).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceMismatch, "{error}");
        drop((parts, init));

        let mut first = (first_client, End::accept(first, &ConnParam::new()));
        let mut second = (second_client, End::accept(second, &ConnParam::new()));
        for (client, server) in [&mut first, &mut second] {
            established(&client.channel);
            established(&server.channel);
            message(client, server, b"on either device");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn bind_and_listen_each_once_and_in_this_order() {
    device();
    in_time("the order of bind and listen", || {
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        let error = id.listen(0).unwrap_err();
        assert_state(&error, "rdma_listen", "the id is new");
        id.bind_addr(any_port()).unwrap();
        let addr = id.local_addr().unwrap();
        assert_ne!(addr.port(), 0);
        let error = id.bind_addr(any_port()).unwrap_err();
        assert_state(&error, "rdma_bind_addr", "the id is bound and nothing more");
        id.listen(0).unwrap();
        assert_eq!(id.local_addr(), Some(addr));
        let error = id.listen(0).unwrap_err();
        assert_state(&error, "rdma_listen", "the id listens");
        let error = id.bind_addr(any_port()).unwrap_err();
        assert_state(&error, "rdma_bind_addr", "the id listens");
        let error = id.resolve_addr(None, addr, RESOLVE).unwrap_err();
        assert_state(&error, "rdma_resolve_addr", "the id listens");

        let client = CmId::new(&channel).unwrap();
        client.resolve_addr(None, addr, RESOLVE).unwrap();
        let error = client.listen(0).unwrap_err();
        assert_state(&error, "rdma_listen", "still being resolved");
        event(&channel);
        let error = client.listen(0).unwrap_err();
        assert_state(&error, "rdma_listen", "address resolved, not its route");
        quiet(&channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_wildcard_listener_tells_its_port() {
    device();
    in_time("wildcard ports", || {
        for ip in ["0.0.0.0", "::"] {
            let listener = Listener::bind(at(ip, 0)).unwrap();
            assert_eq!(listener.local_addr().ip(), at(ip, 0).ip());
            assert_ne!(listener.local_addr().port(), 0);
            assert_eq!(listener.id().local_addr(), Some(listener.local_addr()));
        }
        let error = Listener::bind(at("10.9.0.200", 0)).unwrap_err();
        assert_eq!(error.op(), "rdma_bind_addr");
        assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL), "{error}");
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    });
}

//! Threads that meet at the places where the C library holds no lock: the crate's own locks keep them apart.
//!
//! A thread is stopped at such a place for a while, and another one does what would crash the real library meanwhile. That
//! the stand-in would have noticed is shown in `standin_strict.rs`.

mod standin;

use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{CmId, ConnParam, ErrorKind, EventChannel, EventKind};
use standin::{Client, Server, Standin, addr, next_event, small_qp};

/// How long a thread is stopped: long enough for another one to run into it.
const HELD: Duration = Duration::from_millis(100);

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_is_dropped_while_its_rejection_is_read() {
    let standin = Standin::start();
    let mut client = Client::asking(addr(1), ConnParam::new());
    let (qp, cq) = (client.qp.take(), client.cq.take());
    standin.hold("rdma_get_cm_event", HELD);
    thread::scope(|scope| {
        let reader = scope.spawn(|| next_event(&client.channel));
        standin.until_held("rdma_get_cm_event");
        let start = Instant::now();
        drop((qp, cq));
        assert!(start.elapsed() > HELD / 4, "the drop has not waited");
        assert!(matches!(
            reader.join().unwrap().kind,
            EventKind::Rejected(_)
        ));
    });
    drop(client);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_is_dropped_while_the_answer_is_read() {
    let standin = Standin::start();
    let server = Server::start();
    let mut client = Client::asking(server.addr(), ConnParam::new());
    let (made, accepted) = server.accept();
    let qp = client.qp.take();
    standin.hold("rdma_get_cm_event", HELD);
    thread::scope(|scope| {
        let reader = scope.spawn(|| next_event(&client.channel));
        standin.until_held("rdma_get_cm_event");
        drop(qp);
        assert!(matches!(
            reader.join().unwrap().kind,
            EventKind::Established(_)
        ));
    });
    drop((made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_is_dropped_during_each_call_that_reads_it() {
    for call in ["rdma_connect", "rdma_disconnect"] {
        let standin = Standin::start();
        let mut client = Client::ready(addr(1));
        if call == "rdma_disconnect" {
            client.id.connect(ConnParam::new()).unwrap();
            client.event();
        }
        let qp = client.qp.take();
        standin.hold(call, HELD);
        thread::scope(|scope| {
            let caller = scope.spawn(|| match call {
                "rdma_connect" => client.id.connect(ConnParam::new()),
                _ => client.id.disconnect(),
            });
            standin.until_held(call);
            drop(qp);
            caller.join().unwrap().unwrap();
        });
        drop(client);
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_is_dropped_during_accept() {
    let standin = Standin::start();
    let server = Server::start();
    let peer = standin.peer(server.addr(), (1, 1), b"");
    let request = server.request();
    let context = request.context().unwrap();
    let (pd, cq, qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    standin.hold("rdma_accept", HELD);
    let accepted = thread::scope(|scope| {
        let caller = scope.spawn(|| request.accept());
        standin.until_held("rdma_accept");
        drop(qp);
        caller.join().unwrap().unwrap()
    });
    assert_eq!(peer.saw(), [(5, 0)]);
    drop((accepted, cq, pd, context, server, peer));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_connecting_id_is_migrated_while_the_new_channel_is_read() {
    let standin = Standin::start();
    let server = Server::start();
    let client = Client::asking(server.addr(), ConnParam::new());
    let (made, accepted) = server.accept();
    // The answer is on the old channel and moves along.
    let new = EventChannel::new().unwrap();
    standin.hold("rdma_migrate_id", HELD);
    thread::scope(|scope| {
        let mover = scope.spawn(|| client.id.migrate(&new));
        standin.until_held("rdma_migrate_id");
        let event = next_event(&new);
        assert_eq!(event.token, client.id.token());
        assert!(
            matches!(event.kind, EventKind::Established(_)),
            "{:?}",
            event.kind
        );
        mover.join().unwrap().unwrap();
    });
    assert!(client.channel.try_event().unwrap().is_none());
    drop((made, accepted, client, new, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_address_is_resolved_while_the_channel_is_read() {
    let standin = Standin::start();
    let client = Client::new();
    standin.hold("rdma_resolve_addr", HELD);
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            client
                .id
                .resolve_addr(None, addr(7471), Duration::from_secs(1))
        });
        standin.until_held("rdma_resolve_addr");
        assert!(matches!(client.event().kind, EventKind::AddrResolved));
        caller.join().unwrap().unwrap();
    });
    drop(client);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_id_is_dropped_while_another_thread_reads_its_event() {
    let standin = Standin::start();
    standin.patience(Duration::from_secs(2));
    let client = Client::asking(addr(1), ConnParam::new());
    let channel = client.channel.clone();
    standin.hold("rdma_get_cm_event", HELD);
    thread::scope(|scope| {
        let reader = scope.spawn(|| channel.wait(Some(HELD * 2)));
        standin.until_held("rdma_get_cm_event");
        drop(client);
        // Whether the event was the last of the id or of nobody any more: nobody has waited for ever.
        reader.join().unwrap().unwrap();
    });
    drop(channel);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn connections_come_and_go_while_another_thread_reads() {
    let standin = Standin::start();
    standin.patience(Duration::from_secs(5));
    let channel = EventChannel::new().unwrap();
    // Every reading takes a moment, so that the drops meet it.
    standin.hold("rdma_get_cm_event", Duration::from_micros(50));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !matches!(
                channel.wait(Some(Duration::from_secs(1))),
                Ok(None) | Err(_)
            ) {}
        });
        for _ in 0..500 {
            let id = CmId::new(&channel).unwrap();
            id.resolve_addr(None, addr(1), Duration::from_secs(1))
                .unwrap();
            standin::until("the address is resolved", || {
                id.resolve_route(Duration::from_secs(1)).is_ok()
            });
            let context = id.context().unwrap();
            let mut made = None;
            standin::until("the route is resolved", || {
                made = small_qp(&context, |pd, init| id.create_qp(pd, init)).ok();
                made.is_some()
            });
            id.connect(ConnParam::new()).unwrap();
            drop((made, id));
        }
        reader.join().unwrap();
    });
    drop(channel);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_listener_dropped_before_its_request_gives_its_port_back_at_once() {
    let standin = Standin::start();
    let server = Server::start();
    let to = server.addr();
    let peer = standin.peer(to, (1, 1), b"");
    let request = server.request();
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < Duration::from_secs(1));
    // The port is free, and the request can still be accepted.
    standin::until("the port is free", || {
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        match id.bind_addr(to) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::AddrInUse);
                false
            }
        }
    });
    let again = Server::at(to);
    let context = request.context().unwrap();
    let (pd, cq, qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let accepted = request.accept().unwrap();
    assert_eq!(peer.saw(), [(5, 0)]);
    drop((qp, cq, pd, context, accepted, again, peer));
    standin.nothing_left();
}

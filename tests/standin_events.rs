//! Events that no device here can show, or not at the moment that matters.

mod standin;

use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    CmId, ConnParam, Connection, Connector, ErrorKind, EventChannel, EventKind, Listener, Options,
    Result,
};
use standin::{
    Client, Plan, RXE0, Server, Standin, addr, is_child_of, must_die, next_event, small_qp, until,
};

/// How long the connections here may take to be made.
const SOON: Duration = Duration::from_millis(300);

fn hasty() -> Options {
    Options::new().timeout(SOON)
}

/// Every event that has a number in a header, and one that has none.
fn codes() -> impl Iterator<Item = u32> {
    (0..20).chain([42])
}

/// The kind of error that an event is to every step that does not wait for it; `None`: the step goes on waiting, and time
/// runs out.
fn failure(code: u32) -> Option<ErrorKind> {
    match code {
        // The status is a time-out.
        1 | 3 | 6 | 7 | 17 => Some(ErrorKind::TimedOut),
        8 => Some(ErrorKind::Rejected),
        10 => Some(ErrorKind::Disconnected),
        11 => Some(ErrorKind::DeviceRemoved),
        // ADDR_CHANGE and TIMEWAIT_EXIT are news of the connection.
        14 | 15 => None,
        _ => Some(ErrorKind::Other),
    }
}

/// The event as an answer: what the library does with it is left out, where it would work on things that are not there.
fn answer(code: u32) -> Plan {
    Plan {
        event: code,
        status: if code == 8 { 28 } else { -libc::ETIMEDOUT },
        raw: code != 4,
        ..Plan::default()
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn no_answer_to_a_step_of_connecting_hangs() {
    for (step, wanted) in [
        ("rdma_resolve_addr", 0),
        ("rdma_resolve_route", 2),
        ("rdma_connect", 9),
    ] {
        for code in codes().filter(|code| *code != wanted) {
            let standin = Standin::start();
            standin.answer(step, Some(&answer(code)));
            let start = Instant::now();
            let error = Connector::with(hasty()).connect(addr(7471)).unwrap_err();
            let took = start.elapsed();
            assert!(took < SOON * 4, "{step}, event {code}: {took:?}");
            assert_eq!(error.op(), step, "event {code}");
            assert_eq!(error.peer_addr(), Some(addr(7471)), "{step}, event {code}");
            if let Some(kind) = failure(code) {
                assert_eq!(error.kind(), kind, "{step}, event {code}");
                assert!(took < SOON, "{step}, event {code}: {took:?}");
            }
            standin.nothing_left();
        }
    }
}

/// Accepts a client that never reads its answer, and gives the accepting end `event` in place of ESTABLISHED.
fn accept_gets(standin: &Standin, plan: &Plan) -> (Result<Connection>, Duration) {
    let listener = Listener::bind(addr(0)).unwrap();
    let client = Client::asking(listener.local_addr(), ConnParam::new());
    standin.record();
    thread::scope(|scope| {
        let start = Instant::now();
        let server = scope.spawn(|| listener.request().unwrap().accept_with(&hasty()));
        until("it was accepted", || {
            !standin.calls_of("rdma_accept").is_empty()
        });
        let id = standin.call_of("rdma_accept").args[0];
        standin.event(std::ptr::without_provenance_mut::<u8>(id), plan);
        let result = server.join().unwrap();
        let took = start.elapsed();
        drop(client);
        (result, took)
    })
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn no_event_makes_an_acceptor_hang() {
    for code in codes().filter(|code| *code != 9) {
        let standin = Standin::start();
        let (result, took) = accept_gets(&standin, &answer(code));
        let error = result.unwrap_err();
        assert!(took < SOON * 4, "event {code}: {took:?}");
        match failure(code) {
            Some(kind) => assert_eq!(error.kind(), kind, "event {code}"),
            None => assert_eq!(error.kind(), ErrorKind::TimedOut, "event {code}"),
        }
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_client_that_goes_before_it_reads_the_answer() {
    let standin = Standin::start();
    let server = Server::start();
    let client = Client::asking(server.addr(), ConnParam::new());
    let (made, accepted) = server.accept();
    drop(client);
    let event = next_event(&server.channel);
    assert_eq!(event.token, accepted.token());
    let EventKind::Rejected(rejection) = event.kind else {
        panic!("not rejected");
    };
    assert_eq!(rejection.reason().as_raw(), 28);
    drop((made, accepted, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_event_without_a_name_is_carried_by_its_number() {
    let standin = Standin::start();
    let client = Client::new();
    for code in [20, 42, 1000, u32::MAX] {
        standin.record();
        standin.event(client.id.as_raw(), &Plan::failed(code, -5));
        let event = client.event();
        assert_eq!(event.token, client.id.token());
        assert!(
            matches!(event.kind, EventKind::Other { code: c, status: -5 } if c == code),
            "{event:?}"
        );
        // It is acknowledged before anybody sees it.
        assert_eq!(standin.calls_of("rdma_ack_cm_event").len(), 1);
    }
    drop(client);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_an_event_does_not_have_is_not_looked_at() {
    let standin = Standin::start();
    // Of these events the union is somebody else's, or nobody's: it holds a pointer to 0x77, 200 bytes long.
    for code in [0, 1, 2, 3, 6, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 42] {
        for datagram in [false, true] {
            let channel = EventChannel::new().unwrap();
            let id = if datagram {
                CmId::new_datagram(&channel)
            } else {
                CmId::new(&channel)
            };
            let id = id.unwrap();
            let plan = Plan {
                garbage: true,
                ..Plan::event(code)
            };
            standin.event(id.as_raw(), &plan);
            assert_eq!(next_event(&channel).token, id.token());
            drop((id, channel));
        }
    }
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn events_without_data_have_an_empty_slice() {
    let standin = Standin::start();
    for code in [5, 8, 9] {
        let client = Client::new();
        let plan = Plan {
            raw: true,
            ..Plan::event(code)
        };
        standin.event(client.id.as_raw(), &plan);
        match client.event().kind {
            EventKind::ConnectResponse(answer) | EventKind::Established(answer) => {
                assert_eq!(answer.private_data(), b"");
            }
            EventKind::Rejected(rejection) => assert_eq!(rejection.private_data(), b""),
            other => panic!("{other:?}"),
        }
    }
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_end_is_dropped_by_who_reads_its_event() {
    let standin = Standin::start();
    standin.patience(Duration::from_secs(2));
    let client = Client::asking(addr(7471), ConnParam::new());
    let event = client.event();
    // The event is still in hand.
    drop(client);
    assert!(matches!(event.kind, EventKind::Rejected(_)));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_event_that_the_library_lost_is_an_error_of_the_reader() {
    const NAME: &str = "an_event_that_the_library_lost_is_an_error_of_the_reader";
    if standin::in_child().is_some() {
        let standin = Standin::start();
        standin.patience(Duration::from_millis(200));
        let client = Client::new();
        standin.lose_event(client.id.as_raw());
        standin.fail("rdma_get_cm_event", -1, libc::EBADE);
        let error = client.channel.try_event().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADE));
        assert_eq!(error.op(), "rdma_get_cm_event");
        // The end of the id then waits in C for ever, and nothing can be done about it: that is documented.
        drop(client);
        return;
    }
    must_die(NAME, "lost", "rdma_destroy_id: would wait for ever");
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn nothing_pending_and_signals_are_no_errors() {
    let standin = Standin::start();
    let client = Client::new();
    assert!(client.channel.try_event().unwrap().is_none());
    standin.event(client.id.as_raw(), &Plan::event(15));
    standin.fail_later("rdma_get_cm_event", 0, 3, -1, libc::EINTR);
    assert!(matches!(client.event().kind, EventKind::TimewaitExit));
    drop(client);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_waiting_reader_is_woken() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| channel.wait(None));
        thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        channel.wake();
        assert!(reader.join().unwrap().unwrap().is_none());
        assert!(start.elapsed() < Duration::from_millis(500));
    });
    drop(channel);
    standin.nothing_left();
}

/// Both ends of a connection: the client with an event channel of its own, the server's end on the listener's.
fn connected(standin: &Standin) -> (Client, CmId, impl Sized, Server) {
    connected_to(standin, Server::start())
}

fn connected_to(standin: &Standin, server: Server) -> (Client, CmId, impl Sized, Server) {
    let client = Client::asking(server.addr(), ConnParam::new());
    let (made, accepted) = server.accept();
    assert!(matches!(client.event().kind, EventKind::Established(_)));
    let event = next_event(&server.channel);
    assert!(matches!(event.kind, EventKind::Established(_)));
    standin.record();
    (client, accepted, made, server)
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn disconnect_may_be_called_at_any_time() {
    let standin = Standin::start();
    let early = Client::ready(addr(7471));
    early.id.disconnect().unwrap();
    drop(early);
    let (client, accepted, made, server) = connected(&standin);
    client.id.disconnect().unwrap();
    client.id.disconnect().unwrap();
    standin.fail("rdma_disconnect", -1, libc::EINVAL);
    client.id.disconnect().unwrap();
    standin.fail("rdma_disconnect", -1, libc::ENXIO);
    let error = client.id.disconnect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceRemoved);
    drop((made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_disconnect_is_answered_by_who_reads_it() {
    let standin = Standin::start();
    let (client, accepted, made, server) = connected(&standin);
    client.id.disconnect().unwrap();
    // Nothing yet: the other side has not answered.
    assert!(client.channel.try_event().unwrap().is_none());
    let event = next_event(&server.channel);
    assert_eq!(event.token, accepted.token());
    assert!(matches!(event.kind, EventKind::Disconnected(_)));
    // The answer is all: nothing is done twice.
    assert_eq!(standin.calls_of("rdma_disconnect").len(), 2);
    assert!(standin.calls_of("ibv_modify_qp").is_empty());
    accepted.disconnect().unwrap();
    assert_eq!(standin.calls_of("rdma_disconnect").len(), 2);
    assert!(matches!(client.event().kind, EventKind::Disconnected(_)));
    drop((made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_answer_to_a_disconnect_that_fails_is_left_to_a_disconnect() {
    let standin = Standin::start();
    let (client, accepted, made, server) = connected(&standin);
    client.id.disconnect().unwrap();
    standin.fail("rdma_disconnect", -1, libc::ENOMEM);
    let event = next_event(&server.channel);
    assert!(matches!(event.kind, EventKind::Disconnected(_)));
    assert!(client.channel.try_event().unwrap().is_none());
    accepted.disconnect().unwrap();
    assert!(matches!(client.event().kind, EventKind::Disconnected(_)));
    drop((made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn over_iwarp_what_is_posted_is_flushed_beside_the_disconnect() {
    let standin = Standin::start();
    let (client, accepted, made, server) =
        connected_to(&standin, Server::at("10.9.2.1:0".parse().unwrap()));
    client.id.disconnect().unwrap();
    for channel in [&server.channel, &client.channel] {
        standin.record();
        let event = next_event(channel);
        assert!(matches!(event.kind, EventKind::Disconnected(_)));
        assert_eq!(standin.calls_of("ibv_modify_qp").len(), 1);
        assert_eq!(standin.calls_of("rdma_disconnect").len(), 1);
    }
    drop((made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_removed_device_is_told_to_all_but_requests() {
    let standin = Standin::start();
    let (client, accepted, made, server) = connected(&standin);
    let other = standin.peer(server.addr(), (1, 1), b"");
    let request = server.request();
    let context = request.context().unwrap();
    let mine = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    standin.remove_device(RXE0);
    let mut removed = 0;
    while let Some(event) = server.channel.try_event().unwrap() {
        assert!(matches!(event.kind, EventKind::DeviceRemoval));
        assert!(event.token == accepted.token() || event.token == server.id.token());
        removed += 1;
    }
    assert_eq!(removed, 2);
    assert!(matches!(client.event().kind, EventKind::DeviceRemoval));
    // Later calls say so.
    let error = client.id.connect(ConnParam::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceRemoved);
    let failed = request.accept().unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::DeviceRemoved, "{failed}");
    drop((mine, context, made, accepted, client, server, other));
    standin.nothing_left();
    standin.restore_device(RXE0);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_removed_device_is_let_go_once_nothing_uses_it() {
    let standin = Standin::start();
    let (client, accepted, made, server) = connected(&standin);
    let pd = client.id.context().unwrap().alloc_pd().unwrap();
    standin.remove_device(RXE0);
    while server.channel.try_event().unwrap().is_some() {}
    client.event();
    standin.record();
    drop((made, accepted, client, server));
    // The domain is the last: it still needs the device, and the comparison that closes it comes after.
    drop(pd);
    let calls = standin.calls();
    let place = |name: &str| calls.iter().rposition(|call| call.name == name);
    assert!(
        place("rdma_get_devices") > place("ibv_dealloc_pd"),
        "{calls:?}"
    );
    standin.nothing_left();
    standin.restore_device(RXE0);
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_changed_address_leaves_the_connection() {
    let standin = Standin::start();
    let (client, accepted, made, server) = connected(&standin);
    standin.event(client.id.as_raw(), &Plan::event(14));
    assert!(matches!(client.event().kind, EventKind::AddrChange));
    assert!(standin.calls_of("ibv_modify_qp").is_empty());
    client.id.disconnect().unwrap();
    drop((made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_lost_connection_flushes_what_is_posted() {
    let standin = Standin::start();
    let (mut client, accepted, made, server) = connected(&standin);
    let context = client.id.context().unwrap();
    let qp = client.qp.as_mut().unwrap();
    let pool = qp.protection_domain().pool(2, 64).unwrap();
    qp.recv.post(pool.take().unwrap(), 7).unwrap();
    accepted.disconnect().unwrap();
    assert!(matches!(client.event().kind, EventKind::Disconnected(_)));
    let completion = client.cq.as_mut().unwrap().poll().unwrap();
    assert_eq!(completion.unwrap().status(), rdmacm::Status::FLUSHED);
    assert_eq!(pool.available(), 2);
    drop((pool, context, made, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_that_cannot_be_destroyed_keeps_all_it_may_use() {
    const NAME: &str = "a_queue_pair_that_cannot_be_destroyed_keeps_all_it_may_use";
    if !is_child_of(NAME) {
        return;
    }
    let standin = Standin::start();
    let (mut client, accepted, made, server) = connected(&standin);
    let mut qp = client.qp.take().unwrap();
    let pool = qp.protection_domain().pool(2, 64).unwrap();
    qp.recv.post(pool.take().unwrap(), 7).unwrap();
    standin.fail("ibv_destroy_qp", libc::EBUSY.into(), 0);
    let error = qp.destroy().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    // The posted buffer is not given back, and nothing that the queue pair needs is ended.
    assert_eq!(pool.available(), 1);
    drop((pool, client, made, accepted, server));
    let left: Vec<_> = standin.living().into_iter().map(|(kind, _)| kind).collect();
    for kind in [
        "id",
        "queue pair",
        "completion queue",
        "protection domain",
        "memory region",
    ] {
        assert!(left.contains(&kind), "{kind} is gone; left: {left:?}");
    }
}

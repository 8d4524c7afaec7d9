//! Ids that change their event channel, on soft-RoCE (rxe).

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::cm::{
    DEPTH, End, Listening, Parts, RESOLVE, assert_state, disconnected, established, event, message,
    pair, quiet, request, routed,
};
use common::load::{Held, patience, rounds};
use common::{PATIENCE, device, in_time, within};
use rdmacm::{CmId, ConnParam, EventChannel, EventKind};

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_event_that_is_kept_does_not_hold_up_a_migration() {
    device();
    in_time("migrating beside a kept event", || {
        let listening = Listening::new();
        let old = EventChannel::new().unwrap();
        let id = CmId::new(&old).unwrap();
        id.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
        let kept = event(&old);
        assert!(matches!(kept.kind, EventKind::AddrResolved), "{kept:?}");
        let new = EventChannel::new().unwrap();
        id.migrate(&new).unwrap();
        id.resolve_route(RESOLVE).unwrap();
        let event = event(&new);
        assert!(matches!(event.kind, EventKind::RouteResolved), "{event:?}");
        assert_eq!(event.token, id.token());
        assert!(old.try_event().unwrap().is_none());
        // Where it is already it may go again.
        id.migrate(&new).unwrap();
        drop(kept);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn events_that_nobody_has_read_move_along() {
    device();
    in_time("migrating with events queued", || {
        let listening = Listening::new();
        let old = EventChannel::new().unwrap();
        let id = CmId::new(&old).unwrap();
        id.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
        // The event is there, and unread.
        thread::sleep(Duration::from_millis(300));
        let new = EventChannel::new().unwrap();
        id.migrate(&new).unwrap();
        assert!(old.try_event().unwrap().is_none());
        let event = event(&new);
        assert!(matches!(event.kind, EventKind::AddrResolved), "{event:?}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn after_a_migration_events_come_on_the_new_channel_only() {
    device();
    in_time("migrating a connecting id", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let new = EventChannel::new().unwrap();
        client.id.migrate(&new).unwrap();

        let request = listening.request();
        let server_channel = EventChannel::new().unwrap();
        request.migrate(&server_channel).unwrap();
        let parts = Parts::of_request(&request);
        let id = request.accept().unwrap();
        established(&new);
        established(&server_channel);
        quiet(&client.channel);
        assert!(listening.channel.try_event().unwrap().is_none());

        // It outlives the listener and its channel, and says goodbye on the new one.
        drop(listening);
        assert!(new.try_event().unwrap().is_none());
        let mut server = End {
            parts,
            id,
            channel: server_channel,
        };
        let mut client = End {
            channel: new,
            ..client
        };
        message(&mut client, &mut server, b"on new channels");
        client.id.disconnect().unwrap();
        disconnected(&server.channel);
        disconnected(&client.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_established_connection_may_migrate_back_and_forth() {
    device();
    in_time("migrating an established id", || {
        let listening = Listening::new();
        let (client, server) = pair(&listening);
        let other = EventChannel::new().unwrap();
        for _ in 0..50 {
            server.id.migrate(&other).unwrap();
            server.id.migrate(&server.channel).unwrap();
        }
        server.id.migrate(&other).unwrap();
        client.id.disconnect().unwrap();
        disconnected(&other);
        quiet(&server.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_listener_stays_where_it_is() {
    device();
    in_time("migrating a listener", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        // A request is queued: this is the one that the library would lose.
        thread::sleep(Duration::from_millis(300));
        let new = EventChannel::new().unwrap();
        let error = listening.id.migrate(&new).unwrap_err();
        assert_state(&error, "rdma_migrate_id", "the id listens");
        let _server = End::accept(request(&listening.channel), &ConnParam::new());
        established(&client.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_waiting_reader_is_woken_by_events_that_move_along() {
    device();
    in_time("a waiting reader", || {
        let listening = Listening::new();
        let old = EventChannel::new().unwrap();
        let new = EventChannel::new().unwrap();
        let id = CmId::new(&old).unwrap();
        let reader = {
            let new = new.clone();
            thread::spawn(move || new.wait(Some(Duration::from_secs(5))).unwrap())
        };
        id.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
        // The event is queued on the old channel, and the reader waits on the new one.
        thread::sleep(Duration::from_millis(500));
        id.migrate(&new).unwrap();
        let woken = reader.join().unwrap();
        let left = new.try_event().unwrap();
        assert!(woken.is_some(), "the reader slept on, beside {left:?}");
    });
}

/// Without both channels' gates, 10 of 1,500 rounds end in CONNECT_ERROR.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_connecting_id_migrates_while_the_new_channel_is_read() {
    device();
    within(patience(), "migrations", || {
        let listening = Listening::new();
        let once = |round: usize| {
            let (id, old) = routed(listening.addr());
            let parts = Parts::of_id(&id);
            let new = EventChannel::new().unwrap();
            let reader = {
                let new = new.clone();
                // It never sleeps, so that it is inside the library as often as can be.
                thread::spawn(move || {
                    let start = Instant::now();
                    while start.elapsed() < PATIENCE {
                        match new.try_event().unwrap().map(|event| event.kind) {
                            None => thread::yield_now(),
                            Some(EventKind::Established(answer)) => return answer,
                            Some(other) => panic!("not ESTABLISHED: {other:?}"),
                        }
                    }
                    panic!("no event")
                })
            };
            id.connect(ConnParam::new()).unwrap();
            let request = listening.request();
            let server_parts = Parts::of_request(&request);
            // The answer is on its way when the id moves.
            let server = request.accept().unwrap();
            if round % 3 == 1 {
                thread::yield_now();
            }
            id.migrate(&new).unwrap();
            let answer = reader.join().expect("ESTABLISHED and nothing else");
            assert_eq!(answer.private_data().len(), 196, "round {round}");
            assert!(old.try_event().unwrap().is_none(), "round {round}");
            established(&listening.channel);
            drop((id, parts, server, server_parts));
        };
        once(0);
        let held = Held::now();
        let rounds = rounds(200);
        for round in 0..rounds {
            once(round);
        }
        held.is_back("migrated ids");
        println!("{rounds} migrations, queue pairs of depth {DEPTH}");
    });
}

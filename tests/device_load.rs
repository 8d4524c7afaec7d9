//! Many connections, and two threads at one, on soft-RoCE (rxe). `RDMACM_ROUNDS` sets how many rounds each test does.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{
    End, Listening, Parts, established, event, message, pair, rejected, until_clients_are_gone,
};
use common::load::{Held, patience, rounds};
use common::{device, eventually, in_time, within};
use rdmacm::{
    ConnParam, Connection, ErrorKind, EventChannel, EventKind, Listener, Options, Result,
};

/// A moment that is another in each round, up to half a millisecond or so: spinning, since a sleep is never that short.
fn moment(round: usize) {
    let until = Instant::now() + Duration::from_micros((round as u64 * 37) % 600);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn sixty_four_clients_at_once_against_one_acceptor_are_all_established() {
    device();
    within(Duration::from_secs(60), "64 clients", || {
        const CLIENTS: usize = 64;
        let listening = Listening::new();
        let addr = listening.addr();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                thread::spawn(move || {
                    let client = End::connecting(addr);
                    established(&client.channel);
                    client
                })
            })
            .collect();
        // Parts and ids of those accepted: requests and ESTABLISHED of all come on one channel, in any order.
        let mut accepted = Vec::new();
        let mut up = HashSet::new();
        while up.len() < CLIENTS {
            let event = event(&listening.channel);
            match event.kind {
                EventKind::ConnectRequest(request) => {
                    let parts = Parts::of_request(&request);
                    accepted.push((parts, request.accept().unwrap()));
                }
                EventKind::Established(_) => assert!(up.insert(event.token), "established twice"),
                other => panic!("{other:?}"),
            }
        }
        let tokens: HashSet<_> = accepted.iter().map(|(_, id)| id.token()).collect();
        assert_eq!(tokens, up);
        assert_eq!(accepted.len(), CLIENTS);
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn sixty_four_blocking_clients_at_once_are_all_served() {
    device();
    within(Duration::from_secs(60), "64 blocking clients", || {
        let listener = Listener::bind(common::any_port()).unwrap();
        let addr = listener.local_addr();
        let clients: Vec<_> = (0..64_u8)
            .map(|number| {
                thread::spawn(move || {
                    let mut connection = Connection::connect(addr).unwrap();
                    connection.send(&[number]).unwrap();
                    let answer = connection.recv().unwrap().expect("an answer");
                    assert_eq!(&answer[..], [number]);
                })
            })
            .collect();
        for _ in 0..64 {
            let mut connection = listener.accept().unwrap();
            let message = connection.recv().unwrap().expect("a message");
            connection.send_buf(message).unwrap();
            connection.flush().unwrap();
        }
        for client in clients {
            client.join().unwrap();
        }
    });
}

/// Reads the events of a channel on a thread of its own, without a pause, until told to stop.
struct Reader {
    stop: Arc<AtomicBool>,
    seen: Arc<AtomicUsize>,
    thread: thread::JoinHandle<Result<Vec<EventKind>>>,
}

impl Reader {
    fn of(channel: &EventChannel) -> Self {
        let channel = channel.clone();
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let thread = {
            let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
            thread::spawn(move || {
                let mut kinds = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match channel.try_event()? {
                        Some(event) => {
                            kinds.push(event.kind);
                            seen.fetch_add(1, Ordering::Relaxed);
                        }
                        None => thread::yield_now(),
                    }
                }
                Ok(kinds)
            })
        };
        Self { stop, seen, thread }
    }

    /// Waits until an event was read.
    fn has_read(&self) {
        eventually("an event", || self.seen.load(Ordering::Relaxed) > 0);
    }

    fn finish(self) -> Vec<EventKind> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic").expect("no error")
    }
}

/// The C library alone crashes within 400 rounds: it moves the queue pair on while it reads REJECTED.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_queue_pair_is_destroyed_while_another_thread_reads_rejected() {
    device();
    within(patience(), "destroying beside a reader", || {
        let nobody = { Listening::new().addr() };
        let once = |round: usize| {
            let End { parts, id, channel } = End::client(nobody);
            let reader = Reader::of(&channel);
            id.connect(ConnParam::new()).unwrap();
            moment(round);
            parts.qp.destroy().unwrap();
            // In every other round the id goes at once, too.
            if round % 2 == 0 {
                reader.has_read();
            }
            drop(id);
            for kind in reader.finish() {
                assert!(matches!(kind, EventKind::Rejected(_)), "{kind:?}");
            }
        };
        once(0);
        let held = Held::now();
        let rounds = rounds(300);
        for round in 0..rounds {
            once(round);
        }
        held.is_back("destroyed queue pairs");
        println!("{rounds} rounds against REJECTED");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_queue_pair_is_destroyed_while_another_thread_reads_the_answer() {
    device();
    within(patience(), "destroying beside a reader", || {
        let listening = Listening::new();
        let once = |round: usize| {
            let End { parts, id, channel } = End::connecting(listening.addr());
            let server = End::accept(listening.request(), &ConnParam::new());
            let reader = Reader::of(&channel);
            moment(round);
            parts.qp.destroy().unwrap();
            if round % 2 == 0 {
                reader.has_read();
            }
            drop(id);
            for kind in reader.finish() {
                // Without its queue pair the answer is the program's to deal with.
                let known = matches!(
                    kind,
                    EventKind::Established(_)
                        | EventKind::ConnectResponse(_)
                        | EventKind::ConnectError(_)
                );
                assert!(known, "{kind:?}");
            }
            drop(server);
        };
        once(0);
        let held = Held::now();
        let rounds = rounds(300);
        for round in 0..rounds {
            once(round);
        }
        held.is_back("destroyed queue pairs");
        println!("{rounds} rounds against CONNECT_RESPONSE");
    });
}

/// The C library alone crashes although nobody reads events: both look at the id's queue pair.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_queue_pair_is_destroyed_while_another_thread_disconnects() {
    device();
    within(patience(), "destroying beside a disconnect", || {
        let listening = Listening::new();
        let once = |round: usize| {
            let (client, server) = pair(&listening);
            let End { parts, id, channel } = client;
            let qp = parts.qp;
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..20 {
                        id.disconnect().unwrap();
                    }
                });
                scope.spawn(|| {
                    moment(round % 8);
                    qp.destroy().unwrap();
                });
            });
            drop((id, channel, server));
        };
        once(0);
        let held = Held::now();
        let rounds = rounds(300);
        for round in 0..rounds {
            once(round);
        }
        held.is_back("disconnected queue pairs");
        println!("{rounds} rounds against rdma_disconnect");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn one_side_drops_while_the_other_disconnects() {
    device();
    within(patience(), "dropping beside DISCONNECTED", || {
        let listening = Listening::new();
        let once = |round: usize| {
            let (client, server) = pair(&listening);
            let reader = Reader::of(&server.channel);
            thread::scope(|scope| {
                scope.spawn(|| client.id.disconnect().unwrap());
                scope.spawn(move || {
                    moment(round);
                    drop(server);
                });
            });
            let kinds = reader.finish();
            assert!(kinds.len() <= 1, "{kinds:?}");
            for kind in kinds {
                assert!(matches!(kind, EventKind::Disconnected(_)), "{kind:?}");
            }
            drop(client);
        };
        once(0);
        let held = Held::now();
        for round in 0..rounds(150) {
            once(round);
        }
        held.is_back("dropped connections");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_listener_is_dropped_while_clients_come() {
    device();
    within(patience(), "dropping a busy listener", || {
        let once = |round: usize| {
            let listening = Listening::new();
            let clients: Vec<_> = (0..3).map(|_| End::client(listening.addr())).collect();
            let read = round % 4;
            thread::scope(|scope| {
                for client in &clients {
                    scope.spawn(|| client.id.connect(ConnParam::new()).unwrap());
                }
                moment(round);
                // Some requests are read and dropped, some are queued, some are still on their way.
                for _ in 0..read {
                    drop(listening.channel.try_event().unwrap());
                }
                drop(listening);
            });
            for client in &clients {
                let reason = rejected(&client.channel).reason().as_raw();
                assert!(matches!(reason, 8 | 28), "round {round}: {reason}");
            }
        };
        once(0);
        let held = Held::now();
        for round in 0..rounds(100).min(2000) {
            once(round);
        }
        held.is_back("dropped listeners");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn clients_that_are_gone_before_accept_never_stop_the_listener() {
    device();
    within(patience(), "clients that give up", || {
        let listening = Listening::new();
        let once = || {
            let client = End::connecting(listening.addr());
            let request = listening.request();
            let parts = Parts::of_request(&request);
            drop(client);
            until_clients_are_gone(&listening);
            let error = request.accept().map(drop).unwrap_err();
            assert_eq!(error.error().kind(), ErrorKind::PeerGone, "{error}");
            drop(parts);
            let (mut client, mut server) = pair(&listening);
            message(&mut client, &mut server, b"goes on");
        };
        once();
        let held = Held::now();
        for _ in 0..rounds(15).min(300) {
            once();
        }
        held.is_back("abandoned requests");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_blocking_accept_that_fails_leaves_nothing() {
    device();
    in_time("failing accepts", || {
        let listener = Listener::bind(common::any_port()).unwrap();
        let once = || {
            let client = End::connecting(listener.local_addr());
            let options = Options::new().timeout(Duration::from_millis(100));
            let request = listener.request().unwrap();
            // Nobody reads the client's events, so the connection does not come to stand.
            let error = request.accept_with(&options).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            assert_eq!(error.op(), "rdma_accept");
            drop(client);
        };
        once();
        let held = Held::now();
        for _ in 0..20 {
            once();
        }
        held.is_back("accepts that timed out");
    });
}

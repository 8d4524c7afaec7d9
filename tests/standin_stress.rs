//! Threads that do anything to anything: every call at any time, each reading of an event by whoever comes first.
//!
//! Threads are held for a moment wherever the C library holds no lock, so that they meet. The stand-in ends the process when
//! the crate lets them; a monitor does when no thread gets any further.

mod standin;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    CmId, CompletionQueue, ConnParam, ConnRequest, EventChannel, EventKind, ProtectionDomain,
    QueuePair,
};
use standin::{Server, Standin, small_qp};

/// How long it goes on: `STANDIN_STRESS` seconds, or 5.
fn time() -> Duration {
    let seconds = std::env::var("STANDIN_STRESS").map_or(5, |seconds| {
        seconds.parse().expect("STANDIN_STRESS is a number")
    });
    Duration::from_secs(seconds)
}

const THREADS: u64 = 6;
const SLOTS: usize = 8;
const CHANNELS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(1);

/// Numbers without a pattern that matters.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

type Made = (QueuePair, CompletionQueue, ProtectionDomain);

/// An end of a connection, shared by all threads.
struct End {
    id: CmId,
    made: Mutex<Option<Made>>,
}

/// What all threads share.
struct Playground {
    channels: Vec<EventChannel>,
    ends: Vec<Mutex<Option<Arc<End>>>>,
    requests: Mutex<VecDeque<ConnRequest>>,
    listener: Mutex<Arc<Server>>,
    steps: AtomicU64,
    established: AtomicU64,
    disconnected: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Playground {
    fn channel(&self, dice: &mut Dice) -> &EventChannel {
        &self.channels[dice.roll(CHANNELS)]
    }

    fn end(&self, dice: &mut Dice) -> Option<Arc<End>> {
        lock(&self.ends[dice.roll(SLOTS)]).clone()
    }

    fn put(&self, dice: &mut Dice, id: CmId, made: Option<Made>) {
        let end = Arc::new(End {
            id,
            made: Mutex::new(made),
        });
        let old = lock(&self.ends[dice.roll(SLOTS)]).replace(end);
        drop(old);
    }

    fn step(&self, dice: &mut Dice) {
        count(&self.steps);
        match dice.roll(48) {
            0 => {
                let id = CmId::new(self.channel(dice)).unwrap();
                let to = lock(&self.listener).addr();
                id.resolve_addr(None, to, PATIENCE).unwrap();
                self.put(dice, id, None);
            }
            1..=16 => {
                let server = Arc::clone(&lock(&self.listener));
                let channel = match dice.roll(4) {
                    0 => &server.channel,
                    _ => self.channel(dice),
                };
                let channel = channel.clone();
                if let Some(event) = channel.try_event().unwrap() {
                    match event.kind {
                        EventKind::ConnectRequest(request) => {
                            lock(&self.requests).push_back(request);
                        }
                        EventKind::Established(_) => count(&self.established),
                        EventKind::Disconnected(_) => count(&self.disconnected),
                        _ => {}
                    }
                }
            }
            17..=21 => {
                let request = lock(&self.requests).pop_front();
                if let Some(request) = request {
                    self.answer(dice, request);
                }
            }
            22 => {
                let old = lock(&self.ends[dice.roll(SLOTS)]).take();
                drop(old);
            }
            23 if dice.roll(8) == 0 => {
                let new = Arc::new(Server::start());
                let old = std::mem::replace(&mut *lock(&self.listener), new);
                drop(old);
            }
            _ => {
                if let Some(end) = self.end(dice) {
                    self.work_on(dice, &end);
                }
            }
        }
    }

    fn answer(&self, dice: &mut Dice, request: ConnRequest) {
        let context = request.context().unwrap();
        match dice.roll(6) {
            0 => drop(request),
            1 => request.reject(b"no").unwrap(),
            _ => {
                if dice.roll(2) == 0 {
                    request.migrate(self.channel(dice)).unwrap();
                }
                // The peer may have gone.
                let Ok((pd, cq, qp)) = small_qp(&context, |pd, init| request.create_qp(pd, init))
                else {
                    return;
                };
                if let Ok(id) = request.accept() {
                    self.put(dice, id, Some((qp, cq, pd)));
                }
            }
        }
    }

    /// Any call, whether it is its turn or not; more often those that lead on.
    fn work_on(&self, dice: &mut Dice, end: &End) {
        match dice.roll(20) {
            0..=11 => {
                let _ = end.id.resolve_route(PATIENCE);
                if end.id.context().is_ok() && lock(&end.made).is_none() {
                    self.make(end);
                }
                let _ = end.id.connect(ConnParam::new());
            }
            12 => self.make(end),
            13 => drop(end.id.disconnect()),
            14 => {
                let made = lock(&end.made).take();
                drop(made);
            }
            15 | 16 => end.id.migrate(self.channel(dice)).unwrap(),
            _ => drop(format!("{:?}", end.id)),
        }
    }

    fn make(&self, end: &End) {
        let Ok(context) = end.id.context() else {
            return;
        };
        let made = small_qp(&context, |pd, init| end.id.create_qp(pd, init));
        if let Ok((pd, cq, qp)) = made {
            let old = lock(&end.made).replace((qp, cq, pd));
            drop(old);
        }
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn anything_at_any_time() {
    let standin = Standin::start();
    for call in [
        "rdma_get_cm_event",
        "rdma_accept",
        "rdma_connect",
        "rdma_disconnect",
        "rdma_migrate_id",
        "rdma_resolve_addr",
    ] {
        standin.hold(call, Duration::from_micros(1));
    }
    let playground = Playground {
        channels: (0..CHANNELS)
            .map(|_| EventChannel::new().unwrap())
            .collect(),
        ends: (0..SLOTS).map(|_| Mutex::default()).collect(),
        requests: Mutex::default(),
        listener: Mutex::new(Arc::new(Server::start())),
        steps: AtomicU64::new(0),
        established: AtomicU64::new(0),
        disconnected: AtomicU64::new(0),
    };
    let (start, time) = (Instant::now(), time());
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let playground = &playground;
            scope.spawn(move || {
                let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                while start.elapsed() < time {
                    playground.step(&mut dice);
                }
            });
        }
        let mut before = 0;
        while start.elapsed() < time {
            thread::sleep(Duration::from_secs(1));
            let now = playground.steps.load(Ordering::Relaxed);
            if now == before && start.elapsed() + PATIENCE < time {
                eprintln!("no thread gets any further after {now} steps");
                std::process::abort();
            }
            before = now;
        }
    });
    let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} steps, {} times established, {} times disconnected",
        seen(&playground.steps),
        seen(&playground.established),
        seen(&playground.disconnected)
    );
    assert!(seen(&playground.established) > 0 && seen(&playground.disconnected) > 0);
    drop(playground);
    standin.nothing_left();
}

//! The steps of a connection, and the table of how long each took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A step. Some end with the call, others with an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    CreateId,
    Bind,
    ResolveAddr,
    ResolveRoute,
    CreateQp,
    Connect,
    Disconnect,
    Destroy,
}

/// How many steps there are.
pub(crate) const STEPS: usize = 8;

/// Each step as the table has it.
const NAMES: [(Step, &str); STEPS] = [
    (Step::CreateId, "create id"),
    (Step::Bind, "bind addr"),
    (Step::ResolveAddr, "resolve addr"),
    (Step::ResolveRoute, "resolve route"),
    (Step::CreateQp, "create qp"),
    (Step::Connect, "connect"),
    (Step::Disconnect, "disconnect"),
    (Step::Destroy, "destroy"),
];

/// When the steps of one connection started and ended, in nanoseconds. Two threads write it.
#[derive(Default)]
pub(crate) struct Times([[AtomicU64; 2]; STEPS]);

/// Time since the program started.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    fn now(self) -> u64 {
        // Never 0, which is for what has not happened.
        u64::try_from(self.0.elapsed().as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

impl Times {
    pub(crate) fn start(&self, step: Step, clock: Clock) {
        self.0[step as usize][0].store(clock.now(), Ordering::Relaxed);
    }

    pub(crate) fn end(&self, step: Step, clock: Clock) {
        self.0[step as usize][1].store(clock.now(), Ordering::Relaxed);
    }

    /// How long a step took, in nanoseconds, if it has happened.
    fn took(&self, step: Step) -> Option<u64> {
        let [start, end] = &self.0[step as usize];
        let (start, end) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        (start != 0 && end != 0).then(|| end.saturating_sub(start))
    }
}

/// How long each step took for all connections.
pub(crate) type Totals = [Duration; STEPS];

/// Prints the table.
pub(crate) fn print(totals: &Totals, times: &[Times], bound: bool) {
    println!("step              total ms     max ms     min us  us / conn");
    let connections = times.len() as f64;
    for (step, name) in NAMES {
        if step == Step::Bind && !bound {
            continue;
        }
        let total = totals[step as usize].as_nanos() as f64;
        let each = || times.iter().filter_map(|times| times.took(step));
        let (min, max) = (each().min(), each().max());
        println!(
            "{name:<13}: {:11.2}{:11.2}{:11.2}{:11.2}",
            total / 1e6,
            max.unwrap_or(0) as f64 / 1e6,
            // Where nothing has happened, as large as it is in the program in C.
            min.map_or(1e9, |min| min as f64 / 1e3),
            total / 1e3 / connections,
        );
    }
}

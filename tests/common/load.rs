//! How much the load tests do: a little by default, everything when the environment says so.

use std::thread;
use std::time::{Duration, Instant};

use super::raw::resource_counts;
use super::{PATIENCE, descriptors, resources};

/// How many rounds a load test does: `RDMACM_ROUNDS`, or `default`.
pub(crate) fn rounds(default: usize) -> usize {
    number("RDMACM_ROUNDS").unwrap_or(default)
}

/// Whether `RDMACM_FULL` asks for what takes minutes: every drop order, the kernel's own time-outs.
pub(crate) fn full() -> bool {
    std::env::var_os("RDMACM_FULL").is_some_and(|value| value != "0")
}

/// How long a load test may take: a few minutes, or half an hour when the environment has asked for more.
pub(crate) fn patience() -> Duration {
    if full() || number("RDMACM_ROUNDS").is_some() {
        Duration::from_secs(1800)
    } else {
        Duration::from_secs(240)
    }
}

fn number(name: &str) -> Option<usize> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|error| panic!("{name}={value}: {error}")))
}

/// What this process and the kernel hold for it, to be compared after everything was dropped.
///
/// librdmacm keeps what it opened once, so take it after the first round.
#[derive(PartialEq, Eq)]
pub(crate) struct Held {
    resources: Vec<u8>,
    descriptors: usize,
}

impl Held {
    pub(crate) fn now() -> Self {
        Self {
            resources: resource_counts(),
            descriptors: descriptors(std::process::id()),
        }
    }

    /// Waits until as much is held as then. Ends that others wait for, such as a listener's, may take a moment.
    pub(crate) fn is_back(&self, what: &str) {
        let start = Instant::now();
        let mut now = Self::now();
        while now != *self {
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: {} descriptors and not {}; {}",
                now.descriptors,
                self.descriptors,
                resources()
            );
            thread::sleep(Duration::from_millis(1));
            now = Self::now();
        }
    }
}

/// Numbers that look random and are the same in every run (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

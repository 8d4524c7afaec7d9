//! What one loop of `benches/overhead` costs.

use std::{
    net::IpAddr,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::callgrind::{self, Executed};
use crate::{setup, standin};

/// What a loop was run for, after a shorter run that nobody counts. The program in `benches/overhead` knows the same.
pub(crate) const COUNTS: [u64; 2] = [1600, 3200];

/// The function of the program that waits for a device, and is not counted.
const WAIT: &str = "wait_for_device";

/// The program, and where it runs.
#[derive(Debug)]
pub(crate) struct Bench {
    program: PathBuf,
    behind: Behind,
    output: PathBuf,
}

/// What is behind the loops.
#[derive(Debug)]
enum Behind {
    /// The provider that does nothing, on the stand-in in this folder.
    Nothing(PathBuf),
    /// The device with this address.
    Device(IpAddr),
}

/// What a loop costs.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    /// Instructions for one request.
    pub(crate) instructions: f64,
    /// Allocations beyond those for half as many requests.
    pub(crate) allocations: i64,
    /// What the longer run has executed more often.
    pub(crate) executed: Vec<Executed>,
}

impl Cost {
    /// What is wrong, if it has allocated.
    pub(crate) fn allocated(&self, name: &str) -> Option<String> {
        (self.allocations != 0).then(|| {
            format!(
                "{name}: {} allocations in {} requests; there may be none",
                self.allocations,
                COUNTS[1] - COUNTS[0]
            )
        })
    }
}

impl Bench {
    /// Builds the program on the stand-in.
    pub(crate) fn on_standin() -> Result<Self> {
        let libraries = standin::build()?;
        let program = standin::release(&libraries, "overhead")?;
        let output = setup::workspace().join("target/overhead");
        Self::new(program, Behind::Nothing(libraries), output)
    }

    /// `program`, built with the real libraries, over the device with this address.
    pub(crate) fn on_device(program: PathBuf, address: IpAddr, output: PathBuf) -> Result<Self> {
        Self::new(program, Behind::Device(address), output)
    }

    fn new(program: PathBuf, behind: Behind, output: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&output)
            .with_context(|| format!("cannot make {}", output.display()))?;
        Ok(Self {
            program,
            behind,
            output,
        })
    }

    /// Runs one loop under callgrind.
    pub(crate) fn cost(&self, symbol: &str) -> Result<Cost> {
        let out = self.output.join(symbol);
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--tool=callgrind", "--dump-instr=yes"])
            .args(["--compress-pos=no", "--compress-strings=no"])
            .arg(format!("--toggle-collect={symbol}"))
            .arg(format!("--toggle-collect={WAIT}"))
            .arg(format!("--dump-after={symbol}"))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(&self.program)
            .arg(symbol);
        match &self.behind {
            Behind::Nothing(libraries) => command.env("LD_LIBRARY_PATH", libraries),
            Behind::Device(address) => command.arg(address.to_string()),
        };
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run valgrind")?;
        if !output.status.success() {
            bail!(
                "the loop {symbol} ended with {}; what it said is above",
                output.status
            );
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let [less, more] = COUNTS.map(|count| {
            Said::find(&said, count).with_context(|| {
                format!("the loop {symbol} has not said how {count} requests went")
            })
        });
        let (less, more) = (less?, more?);
        let empty = less.empty_polls + more.empty_polls;
        if empty != 0 {
            bail!("the loop {symbol} polled {empty} times in vain, which its figure would include");
        }
        let allocations = more.allocations - less.allocations;
        // The first part is the run that nobody counts.
        let [less, more] = [2, 3].map(|part| {
            let file = out.with_extension(part.to_string());
            callgrind::read(&file)
                .with_context(|| format!("cannot read what callgrind wrote, {}", file.display()))
        });
        let executed = more?.beyond(&less?);
        let sum: u64 = executed.iter().map(|one| one.times).sum();
        if sum == 0 {
            bail!("callgrind has counted nothing in the loop {symbol}");
        }
        // CAST: far below 2^52.
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let instructions = sum as f64 / (COUNTS[1] - COUNTS[0]) as f64;
        Ok(Cost {
            instructions,
            allocations,
            executed,
        })
    }
}

/// What the program said of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    allocations: i64,
    empty_polls: u64,
}

impl Said {
    /// Finds the line `COUNT ALLOCATIONS EMPTY_POLLS` of the run for `count` requests.
    fn find(said: &str, count: u64) -> Option<Self> {
        let of_run = |line: &str| {
            let mut words = line.split(' ');
            let first: u64 = words.next()?.parse().ok()?;
            let run = Self {
                allocations: words.next()?.parse().ok()?,
                empty_polls: words.next()?.parse().ok()?,
            };
            (first == count && words.next().is_none()).then_some(run)
        };
        said.lines().find_map(of_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_run_is_found_and_read() {
        let said = "32 3 1\n1600 5 0\n3200 1605 2\n";
        let of = |count| Said::find(said, count).map(|run| (run.allocations, run.empty_polls));
        assert_eq!(of(1600), Some((5, 0)));
        assert_eq!(of(3200), Some((1605, 2)));
        assert_eq!(of(320), None);
        assert_eq!(Said::find("1600 5\n", 1600), None);
        assert_eq!(Said::find("1600 5 -\n1600 5 0 0\n", 1600), None);
    }

    #[test]
    fn what_is_allocated_in_the_longer_run_alone_is_a_fault() {
        let mut cost = Cost {
            instructions: 1.0,
            allocations: 0,
            executed: Vec::new(),
        };
        assert_eq!(cost.allocated("send"), None);
        cost.allocations = 1600;
        assert_eq!(
            cost.allocated("send").unwrap(),
            "send: 1600 allocations in 1600 requests; there may be none"
        );
    }
}

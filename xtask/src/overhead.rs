//! `cargo xtask overhead`: what post and poll cost beyond plain C, in instructions.
//!
//! `benches/overhead` has the loops, in C and in Rust, and a provider that does nothing. It is built with the workspace's
//! release profile, linked against the stand-in for the C libraries, and each loop runs under callgrind, which counts: the
//! difference between 3200 and 1600 requests, by 1600, is what one request costs. The figure repeats exactly.

mod callgrind;
mod disassembly;
mod rows;

use std::{
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail};

use self::{
    callgrind::Executed,
    disassembly::Disassemblies,
    rows::{ROWS, Row, Verdict, WAYS},
};
use crate::{setup, standin};

/// Count the instructions of post and poll beside plain C, against a provider that does nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these rows
    rows: Vec<String>,
    /// Print what one of ours executes, with how often a request executes it
    #[arg(long)]
    listing: bool,
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
}

/// What a loop was run for, after a shorter run that nobody counts. The program in `benches/overhead` knows the same.
const COUNTS: [u64; 2] = [1600, 3200];

/// The program, and where it runs.
#[derive(Debug)]
struct Bench {
    program: PathBuf,
    libraries: PathBuf,
    output: PathBuf,
}

/// What a loop costs.
#[derive(Debug, Clone)]
struct Cost {
    /// Instructions for one request.
    instructions: f64,
    /// Allocations beyond those for half as many requests.
    allocations: i64,
    /// What the longer run has executed more often.
    executed: Vec<Executed>,
}

/// Measures, prints the table, and says what is out of bounds, one line each. The status is 0 when every row is in bounds.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    Ok(if measure(args)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// All rows, as a check: what is out of bounds was said, one line each.
pub(crate) fn check(install: bool) -> Result<()> {
    let all = Args {
        rows: Vec::new(),
        listing: false,
        install,
    };
    if !measure(&all)? {
        bail!("post and poll cost more than they may");
    }
    Ok(())
}

/// Whether every row is in bounds.
fn measure(args: &Args) -> Result<bool> {
    setup::ensure(&setup::overhead_needs(), setup::consent(args.install))?;
    for name in &args.rows {
        if !ROWS.iter().any(|row| row.key == name) {
            let known: Vec<&str> = ROWS.iter().map(|row| row.key).collect();
            bail!(
                "there is no row `{name}`; the rows are: {}",
                known.join(", ")
            );
        }
    }
    let chosen = |row: &&Row| args.rows.is_empty() || args.rows.iter().any(|name| name == row.key);
    let bench = Bench::build()?;
    let mut disassemblies = Disassemblies::default();
    let mut faults = Vec::new();
    if !args.listing {
        println!("{}", rows::HEAD);
    }
    for row in ROWS.iter().filter(chosen) {
        bench.row(row, args.listing, &mut disassemblies, &mut faults)?;
    }
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    Ok(faults.is_empty())
}

impl Bench {
    fn build() -> Result<Self> {
        let libraries = standin::build()?;
        let program = standin::release(&libraries, "overhead")?;
        let output = setup::workspace().join("target/overhead");
        std::fs::create_dir_all(&output)
            .with_context(|| format!("cannot make {}", output.display()))?;
        Ok(Self {
            program,
            libraries,
            output,
        })
    }

    fn row(
        &self,
        row: &Row,
        listing: bool,
        disassemblies: &mut Disassemblies,
        faults: &mut Vec<String>,
    ) -> Result<()> {
        let mut c = [0.0; WAYS.len()];
        for (figure, way) in c.iter_mut().zip(WAYS) {
            *figure = self
                .cost(&format!("loop_c_{}_{way}", row.key))?
                .instructions;
        }
        faults.extend(row.changed(&c));
        if row.rust.is_empty() && !listing {
            println!("{}", row.line(&c, None));
        }
        for rust in row.rust {
            let symbol = format!("loop_rust_{}{}", row.key, rust.suffix);
            let cost = self.cost(&symbol)?;
            if listing {
                println!(
                    "{symbol}: {:.1} instructions for a request",
                    cost.instructions
                );
                print!(
                    "{}",
                    disassemblies.listing(&cost.executed, rust.step, COUNTS[1] - COUNTS[0])?
                );
                continue;
            }
            let verdict = Verdict::new(rust, &c, cost.instructions);
            println!("{}", row.line(&c, Some((rust, &verdict))));
            let name = row.name_of(rust);
            faults.extend(verdict.fault(&name));
            if cost.allocations != 0 {
                faults.push(format!(
                    "{name}: {} allocations in {} requests; there may be none",
                    cost.allocations,
                    COUNTS[1] - COUNTS[0]
                ));
            }
            for locked in disassemblies.locked(&cost.executed)? {
                faults.push(format!("{name}: executes a locked instruction: {locked}"));
            }
        }
        Ok(())
    }

    /// Runs one loop under callgrind.
    fn cost(&self, symbol: &str) -> Result<Cost> {
        let out = self.output.join(symbol);
        let output = Command::new("valgrind")
            .args(["--quiet", "--tool=callgrind", "--dump-instr=yes"])
            .args(["--compress-pos=no", "--compress-strings=no"])
            .arg(format!("--toggle-collect={symbol}"))
            .arg(format!("--dump-after={symbol}"))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(&self.program)
            .arg(symbol)
            .env("LD_LIBRARY_PATH", &self.libraries)
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
        let allocations = allocations(&String::from_utf8_lossy(&output.stdout))
            .with_context(|| format!("the loop {symbol} has not said what it allocated"))?;
        // The first part is the run that nobody counts.
        let [less, more] = [2, 3].map(|part| {
            let file = out.with_extension(part.to_string());
            callgrind::read(&file)
                .with_context(|| format!("cannot read what callgrind wrote, {}", file.display()))
        });
        let (less, more) = (less?, more?);
        let executed = more.beyond(&less);
        let sum: u64 = executed.iter().map(|one| one.times).sum();
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

/// The difference between the two lines `COUNT ALLOCATIONS` of the program.
fn allocations(said: &str) -> Option<i64> {
    let of = |count: u64| -> Option<i64> {
        said.lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(first, _)| *first == count.to_string())
            .and_then(|(_, allocations)| allocations.parse().ok())
    };
    Some(of(COUNTS[1])? - of(COUNTS[0])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_runs_allocate_is_not_of_the_loop() {
        assert_eq!(allocations("32 3\n1600 5\n3200 5\n"), Some(0));
        assert_eq!(allocations("1600 5\n3200 1605\n"), Some(1600));
        assert_eq!(allocations("1600 5\n"), None);
    }
}

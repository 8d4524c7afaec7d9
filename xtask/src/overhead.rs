//! `cargo xtask overhead`: what post and poll cost beyond plain C, in instructions.
//!
//! `benches/overhead` has the loops, in C and in Rust, and a provider that does nothing. It is built with the workspace's
//! release profile, linked against the stand-in for the C libraries, and each loop runs under callgrind, which counts: the
//! difference between 3200 and 1600 requests, by 1600, is what one request costs. The figure repeats exactly.
//!
//! With `--librxe` a device of the micro-VM is behind the loops of batches, and its provider is counted, too: `librxe`.

mod callgrind;
mod count;
mod disassembly;
pub(crate) mod librxe;
mod rows;

use std::process::ExitCode;

use anyhow::{Result, bail};

use self::{
    count::{Bench, COUNTS},
    disassembly::Disassemblies,
    rows::{ROWS, Row, Verdict, WAYS},
};
use crate::setup;

/// Count the instructions of post and poll beside plain C, against a provider that does nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these rows
    rows: Vec<String>,
    /// Print what one of ours executes, with how often a request executes it
    #[arg(long)]
    listing: bool,
    /// A batch with the provider librxe and its device instead, in the micro-VM
    #[arg(long, conflicts_with_all = ["rows", "listing"])]
    librxe: bool,
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
}

/// Measures, prints the table, and says what is out of bounds, one line each. The status is 0 when every row is in bounds.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.librxe {
        return librxe::start(setup::consent(args.install));
    }
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
        librxe: false,
        install,
    };
    if !measure(&all)? {
        bail!("post and poll cost more than they may");
    }
    Ok(())
}

/// Whether every row is in bounds.
fn measure(args: &Args) -> Result<bool> {
    setup::ensure(&setup::overhead_needs(false), setup::consent(args.install))?;
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
    let bench = Bench::on_standin()?;
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
            faults.extend(cost.allocated(&name));
            for locked in disassemblies.locked(&cost.executed)? {
                faults.push(format!("{name}: executes a locked instruction: {locked}"));
            }
        }
        Ok(())
    }
}

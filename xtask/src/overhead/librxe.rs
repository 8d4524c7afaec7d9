//! `cargo xtask overhead --librxe`: a batch with a provider that has a device behind it, in the micro-VM.
//!
//! The provider that does nothing lets nobody see what a walk over a list costs, which is the provider's in the classic way and
//! the program's when it posts by calls. Here librxe's code and that of libibverbs are counted, and the kernel's is not. Two ends
//! are connected over `rxe0` in one process. A post waits, uncounted, until the other end has the messages and this one their
//! completions: see `benches/overhead/c/device.c`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use softroce::{EXIT_TIME_LIMIT, Vm, packages::Consent};

use super::{
    callgrind::Executed,
    count::Bench,
    rows::{BATCH_BOUND, Verdict},
};
use crate::{cargo, faults, setup, vm};

/// Count the instructions of a batch with librxe
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The program of `benches/overhead`, built with the real libraries
    program: PathBuf,
}

/// C's two loops with a free list, for a list and by calls, and ours, which posts in the way that the crate finds.
const C_LIST: &str = "loop_c_device_books";
const C_CALLS: &str = "loop_c_device_wr_books";
const RUST: &str = "loop_rust_batch_wr";

/// What ends a batch by calls, in the program.
const COMPLETE: &str = "waiting_complete";

const NAME: &str = "batch of 32, with librxe";
const HEAD: &str =
    "instructions for a request      C books by calls     Rust            over  bound";

/// For the boot and the three loops. Under emulation on two processors they took 40 s.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Builds the program, and counts in the micro-VM.
pub(crate) fn start(consent: Consent) -> Result<ExitCode> {
    setup::ensure(&setup::overhead_needs(true), consent)?;
    let program = cargo::program("overhead", &["--package", "overhead"])?;
    let argv = [
        setup::this_program()?.into_os_string(),
        "overhead-librxe".into(),
        program.into_os_string(),
    ];
    let outcome = Vm::new()
        .consent(consent)
        .time_limit(TIME_LIMIT)
        .run(argv)?;
    match outcome.code {
        0 => Ok(ExitCode::SUCCESS),
        EXIT_TIME_LIMIT => bail!("the loops did not end within {} s", TIME_LIMIT.as_secs()),
        // What is wrong was said.
        _ => Ok(ExitCode::FAILURE),
    }
}

/// Counts beside the device, and prints the row. The status is 0 when it is in bounds.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let output = std::env::temp_dir().join("overhead");
    let bench = Bench::on_device(args.program.clone(), vm::ADDRESS, output)?;
    let list = bench.cost(C_LIST)?.instructions;
    let calls = bench.cost(C_CALLS)?.instructions;
    let ours = bench.cost(RUST)?;
    let verdict = Verdict::beyond(ours.instructions, list, "books", Some(BATCH_BOUND));
    println!("{HEAD}\n{}", line(list, calls, &verdict));
    println!("Rust posts the batch {} there.", way(&ours.executed));
    let faults: Vec<String> = verdict
        .fault(NAME)
        .into_iter()
        .chain(ours.allocated(NAME))
        .collect();
    Ok(faults::tell(&faults))
}

fn line(list: f64, calls: f64, verdict: &Verdict) -> String {
    format!("{NAME:<30}{list:>9.1} {calls:>8.1}{}", verdict.columns())
}

/// How a loop posts.
fn way(executed: &[Executed]) -> &'static str {
    if executed.iter().any(|one| one.function == COMPLETE) {
        "by calls"
    } else {
        "as a list"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_is_judged_by_what_is_over_the_list_of_c() {
        let verdict = |ours| Verdict::beyond(ours, 203.0, "books", Some(BATCH_BOUND));
        let good = verdict(228.0);
        assert_eq!(good.fault(NAME), None);
        let shown = line(203.0, 146.6, &good);
        assert!(
            shown.ends_with("   203.0    146.6    228.0     +25.0 books  25  ok"),
            "{shown}"
        );
        let bad = verdict(228.1);
        assert_eq!(
            bad.fault(NAME).unwrap(),
            "batch of 32, with librxe: 228.1 instructions for a request, 25.1 over C books; the bound is 25"
        );
        assert!(line(203.0, 146.6, &bad).ends_with("25  OUT"));
    }

    #[test]
    fn the_way_is_told_by_what_was_executed() {
        let in_function = |function: &str| Executed {
            object: PathBuf::new(),
            function: function.to_owned(),
            address: 1,
            times: 50,
        };
        let loops = [in_function(RUST), in_function("waiting_post_send")];
        assert_eq!(way(&loops), "as a list");
        let loops = [in_function(RUST), in_function(COMPLETE)];
        assert_eq!(way(&loops), "by calls");
    }
}

//! `cargo xtask bench`: latency and bandwidth beside perftest, in one boot.
//!
//! Each round runs every job (`bench/rows.rs`) three times: C's program, ours, and C's again, whose difference from the first is
//! what chance does. This file starts the rounds, in the micro-VM or on the machine's own device, and judges; `bench/runs.rs`
//! is what runs there.

mod guest;
mod perftest;
mod process;
mod rows;
pub(crate) mod runs;
mod samples;
mod summary;

use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use softroce::{EXIT_TIME_LIMIT, Stdio, Vm};

use self::{rows::Job, samples::Sample, summary::Summary};
use crate::{cargo, device, setup};

/// Measure latency and bandwidth beside perftest's programs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only some of the rows
    #[arg(long)]
    quick: bool,
    /// How many runs of each
    #[arg(long, value_name = "N", default_value_t = 15)]
    runs: u32,
    /// End the rounds after so many seconds, with fewer runs
    #[arg(long, value_name = "SECONDS", default_value_t = 480)]
    time: u64,
    /// Use this machine's own RDMA device instead of one in a micro-VM
    #[arg(long)]
    device: bool,
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
}

/// Fewer runs are no measurement.
const LEAST: u32 = 3;

/// The address of `rxe0` in the virtual machine.
const VM_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));

/// What the boot, and a round that takes longer than the one before, may take beyond the rounds.
const BEYOND: Duration = Duration::from_secs(60);

/// Where the figures go, in the workspace.
const RESULTS: &str = "target/bench/results.json";

/// Measures, prints the table and writes the results. The status is 0 when every row is in bounds.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let consent = setup::consent(args.install);
    setup::ensure(&setup::bench_needs(args.device), consent)?;
    let address = if args.device {
        device::find()?.address
    } else {
        VM_ADDRESS
    };
    let built = cargo::build(&["build", "--release", "--package", "perf"])?;
    let perf = built
        .iter()
        .find(|executable| executable.name == "perf")
        .context("cargo built no program called perf")?;
    let rounds = args.runs.max(1);
    let command = runs::Args {
        address,
        perf: perf.path.clone(),
        quick: args.quick,
        guest: !args.device,
        rounds,
        time: args.time,
    };
    let mut argv = vec![setup::this_program()?.into_os_string()];
    argv.extend(command.to_command_line());
    let jobs = rows::jobs(args.quick);
    for job in &jobs {
        println!("{}", job.conditions());
    }
    let said = Said::default();
    let outcome = Vm::new()
        .own_device(args.device)
        .consent(consent)
        .time_limit(Duration::from_secs(args.time) + BEYOND)
        .run_with(argv, Stdio::to(said.clone(), io::stderr()))?;
    let samples = samples::read(&said.text())?;
    match outcome.code {
        0 => {}
        EXIT_TIME_LIMIT => bail!("a round has not ended in time; --time allows for more"),
        _ => return Ok(ExitCode::FAILURE),
    }
    judge(&jobs, &samples, rounds)
}

fn judge(jobs: &[Box<dyn Job>], samples: &[Sample], rounds: u32) -> Result<ExitCode> {
    let rows = jobs.iter().flat_map(|job| job.rows());
    let summaries = rows
        .map(|row| Summary::new(row, samples))
        .collect::<Result<Vec<_>>>()?;
    println!("\n{}", summary::HEAD);
    for summary in &summaries {
        println!("{}", summary.line());
    }
    let runs = summaries.iter().map(|summary| summary.runs).min();
    if let Some(runs) = runs.filter(|runs| *runs < rounds as usize) {
        eprintln!(
            "note: {runs} of {rounds} runs of each were made in the time; --time allows for more"
        );
    }
    let few = runs.is_none_or(|runs| runs < LEAST as usize);
    let file = setup::workspace().join(RESULTS);
    write(&file, &summaries).with_context(|| format!("cannot write {}", file.display()))?;
    println!("The figures are in {RESULTS}.");
    if few {
        bail!("fewer than {LEAST} runs of each are no measurement; --time allows for more");
    }
    let faults: Vec<String> = summaries.iter().filter_map(Summary::fault).collect();
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn write(file: &PathBuf, summaries: &[Summary]) -> Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let list: Vec<_> = summaries.iter().map(Summary::to_json).collect();
    let mut text = serde_json::to_string_pretty(&list)?;
    text.push('\n');
    Ok(std::fs::write(file, text)?)
}

/// What the runs have said, kept while they go on.
#[derive(Debug, Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

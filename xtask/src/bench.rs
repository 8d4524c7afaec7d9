//! `cargo xtask bench`: latency, bandwidth and the setting up of connections beside the C programs, in one boot.
//!
//! Each round runs every job (`bench/rows.rs`) three times: C's program, ours, and C's again, whose difference from the first is
//! what chance does. This file starts the rounds, in the micro-VM or on the machine's own device, and judges; `bench/runs.rs`
//! is what runs there.

mod chart;
mod cmtime;
mod docs;
mod guest;
mod machine;
mod perftest;
mod process;
mod rows;
pub(crate) mod runs;
mod samples;
mod summary;
mod table;

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use softroce::{EXIT_TIME_LIMIT, Stdio, Vm};

use self::{machine::Machine, summary::Summary};
use crate::{cargo, device, faults, setup, vm};

/// Measure latency and bandwidth beside perftest's programs, and connections beside rdma-core's cmtime
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only some of the rows
    #[arg(long)]
    quick: bool,
    /// How many runs of each: 15, or 7 for a quick look
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    /// End the rounds after so many seconds, with fewer runs
    #[arg(long, value_name = "SECONDS")]
    time: Option<u64>,
    /// Write docs/performance.md and its picture too
    #[arg(long)]
    docs: bool,
    /// Use this machine's own RDMA device instead of one in a micro-VM
    #[arg(long)]
    device: bool,
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
}

/// Fewer runs are no measurement.
const LEAST: u32 = 3;

/// How many rounds there are and how many seconds they may take when nothing else is said: all of the bench in less than 25
/// minutes, and a quick look in less than 6.
const USUAL: (u32, u64) = (15, 1410);
const QUICK: (u32, u64) = (7, 320);

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
        vm::ADDRESS
    };
    let perf = cargo::program("perf", &["--package", "perf"])?;
    let cmtime = cargo::program("cmtime", &["--package", "rdmacm", "--example", "cmtime"])?;
    let (rounds, time) = if args.quick { QUICK } else { USUAL };
    let rounds = args.runs.unwrap_or(rounds).max(1);
    let time = args.time.unwrap_or(time);
    let command = runs::Args {
        address,
        perf,
        cmtime,
        quick: args.quick,
        guest: !args.device,
        rounds,
        time,
    };
    let mut argv = vec![setup::this_program()?.into_os_string()];
    argv.extend(command.to_command_line());
    let jobs = rows::jobs(args.quick);
    let conditions: Vec<String> = jobs.iter().map(|job| job.conditions()).collect();
    println!("{}", conditions.join("\n"));
    let said = Said::default();
    let outcome = Vm::new()
        .own_device(args.device)
        .consent(consent)
        .time_limit(Duration::from_secs(time) + BEYOND)
        .run_with(argv, Stdio::to(said.clone(), io::stderr()))?;
    let mut machine = Machine::default();
    let samples = samples::read(&machine.listen(&said.text()))?;
    match outcome.code {
        0 => {}
        EXIT_TIME_LIMIT => bail!("a round has not ended in time; --time allows for more"),
        _ => return Ok(ExitCode::FAILURE),
    }
    let rows = jobs.iter().flat_map(|job| job.rows());
    let summaries = rows
        .map(|row| Summary::new(row, &samples))
        .collect::<Result<Vec<_>>>()?;
    machine.look(!args.device);
    write(&summaries, &machine, &conditions, args.docs)?;
    println!("\n{}", table::text(&summaries));
    println!("The figures are in {RESULTS}, and a picture is beside them.");
    judge(&summaries, rounds)
}

/// Says which rows are out of bounds.
fn judge(summaries: &[Summary], rounds: u32) -> Result<ExitCode> {
    // Some jobs have few runs in any case.
    let runs = summaries.iter().map(Summary::count).max();
    if let Some(runs) = runs.filter(|runs| *runs < rounds as usize) {
        eprintln!(
            "note: {runs} of {rounds} runs of each were made in the time; --time allows for more"
        );
    }
    if runs.is_none_or(|runs| runs < LEAST as usize) {
        bail!("fewer than {LEAST} runs of each are no measurement; --time allows for more");
    }
    let faults: Vec<String> = summaries.iter().filter_map(Summary::fault).collect();
    Ok(faults::tell(&faults))
}

/// Writes the list of results and the picture, and the page of the documentation if it is wanted.
fn write(
    summaries: &[Summary],
    machine: &Machine,
    conditions: &[String],
    docs: bool,
) -> Result<()> {
    let workspace = setup::workspace();
    let results = workspace.join(RESULTS);
    let list: Vec<_> = summaries.iter().map(Summary::to_json).collect();
    let mut text = serde_json::to_string_pretty(&list)?;
    text.push('\n');
    put(&results, &text)?;
    let picture = chart::svg(summaries)?;
    put(&results.with_file_name(docs::PICTURE), &picture)?;
    if docs {
        let page = docs::Page {
            summaries,
            machine,
            conditions,
            picture: &picture,
        };
        page.write(&workspace.join("docs"))?;
    }
    Ok(())
}

fn put(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
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

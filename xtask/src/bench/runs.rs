//! The rounds of `cargo xtask bench`, beside the RDMA device.

use std::{
    ffi::OsString,
    net::IpAddr,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    guest,
    machine::Machine,
    rows::{self, Job, Row},
    samples::{Sample, Who},
};

/// Run the rounds of the benchmark
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address of an RDMA device
    #[arg(long)]
    pub(crate) address: IpAddr,
    /// Our program beside perftest's
    #[arg(long)]
    pub(crate) perf: PathBuf,
    /// Our program beside `cmtime`
    #[arg(long)]
    pub(crate) cmtime: PathBuf,
    /// Only the rows of a quick look
    #[arg(long)]
    pub(crate) quick: bool,
    /// How many rounds
    #[arg(long)]
    pub(crate) rounds: u32,
    /// This is a machine of its own, which may be changed
    #[arg(long)]
    pub(crate) guest: bool,
    /// No round is begun that would not end within so many seconds
    #[arg(long)]
    pub(crate) time: u64,
}

impl Args {
    /// These arguments as a command line, for another run of this program.
    pub(crate) fn to_command_line(&self) -> Vec<OsString> {
        let mut line = vec![
            "bench-runs".into(),
            "--address".into(),
            self.address.to_string().into(),
            "--perf".into(),
            self.perf.clone().into(),
            "--cmtime".into(),
            self.cmtime.clone().into(),
            "--rounds".into(),
            self.rounds.to_string().into(),
            "--time".into(),
            self.time.to_string().into(),
        ];
        if self.quick {
            line.push("--quick".into());
        }
        if self.guest {
            line.push("--guest".into());
        }
        line
    }
}

/// How often a run is tried: perftest gives up easily when the machine is busy.
const TRIES: u32 = 3;
/// The first run's, less one.
const PORT: u16 = 18515;

/// Runs the rounds. Each figure is a line on standard output, how far it is one on standard error.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let start = Instant::now();
    if args.guest {
        guest::prepare(&args.perf, &args.cmtime)?;
    }
    for line in Machine::tell() {
        println!("{line}");
    }
    let limit = Duration::from_secs(args.time);
    let jobs = rows::jobs(args.quick);
    // How long each job's part of a round has taken at most.
    let mut longest = vec![Duration::ZERO; jobs.len()];
    let mut port = PORT;
    for round in 0..args.rounds {
        let begin = Instant::now();
        let takes_part = |job: &dyn Job| rows::takes_part(job.at_most(), round, args.rounds);
        let parts = jobs.iter().zip(&mut longest);
        let mut parts: Vec<_> = parts.filter(|(job, _)| takes_part(job.as_ref())).collect();
        let expected: Duration = parts.iter().map(|(_, longest)| **longest).sum();
        if round > 0 && start.elapsed() + expected > limit {
            break;
        }
        for (job, longest) in &mut parts {
            let begin = Instant::now();
            every(args, job.as_ref(), round, &mut port)?;
            **longest = begin.elapsed().max(**longest);
        }
        eprintln!(
            "round {} of {} ({:.0} s)",
            round + 1,
            args.rounds,
            begin.elapsed().as_secs_f32()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the runs of one job in one round. Each round another begins.
fn every(args: &Args, job: &dyn Job, round: u32, port: &mut u16) -> Result<()> {
    let rows = job.rows();
    let mut turn = Who::ALL;
    turn.rotate_left(round as usize % Who::ALL.len());
    for who in turn {
        let figures = match attempt(args, job, &rows, who, port) {
            // What has worked before is likely to work again: one run less is no reason to lose all others.
            Err(error) if round > 0 => {
                eprintln!("a run is left out: {error:#}");
                continue;
            }
            done => done?,
        };
        for (row, figure) in rows.iter().zip(figures) {
            let row = row.name.clone();
            let sample = Sample {
                round,
                who,
                figure,
                row,
            };
            println!("{sample}");
        }
    }
    Ok(())
}

/// Makes one run, again if it fails.
fn attempt(args: &Args, job: &dyn Job, rows: &[Row], who: Who, port: &mut u16) -> Result<Vec<f64>> {
    let name = rows.first().map_or("nothing", |row| row.name.as_str());
    let mut tries = 1;
    loop {
        // A port of its own, so that nothing of the last run is in the way.
        *port += 1;
        match once(args, job, rows, who, *port) {
            Err(error) if tries < TRIES => {
                eprintln!("{name} ({who}) failed and is run again: {error:#}");
                tries += 1;
            }
            done => return done.with_context(|| format!("{name} ({who})")),
        }
    }
}

fn once(args: &Args, job: &dyn Job, rows: &[Row], who: Who, port: u16) -> Result<Vec<f64>> {
    let figures = job.run(args, who, port)?;
    ensure!(
        figures.len() == rows.len() && figures.iter().all(|figure| figure.is_normal()),
        "the run gave {figures:?} for {} rows",
        rows.len()
    );
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    use crate::bench::rows::{Better, Judged};

    /// Fails so often before it gives what it has.
    struct Failing(Cell<u32>, Vec<f64>);

    impl Job for Failing {
        fn rows(&self) -> Vec<Row> {
            vec![Row {
                name: "a row".into(),
                unit: "us",
                better: Better::Less,
                judged: Judged::Best { bound: 1.0 },
            }]
        }

        fn conditions(&self) -> String {
            String::new()
        }

        fn run(&self, _: &Args, _: Who, port: u16) -> Result<Vec<f64>> {
            let left = self.0.get();
            ensure!(left == 0, "port {port} is busy");
            Ok(self.1.clone())
        }
    }

    fn args() -> Args {
        Args {
            address: IpAddr::from([10, 9, 0, 1]),
            perf: "/t/perf".into(),
            cmtime: "/t/cmtime".into(),
            quick: false,
            guest: false,
            rounds: 1,
            time: 1,
        }
    }

    impl Failing {
        fn attempt(&self) -> Result<Vec<f64>> {
            let mut port = 6;
            attempt(&args(), self, &self.rows(), Who::C, &mut port)
        }
    }

    #[test]
    fn a_run_that_fails_is_tried_on_another_port_but_not_for_ever() {
        let always = Failing(Cell::new(1), Vec::new());
        let told = format!("{:#}", always.attempt().unwrap_err());
        assert_eq!(told, "a row (c): port 9 is busy");
    }

    #[test]
    fn what_fails_is_left_out_but_not_in_the_first_round() {
        let job = Failing(Cell::new(1), Vec::new());
        let args = args();
        assert!(every(&args, &job, 0, &mut 6).is_err());
        assert!(every(&args, &job, 1, &mut 6).is_ok());
    }

    #[test]
    fn a_run_gives_one_figure_a_row_and_none_of_nothing() {
        let of = |figures: &[f64]| Failing(Cell::new(0), figures.to_vec()).attempt();
        assert_eq!(of(&[1.5]).unwrap(), [1.5]);
        for wrong in [&[][..], &[1.5, 2.5], &[0.0], &[f64::NAN]] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}

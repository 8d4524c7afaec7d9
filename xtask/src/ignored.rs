//! Runs the ignored tests of some test programs, one program after the other, each on a leash.
//!
//! This is what runs beside the RDMA device: in the micro-VM, where this program is started again with the list, or on
//! the machine itself. A program that crashes or hangs must neither look like one that passed nor keep the others from
//! running.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::tally::{self, Counting, Seen, Tally};

/// Run the ignored tests of test programs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder to run them in
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// How many tests run at once
    #[arg(long)]
    pub(crate) threads: usize,
    /// How many seconds one program may take
    #[arg(long)]
    pub(crate) limit: u64,
    /// Only tests whose names contain one of these
    #[arg(long)]
    pub(crate) filter: Vec<String>,
    /// How often to run all of them
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: u32,
    /// The test programs
    pub(crate) programs: Vec<PathBuf>,
}

impl Args {
    /// These arguments as a command line, for another run of this program.
    pub(crate) fn to_command_line(&self) -> Vec<std::ffi::OsString> {
        let mut line = vec!["ignored".into(), "--dir".into(), self.dir.clone().into()];
        line.extend(["--threads".into(), self.threads.to_string().into()]);
        line.extend(["--limit".into(), self.limit.to_string().into()]);
        line.extend(["--rounds".into(), self.rounds.to_string().into()]);
        // With `=`, since a filter may begin with a dash.
        line.extend(
            self.filter
                .iter()
                .map(|filter| format!("--filter={filter}").into()),
        );
        line.push("--".into());
        line.extend(self.programs.iter().map(Into::into));
        line
    }
}

/// Runs the programs; the status is 0 only if each of them gave a result and passed, in every round. What fails in one round
/// keeps no other from running.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for round in 1..=args.rounds {
        let start = Instant::now();
        let mut all = Seen::default();
        for program in &args.programs {
            let (passed, seen) = run_one(program, args)?;
            all += seen;
            if !passed {
                status = ExitCode::FAILURE;
            }
        }
        if args.rounds > 1 {
            println!(
                "\n{}",
                round_line(round, args.rounds, &all, start.elapsed())
            );
        }
    }
    Ok(status)
}

/// What a round gave, on one line.
fn round_line(round: u32, rounds: u32, seen: &Seen, took: Duration) -> String {
    let Seen { tally, failed } = seen;
    let mut line = format!(
        "round {round} of {rounds}: {} passed, {} failed, {:.1} s",
        tally.passed,
        tally.failed,
        took.as_secs_f32()
    );
    if !failed.is_empty() {
        line += &format!("; failed: {}", failed.join(", "));
    }
    line
}

/// Runs one program and says whether it passed, and what it said of its tests. Its output goes to standard output, a fault
/// of the program itself to standard error.
fn run_one(program: &Path, args: &Args) -> Result<(bool, Seen)> {
    let name = name_of(program);
    println!("\n     Running {name}");
    let mut child = Command::new(program)
        .args(["--ignored", "--test-threads", &args.threads.to_string()])
        .args(&args.filter)
        .current_dir(&args.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let Some(mut stdout) = child.stdout.take() else {
        bail!("{name} has no standard output")
    };
    let mut counting = Counting::new(io::stdout());
    let seen = counting.seen();
    let copying =
        thread::spawn(move || io::copy(&mut stdout, &mut counting).and_then(|_| counting.flush()));

    let ended = wait(&mut child, Duration::from_secs(args.limit))
        .with_context(|| format!("cannot wait for {name}"))?;
    // A program that it has left behind may hold its output open for ever.
    let patience = Instant::now() + Duration::from_secs(2);
    while !copying.is_finished() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    let seen = tally::read(&seen);
    let fault = fault(ended, args.limit, seen.tally);
    if let Some(fault) = &fault {
        eprintln!("error: {name} {fault}");
    }
    Ok((fault.is_none(), seen))
}

/// What is wrong with the way a program ended, if anything.
fn fault(ended: Option<ExitStatus>, limit: u64, tally: Tally) -> Option<String> {
    match ended {
        None => Some(format!("did not end within {limit} s and was ended")),
        Some(status) if tally.lines == 0 => Some(format!("gave no `test result:` line ({status})")),
        Some(status) if tally.failed > 0 => Some(format!("had failed tests ({status})")),
        Some(status) if !status.success() => {
            Some(format!("passed its tests and then ended with {status}"))
        }
        Some(_) => None,
    }
}

/// Waits for the end of a child. Past the limit it is killed, and there is no status.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A test program's name without the hash that cargo appends.
fn name_of(program: &Path) -> String {
    let file = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy();
    match file.rsplit_once('-') {
        Some((name, hash)) if hash.chars().all(|c| c.is_ascii_hexdigit()) => name.to_owned(),
        _ => file.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn names_lose_their_hash_only() {
        assert_eq!(
            name_of(Path::new("/t/debug/deps/device_accept-0123456789abcdef")),
            "device_accept"
        );
        assert_eq!(name_of(Path::new("device-accept")), "device-accept");
    }

    #[test]
    fn a_round_says_what_failed_in_it() {
        let tally = Tally {
            lines: 2,
            passed: 3,
            ..Tally::default()
        };
        let mut seen = Seen {
            tally,
            failed: Vec::new(),
        };
        let took = Duration::from_millis(61_230);
        let line = round_line(1, 10, &seen, took);
        assert_eq!(line, "round 1 of 10: 3 passed, 0 failed, 61.2 s");
        seen += Seen {
            tally: Tally {
                failed: 2,
                ..Tally::default()
            },
            failed: vec!["a::b".to_owned(), "c".to_owned()],
        };
        let line = round_line(2, 10, &seen, took);
        let wanted = "round 2 of 10: 3 passed, 2 failed, 61.2 s; failed: a::b, c";
        assert_eq!(line, wanted);
    }

    #[test]
    fn a_crash_or_a_hang_is_no_pass() {
        let (ok, crash) = (
            Some(ExitStatus::from_raw(0)),
            Some(ExitStatus::from_raw(11)),
        );
        let passed = Tally {
            lines: 1,
            passed: 3,
            ..Tally::default()
        };
        let failed = Tally {
            failed: 1,
            ..passed
        };
        assert_eq!(fault(ok, 9, passed), None);
        for (ended, tally, words) in [
            (None, passed, "did not end within 9 s"),
            (ok, Tally::default(), "no `test result:` line"),
            (crash, Tally::default(), "signal: 11"),
            (
                crash,
                passed,
                "passed its tests and then ended with signal: 11",
            ),
            (ok, failed, "had failed tests"),
        ] {
            let fault = fault(ended, 9, tally).unwrap_or_default();
            assert!(fault.contains(words), "{fault:?} has no {words:?}");
        }
    }

    #[test]
    fn a_child_past_its_limit_is_ended() -> io::Result<()> {
        let mut sleeper = Command::new("sleep").arg("60").spawn()?;
        assert_eq!(wait(&mut sleeper, Duration::from_millis(50))?, None);
        let mut quick = Command::new("true").spawn()?;
        assert!(wait(&mut quick, Duration::from_secs(30))?.is_some_and(|status| status.success()));
        Ok(())
    }
}

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

use crate::tally::{self, Counting, Tally};

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
    /// The test programs
    pub(crate) programs: Vec<PathBuf>,
}

impl Args {
    /// These arguments as a command line, for another run of this program.
    pub(crate) fn to_command_line(&self) -> Vec<std::ffi::OsString> {
        let mut line = vec!["ignored".into(), "--dir".into(), self.dir.clone().into()];
        line.extend(["--threads".into(), self.threads.to_string().into()]);
        line.extend(["--limit".into(), self.limit.to_string().into()]);
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

/// Runs the programs; the status is 0 only if each of them gave a result and passed.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for program in &args.programs {
        if !run_one(program, args)? {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// Runs one program and says whether it passed. Its output goes to standard output, a fault of the program itself to
/// standard error.
fn run_one(program: &Path, args: &Args) -> Result<bool> {
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
    let tally = counting.tally();
    let copying =
        thread::spawn(move || io::copy(&mut stdout, &mut counting).and_then(|_| counting.flush()));

    let ended = wait(&mut child, Duration::from_secs(args.limit))
        .with_context(|| format!("cannot wait for {name}"))?;
    // A program that it has left behind may hold its output open for ever.
    let patience = Instant::now() + Duration::from_secs(2);
    while !copying.is_finished() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    let fault = fault(ended, args.limit, tally::read(&tally));
    if let Some(fault) = &fault {
        eprintln!("error: {name} {fault}");
    }
    Ok(fault.is_none())
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

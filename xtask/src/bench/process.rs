//! The programs of a run.

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::guest;

/// How often is looked whether something has happened.
const PAUSE: Duration = Duration::from_millis(5);

/// A program that is ended if it has not ended.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// Starts a program, bound to one processor.
    pub(crate) fn start(command: &mut Command, processor: usize) -> Result<Self> {
        let own = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(processor);
        // A child has what its parent's thread has. (With `taskset` each run would start two more programs.)
        sched_setaffinity(None, &one)
            .with_context(|| format!("cannot have processor {processor}"))?;
        let running = Self::start_anywhere(command);
        sched_setaffinity(None, &own)?;
        running
    }

    /// Starts a program, on whichever processors there are.
    pub(crate) fn start_anywhere(command: &mut Command) -> Result<Self> {
        Self::start_saying(command.stdout(Stdio::piped()))
    }

    /// As [`start_anywhere`](Self::start_anywhere); what the program says goes where the command sends it.
    pub(crate) fn start_saying(command: &mut Command) -> Result<Self> {
        let child = command
            // cargo's is a search in slow folders for every library.
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {:?}", command.get_program()))?;
        Ok(Self(child))
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until this server listens on a port.
    pub(crate) fn listens(&mut self, port: u16, deadline: Instant) -> Result<()> {
        while !listens(port)? {
            if let Some(status) = self.0.try_wait()? {
                bail!("the server ended with {status}: {}", self.said());
            }
            if Instant::now() > deadline {
                bail!("the server does not listen");
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits for the end, and gives what it has said. (It says less than a pipe holds.)
    pub(crate) fn end(&mut self, side: &str, deadline: Instant) -> Result<String> {
        let status = loop {
            if let Some(status) = self.0.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("the {side} does not end");
            }
            thread::sleep(PAUSE);
        };
        let mut said = String::new();
        if let Some(stdout) = &mut self.0.stdout {
            stdout.read_to_string(&mut said)?;
        }
        if !status.success() {
            bail!("the {side} ended with {status}: {said}{}", self.said());
        }
        Ok(said)
    }

    /// What an ended program has said on standard error.
    fn said(&mut self) -> String {
        let mut said = Vec::new();
        if let Some(stderr) = &mut self.0.stderr {
            // What cannot be read is not said.
            let _ = stderr.read_to_end(&mut said);
        }
        String::from_utf8_lossy(&said).trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, or is to.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether an id listens on a port.
fn listens(port: u16) -> Result<bool> {
    let output = Command::new(guest::program("rdma"))
        .args(["resource", "show", "cm_id"])
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .output()
        .context("cannot run rdma")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let port = format!(":{port} ");
    Ok(text
        .lines()
        .any(|line| line.contains("LISTEN") && line.contains(&port)))
}

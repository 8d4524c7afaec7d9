//! The programs of a run.

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// How often is looked whether something has happened.
const PAUSE: Duration = Duration::from_millis(5);

/// A program that is ended if it has not ended.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {:?}", command.get_program()))?;
        Ok(Self(child))
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
    let output = Command::new("rdma")
        .args(["resource", "show", "cm_id"])
        .stdin(Stdio::null())
        .output()
        .context("cannot run rdma")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let port = format!(":{port} ");
    Ok(text
        .lines()
        .any(|line| line.contains("LISTEN") && line.contains(&port)))
}

//! Other programs, run to their end: the distribution's package tools.

use std::{
    fs::File,
    io::{Read, Seek},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{Error, child, signals::Watch};

/// Notes the first signal that asks this process to end, from its making to its drop.
#[derive(Debug)]
pub(crate) struct Interrupts {
    signal: Arc<AtomicI32>,
    _watch: Watch,
}

impl Interrupts {
    /// Starts to take notes.
    pub(crate) fn watch() -> Result<Self, Error> {
        let signal = Arc::new(AtomicI32::new(0));
        let noted = Arc::clone(&signal);
        let watch = Watch::start(move |number| {
            if number != signal_hook::consts::SIGWINCH {
                let _ = noted.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
            }
        });
        Ok(Self {
            signal,
            _watch: watch.map_err(|source| {
                Error::NotStarted(format!("cannot watch for signals: {source}"))
            })?,
        })
    }

    /// Fails if there was a signal.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.signal.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => Err(Error::Interrupted { signal }),
        }
    }

    /// Runs a program without standard input and returns its standard output. `tick` is called meanwhile, again and again.
    pub(crate) fn run(
        &self,
        command: &mut Command,
        tick: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, Error> {
        self.run_on(command, Stdio::null(), tick)
    }

    /// Runs a program as [`run`](Self::run) does, with that standard input.
    pub(crate) fn run_on(
        &self,
        command: &mut Command,
        stdin: Stdio,
        tick: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, Error> {
        self.finish(child::bind(command.stdin(stdin)), true, tick)
    }

    /// Runs a program that may ask the user at the terminal for a password, which a process group of its own could not.
    pub(crate) fn run_attended(&self, command: &mut Command) -> Result<Vec<u8>, Error> {
        self.finish(command, false, &mut || ())
    }

    fn finish(
        &self,
        command: &mut Command,
        group: bool,
        tick: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, Error> {
        self.check()?;
        let line = line(command);
        let failed = |reason: String| Error::Tool {
            command: line.clone(),
            reason,
        };
        // Files instead of pipes: nobody has to read them meanwhile. They have no name, so none is left behind.
        let scratch = || {
            tempfile::tempfile().map_err(|source| Error::io("write", std::env::temp_dir(), source))
        };
        let (mut stdout, mut stderr) = (scratch()?, scratch()?);
        let copy = |file: &File| {
            file.try_clone()
                .map_err(|source| Error::io("write", std::env::temp_dir(), source))
        };
        let child = command
            .stdout(copy(&stdout)?)
            .stderr(copy(&stderr)?)
            .spawn();
        let mut child = Running {
            child: child.map_err(|error| failed(error.to_string()))?,
            group,
        };
        loop {
            match child.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(content(&mut stdout)),
                Ok(Some(status)) => {
                    // A terminal's Ctrl-C may have reached the tool as well: then that is the reason.
                    self.check()?;
                    return Err(failure(
                        &line,
                        status,
                        &String::from_utf8_lossy(&content(&mut stderr)),
                    ));
                }
                Ok(None) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
            self.check()?;
            tick();
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A tool, ended when this is dropped before it has ended by itself.
struct Running {
    child: Child,
    group: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                let _ = if self.group {
                    kill_process_group(pid, Signal::TERM)
                } else {
                    kill_process(pid, Signal::TERM)
                };
            }
            let _ = self.child.wait();
        }
    }
}

fn content(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    bytes
}

/// A command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

fn failure(line: &str, status: ExitStatus, words: &str) -> Error {
    if words.contains("No space left on device") || words.contains("enough free space") {
        return Error::NoSpace {
            path: format!("`{line}`").into(),
        };
    }
    let last: Vec<&str> = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("W:"))
        .collect();
    let reason = if last.is_empty() {
        status.to_string()
    } else {
        last[last.len().saturating_sub(3)..].join("; ")
    };
    Error::Tool {
        command: line.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_failure_are_told_apart() {
        let interrupts = Interrupts::watch().unwrap();
        assert_eq!(
            interrupts
                .run(&mut shell("echo out; echo err >&2"), &mut || ())
                .unwrap(),
            b"out\n"
        );
        let error = interrupts
            .run(
                &mut shell("echo W: fine >&2; echo E: broken >&2; exit 100"),
                &mut || (),
            )
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("failed: E: broken"), "{error}");
        let error = interrupts
            .run(
                &mut shell("echo x: No space left on device >&2; exit 1"),
                &mut || (),
            )
            .unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }));
        let error = interrupts
            .run(&mut Command::new("no-such-tool-here"), &mut || ())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("`no-such-tool-here` failed"), "{error}");
    }

    #[test]
    fn a_signal_ends_the_tool() {
        let interrupts = Interrupts::watch().unwrap();
        let mut ticks = 0;
        let mut tick = || {
            ticks += 1;
            if ticks == 1 {
                interrupts.signal.store(15, Ordering::SeqCst);
            }
        };
        let error = interrupts
            .run(&mut shell("sleep 60 & wait"), &mut tick)
            .unwrap_err();
        assert_eq!(error.exit_code(), 143);
    }
}

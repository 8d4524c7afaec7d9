//! Runs a command on the machine itself.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal, Write},
    os::unix::{ffi::OsStrExt, process::ExitStatusExt},
    path::Path,
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::stdio::{Source, Stdio};
use crate::{
    EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_TIME_LIMIT, Error, protocol::Job, signals::Watch,
};

/// Runs the job's command to its end, or to the time limit.
/// A signal for this process reaches the command too.
pub(crate) fn run(
    job: &Job,
    env: &[(OsString, OsString)],
    limit: Option<Duration>,
    stdio: Stdio,
) -> Result<i32, Error> {
    let text = |bytes: &Vec<u8>| OsString::from(OsStr::from_bytes(bytes));
    let [program, arguments @ ..] = job.argv.as_slice() else {
        return Err(Error::BadSetting("no command was given".into()));
    };
    let mut command = Command::new(text(program));
    command
        .args(arguments.iter().map(text))
        .current_dir(Path::new(&text(&job.current_dir)))
        .envs(env.iter().cloned());
    let Stdio {
        stdin,
        mut stdout,
        mut stderr,
    } = stdio;
    let own = matches!(stdin, Source::Own);
    if !own {
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let not_found = error.kind() == io::ErrorKind::NotFound;
            let why = if not_found {
                "command not found".to_owned()
            } else {
                format!("cannot execute: {error}")
            };
            let _ = writeln!(
                stderr,
                "softroce: {}: {why}",
                text(program).to_string_lossy()
            );
            return Ok(if not_found {
                EXIT_NOT_FOUND
            } else {
                EXIT_NOT_EXECUTABLE
            });
        }
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // From a terminal Ctrl-C has reached the command already.
    let at_terminal = io::stdin().is_terminal();
    let watch = Watch::start(move |number| {
        let signal = Signal::from_named_raw(number)
            .filter(|signal| *signal != Signal::WINCH && !(at_terminal && *signal == Signal::INT));
        if let (Some(pid), Some(signal)) = (pid, signal) {
            let _ = kill_process(pid, signal);
        }
    });
    let _watch =
        watch.map_err(|source| Error::NotStarted(format!("cannot watch for signals: {source}")))?;
    let (done, ended) = mpsc::channel::<()>();
    let watchdog = limit.map(|limit| {
        thread::spawn(move || {
            let over = ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if let (true, Some(pid)) = (over, pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
            over
        })
    });
    let copies = [child
        .stdout
        .take()
        .map(|mut from| thread::spawn(move || io::copy(&mut from, &mut stdout)))];
    if let Some(mut from) = child.stderr.take() {
        let _ = io::copy(&mut from, &mut stderr);
    }
    copies
        .into_iter()
        .flatten()
        .for_each(|copy| drop(copy.join()));
    let status = child
        .wait()
        .map_err(|source| Error::io("wait for", text(program), source))?;
    drop(done);
    if let (Some(true), Some(limit)) = (watchdog.and_then(|thread| thread.join().ok()), limit) {
        eprintln!(
            "softroce: the time limit of {} s ran out",
            limit.as_secs_f64()
        );
        return Ok(EXIT_TIME_LIMIT);
    }
    Ok(status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(crate::EXIT_VM_FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(argv: &[&str]) -> Job {
        Job {
            argv: argv
                .iter()
                .map(|argument| argument.as_bytes().to_vec())
                .collect(),
            current_dir: b"/".to_vec(),
            ..Job::default()
        }
    }

    fn quiet() -> Stdio {
        Stdio::to(io::sink(), io::sink())
    }

    #[test]
    fn the_status_is_the_commands_own() {
        assert_eq!(
            run(&job(&["sh", "-c", "exit 7"]), &[], None, quiet()).unwrap(),
            7
        );
        assert_eq!(
            run(&job(&["sh", "-c", "kill -9 $$"]), &[], None, quiet()).unwrap(),
            137
        );
        assert_eq!(
            run(&job(&["no-such-command-here"]), &[], None, quiet()).unwrap(),
            127
        );
        assert_eq!(run(&job(&["/etc"]), &[], None, quiet()).unwrap(), 126);
    }

    #[test]
    fn variables_are_set() {
        let env = [("K".into(), "v w".into())];
        assert_eq!(
            run(
                &job(&["sh", "-c", "test \"$K\" = 'v w'"]),
                &env,
                None,
                quiet()
            )
            .unwrap(),
            0
        );
    }

    #[test]
    fn the_time_limit_ends_it() {
        assert_eq!(
            run(
                &job(&["sleep", "60"]),
                &[],
                Some(Duration::from_millis(50)),
                quiet()
            )
            .unwrap(),
            124
        );
    }
}

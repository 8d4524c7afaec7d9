//! Runs the command and carries its streams over the port.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::{
    Port,
    protocol::{Job, Kind, leading_i32, read_frame},
    sys,
};

/// How long output may pause, after the command's end, before what still holds its streams is left behind.
const QUIET: Duration = Duration::from_millis(60);

/// Why a command was not run: the status to exit with, and a text.
pub(crate) type NotRun = (i32, String);

/// Runs the job to its end and returns the status to exit with.
pub(crate) fn run(job: &Job, port: &Port, input: File) -> Result<i32, NotRun> {
    let mut command = prepare(job)?;
    let name = command.get_program().to_string_lossy().into_owned();
    let spawn = |command: &mut Command| command.spawn().map_err(|error| not_started(&name, &error));
    let pumps = Pumps::default();
    let group;
    let (stdin, terminal): (Box<dyn Write + Send>, Option<File>);
    if job.terminal == (0, 0) {
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(&mut command)?;
        group = child.id();
        if let Some(stdout) = child.stdout.take() {
            pumps.start(stdout, Kind::Stdout, port);
        }
        if let Some(stderr) = child.stderr.take() {
            pumps.start(stderr, Kind::Stderr, port);
        }
        (stdin, terminal) = (
            child
                .stdin
                .take()
                .map_or_else(|| Box::new(io::sink()) as _, |pipe| Box::new(pipe) as _),
            None,
        );
    } else {
        let failed =
            |error: io::Error| (125, format!("cannot open a terminal in the guest: {error}"));
        let (control, theirs) = sys::open_terminal(job.terminal).map_err(failed)?;
        let copy = || theirs.try_clone().map_err(failed);
        command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
        sys::lead_session(&mut command);
        let child = spawn(&mut command)?;
        // The command's side stays open in its own process only, so that reading ends with it.
        drop((command, theirs));
        group = child.id();
        pumps.start(control.try_clone().map_err(failed)?, Kind::Stdout, port);
        (stdin, terminal) = (
            Box::new(control.try_clone().map_err(failed)?),
            Some(control),
        );
    }
    let group = i32::try_from(group).unwrap_or(i32::MAX);
    take_orders(input, port, stdin, group, terminal);
    let code =
        wait_for(group).map_err(|error| (125, format!("cannot wait for the command: {error}")))?;
    pumps.drain();
    Ok(code)
}

fn prepare(job: &Job) -> Result<Command, NotRun> {
    let [program, arguments @ ..] = job.argv.as_slice() else {
        return Err((125, "no command".into()));
    };
    let current_dir = Path::new(OsStr::from_bytes(&job.current_dir));
    if let Err(error) = fs::metadata(current_dir) {
        return Err((
            125,
            format!("cannot enter {}: {error}", current_dir.display()),
        ));
    }
    let variables: Vec<(OsString, OsString)> = job
        .env
        .iter()
        .filter_map(|variable| split_variable(variable))
        .collect();
    let path = variables
        .iter()
        .find(|(key, _)| key == "PATH")
        .map(|(_, value)| value.clone())
        .unwrap_or_default();
    let program = OsStr::from_bytes(program);
    let found = find(program, &path, current_dir).ok_or_else(|| {
        (
            127,
            format!("{}: command not found", program.to_string_lossy()),
        )
    })?;
    let mut command = Command::new(found);
    command
        .arg0(program)
        .args(arguments.iter().map(|argument| OsStr::from_bytes(argument)))
        .current_dir(current_dir);
    command.env_clear().envs(variables);
    Ok(command)
}

fn split_variable(variable: &[u8]) -> Option<(OsString, OsString)> {
    let equals = variable.iter().position(|byte| *byte == b'=')?;
    Some((
        OsStr::from_bytes(&variable[..equals]).into(),
        OsStr::from_bytes(&variable[equals + 1..]).into(),
    ))
}

/// Finds a program as a shell does. A file that is there but cannot be executed is found too: the error comes later.
fn find(program: &OsStr, path: &OsStr, current_dir: &Path) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        let full = current_dir.join(program);
        return full.exists().then_some(full);
    }
    let candidates: Vec<PathBuf> = std::env::split_paths(path)
        .map(|folder| current_dir.join(folder).join(program))
        .filter(|file| file.is_file())
        .collect();
    let executable = |file: &&PathBuf| {
        fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
    };
    candidates
        .iter()
        .find(executable)
        .or(candidates.first())
        .cloned()
}

fn not_started(name: &str, error: &io::Error) -> NotRun {
    let hint = if error.kind() == io::ErrorKind::NotFound {
        " (its interpreter or loader is missing)"
    } else {
        ""
    };
    (126, format!("{name}: cannot execute: {error}{hint}"))
}

/// Takes in every child that ends until the command itself has.
fn wait_for(command: i32) -> io::Result<i32> {
    loop {
        match sys::wait_any() {
            Ok((pid, status)) if pid == command => return Ok(exit_code(status)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The status of a shell: the command's own, or 128 and the signal that ended it.
fn exit_code(raw: i32) -> i32 {
    let status = ExitStatus::from_raw(raw);
    status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(125)
}

/// Starts the thread that does what the host says.
fn take_orders(
    mut input: File,
    port: &Port,
    stdin: Box<dyn Write + Send>,
    group: i32,
    terminal: Option<File>,
) {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    let writer = port.clone();
    thread::spawn(move || feed(stdin, &receiver, &writer));
    let mut sender = Some(sender);
    thread::spawn(move || {
        loop {
            match read_frame(&mut input) {
                Ok(Some((Kind::Stdin, bytes))) => {
                    sender.as_ref().map(|sender| sender.send(bytes));
                }
                Ok(Some((Kind::StdinEnd, _))) => sender = None,
                Ok(Some((Kind::Signal, payload))) => {
                    if let Some(signal) = leading_i32(&payload) {
                        sys::signal_group(group, signal);
                    }
                }
                Ok(Some((Kind::Resize, payload))) => {
                    if let (Some(control), [a, b, c, d]) = (&terminal, payload.as_slice()) {
                        let _ = sys::resize_terminal(
                            control,
                            (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d])),
                        );
                    }
                }
                Ok(Some(_)) => {}
                // The host has gone: nobody is left to run anything for.
                Ok(None) | Err(_) => sys::power_off(),
            }
        }
    });
}

/// Writes what arrives to the command's standard input, and gives the host its credit back.
fn feed(mut stdin: Box<dyn Write + Send>, chunks: &mpsc::Receiver<Vec<u8>>, port: &Port) {
    let mut open = true;
    for chunk in chunks {
        // A command that has closed its input loses the rest, as with any pipe, but the host need not wait.
        open = open && stdin.write_all(&chunk).and_then(|()| stdin.flush()).is_ok();
        port.send(
            Kind::Credit,
            &u32::try_from(chunk.len()).unwrap_or(u32::MAX).to_le_bytes(),
        );
    }
}

/// The threads that carry output to the host.
#[derive(Default, Clone)]
struct Pumps {
    /// How many have not seen the end of their stream.
    open: Arc<AtomicUsize>,
    /// How many are sending at this moment.
    sending: Arc<AtomicUsize>,
    /// How many pieces have been read.
    pieces: Arc<AtomicU64>,
}

impl Pumps {
    fn start(&self, mut from: impl Read + Send + 'static, kind: Kind, port: &Port) {
        let (pumps, port) = (self.clone(), port.clone());
        self.open.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                match from.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // EIO: the last holder of the terminal's other side has gone.
                    Ok(0) | Err(_) => break,
                    Ok(length) => {
                        pumps.sending.fetch_add(1, Ordering::SeqCst);
                        pumps.pieces.fetch_add(1, Ordering::SeqCst);
                        port.send(kind, &buffer[..length]);
                        pumps.sending.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            }
            pumps.open.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// Waits until all output has been sent: to the end of the streams, or, when something the command started still
    /// holds them open, until it has been quiet for a moment.
    fn drain(&self) {
        let mut seen = self.pieces.load(Ordering::SeqCst);
        let mut quiet = Duration::ZERO;
        while self.open.load(Ordering::SeqCst) > 0 && quiet < QUIET {
            thread::sleep(Duration::from_millis(1));
            let now = self.pieces.load(Ordering::SeqCst);
            let busy = now != seen || self.sending.load(Ordering::SeqCst) > 0;
            quiet = if busy {
                Duration::ZERO
            } else {
                quiet + Duration::from_millis(1)
            };
            seen = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(exit_code(7 << 8), 7);
        assert_eq!(exit_code(9), 137);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let path = OsStr::new("/nonexistent:/bin");
        assert_eq!(
            find(OsStr::new("sh"), path, Path::new("/")),
            Some("/bin/sh".into())
        );
        assert_eq!(
            find(OsStr::new("bin/sh"), path, Path::new("/")),
            Some("/bin/sh".into())
        );
        assert_eq!(
            find(OsStr::new("no-such-program"), path, Path::new("/")),
            None
        );
    }

    #[test]
    fn variables_may_hold_equals_signs() {
        assert_eq!(split_variable(b"A=b=c"), Some(("A".into(), "b=c".into())));
        assert_eq!(split_variable(b"A"), None);
    }
}

//! One run of the machine: starts it, carries the streams, and finds out how it ended.

use std::{
    io::{self, Write},
    process::{Child, ChildStdout},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    console::Console,
    input::{Input, Orders},
    qemu::Machine,
    stdio::{Source, Stdio},
    terminal,
};
use crate::{
    EXIT_TIME_LIMIT, Error,
    progress::Progress,
    protocol::{Job, Kind, leading_i32, read_frame},
    signals::Watch,
};

const SIGPIPE: i32 = 13;
const SIGWINCH: i32 = 28;

/// How long a command may take to end after it was asked to by a signal.
const GRACE: Duration = Duration::from_secs(3);

/// What happens while a machine runs.
#[derive(Debug)]
enum Event {
    Hello,
    Ready,
    Ended(i32),
    Failed(i32, String),
    Gone,
    OutputLost(io::Error),
    Signal(i32),
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    /// With a status.
    Status(i32),
    /// The guest gave no sign of life in the time that it had for one.
    NoLife,
}

/// The writers for the command's output.
type Outputs = (Box<dyn Write + Send>, Box<dyn Write + Send>);

/// What a run needs beside the machine.
pub(crate) struct Session<'a> {
    /// What the guest is to do.
    pub(crate) job: &'a Job,
    /// When the time is over: the moment, and the length for the message.
    pub(crate) limit: Option<(Instant, Duration)>,
    outputs: Arc<Mutex<Outputs>>,
    stdin: Option<Source>,
    alive: bool,
}

impl<'a> Session<'a> {
    /// Takes the streams.
    pub(crate) fn new(job: &'a Job, limit: Option<(Instant, Duration)>, stdio: Stdio) -> Self {
        Self {
            job,
            limit,
            outputs: Arc::new(Mutex::new((stdio.stdout, stdio.stderr))),
            stdin: Some(stdio.stdin),
            alive: false,
        }
    }

    /// Tells whether the guest has shown a sign of life.
    pub(crate) fn alive(&self) -> bool {
        self.alive
    }

    /// Starts the machine and stays until it has ended. With a patience, gives up when the guest shows no sign of life within it.
    pub(crate) fn attempt(
        &mut self,
        machine: &Machine<'_>,
        patience: Option<Duration>,
        progress: &mut Progress,
    ) -> Result<End, Error> {
        let (sender, events) = mpsc::channel();
        let for_signals = sender.clone();
        // Dropped last: signals are watched until the machine has gone.
        let _watch = Watch::start(move |signal| drop(for_signals.send(Event::Signal(signal))))
            .map_err(|source| Error::NotStarted(format!("cannot watch for signals: {source}")))?;
        let mut child = Running(machine.start()?);
        let console = Console::read(child.0.stderr.take(), machine.verbose);
        let orders = Orders::start(child.0.stdin.take());
        let input = Arc::new(Input::default());
        if let Some(stdout) = child.0.stdout.take() {
            let (outputs, input) = (Arc::clone(&self.outputs), Arc::clone(&input));
            thread::spawn(move || listen(stdout, &outputs, &input, &sender));
        }
        let mut state = State {
            ready: false,
            asked: None,
            raw: None,
        };
        let patience = patience.map(|patience| Instant::now() + patience);
        let mut _reading = None;
        loop {
            let limit = self.limit.map(|(moment, _)| moment);
            let life = patience.filter(|_| !self.alive);
            let grace = state.asked.map(|(_, moment)| moment);
            match next(&events, [limit, life, grace]) {
                Some(Event::Hello) => {
                    self.alive = true;
                    orders.send(Kind::Start, self.job.encode());
                }
                Some(Event::Ready) => {
                    state.ready = true;
                    progress.finish();
                    if self.job.terminal != (0, 0) {
                        state.raw = terminal::Raw::enter().ok();
                    }
                    _reading = self.stdin.take().map(|stdin| input.start(stdin, &orders));
                }
                Some(Event::Ended(code)) => return Ok(End::Status(code)),
                Some(Event::Failed(125, text)) => return Err(Error::Guest(text)),
                Some(Event::Failed(code, text)) => {
                    return Ok(End::Status(self.say(state, code, &text)));
                }
                Some(Event::Gone) => {
                    progress.finish();
                    drop(state.raw.take());
                    return Err(console.explain(child.status(), self.alive));
                }
                Some(Event::OutputLost(error)) => {
                    // A reader that has had enough is nothing to talk about.
                    if error.kind() != io::ErrorKind::BrokenPipe {
                        eprintln!("softroce: cannot write the command's output: {error}");
                    }
                    orders.send(Kind::Signal, SIGPIPE.to_le_bytes().to_vec());
                    state.asked = state.asked.or(Some((SIGPIPE, Instant::now() + GRACE)));
                }
                Some(Event::Signal(SIGWINCH)) => {
                    let (rows, columns) = terminal::size();
                    if self.job.terminal != (0, 0) {
                        orders.send(
                            Kind::Resize,
                            [rows.to_le_bytes(), columns.to_le_bytes()].concat(),
                        );
                    }
                }
                Some(Event::Signal(signal)) if state.ready && state.asked.is_none() => {
                    orders.send(Kind::Signal, signal.to_le_bytes().to_vec());
                    state.asked = Some((signal, Instant::now() + GRACE));
                }
                Some(Event::Signal(signal)) => return Ok(End::Status(128 + signal)),
                None => {
                    let now = Instant::now();
                    if let Some((_, length)) = self.limit.filter(|(moment, _)| *moment <= now) {
                        let text = format!("the time limit of {} s ran out", length.as_secs_f64());
                        progress.finish();
                        return Ok(End::Status(self.say(state, EXIT_TIME_LIMIT, &text)));
                    }
                    if let Some((signal, _)) = state.asked.filter(|(_, moment)| *moment <= now) {
                        return Ok(End::Status(128 + signal));
                    }
                    if life.is_some_and(|moment| moment <= now) {
                        return Ok(End::NoLife);
                    }
                }
            }
        }
    }

    /// Writes a message where the command's standard error goes, unless output is stuck there.
    fn say(&self, state: State, code: i32, text: &str) -> i32 {
        drop(state.raw);
        if let Ok(mut outputs) = self.outputs.try_lock() {
            let _ = writeln!(outputs.1, "softroce: {text}").and_then(|()| outputs.1.flush());
        } else {
            eprintln!("softroce: {text}");
        }
        code
    }
}

/// What has happened so far.
struct State {
    ready: bool,
    /// The signal by which the command was asked to end, and when its time for that is over.
    asked: Option<(i32, Instant)>,
    raw: Option<terminal::Raw>,
}

/// The process, ended when it is dropped.
struct Running(Child);

impl Running {
    fn status(&mut self) -> String {
        self.0
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for an event until the earliest of the moments.
fn next(events: &mpsc::Receiver<Event>, moments: [Option<Instant>; 3]) -> Option<Event> {
    match moments.into_iter().flatten().min() {
        // The sender for signals lives as long as the watch: this does not fail.
        None => events.recv().ok(),
        Some(moment) => events
            .recv_timeout(moment.saturating_duration_since(Instant::now()))
            .ok(),
    }
}

/// Reads what the guest says to its end.
fn listen(
    from: ChildStdout,
    outputs: &Mutex<Outputs>,
    input: &Input,
    events: &mpsc::Sender<Event>,
) {
    let mut from = io::BufReader::with_capacity(128 * 1024, from);
    let mut lost = false;
    while let Ok(Some((kind, payload))) = read_frame(&mut from) {
        let event = match kind {
            Kind::Hello => Event::Hello,
            Kind::Ready => Event::Ready,
            Kind::Stdout | Kind::Stderr => {
                if lost {
                    continue;
                }
                match write_out(&mut lock(outputs), kind, &payload) {
                    Ok(()) => continue,
                    Err(error) => {
                        lost = true;
                        Event::OutputLost(error)
                    }
                }
            }
            Kind::Credit => {
                input.credit(
                    leading_i32(&payload)
                        .and_then(|bytes| usize::try_from(bytes).ok())
                        .unwrap_or(0),
                );
                continue;
            }
            Kind::Exit => Event::Ended(leading_i32(&payload).unwrap_or(crate::EXIT_VM_FAILED)),
            Kind::Failed => {
                let text =
                    String::from_utf8_lossy(payload.get(4..).unwrap_or_default()).into_owned();
                Event::Failed(leading_i32(&payload).unwrap_or(crate::EXIT_VM_FAILED), text)
            }
            _ => continue,
        };
        if events.send(event).is_err() {
            return;
        }
    }
    let _ = events.send(Event::Gone);
}

fn write_out((stdout, stderr): &mut Outputs, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let to = if kind == Kind::Stdout { stdout } else { stderr };
    to.write_all(payload)?;
    to.flush()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_moment_ends_the_waiting() {
        let (sender, receiver) = mpsc::channel();
        let soon = Instant::now() + Duration::from_millis(5);
        let late = Instant::now() + Duration::from_secs(600);
        assert!(next(&receiver, [Some(late), None, Some(soon)]).is_none());
        sender.send(Event::Ready).unwrap();
        assert!(matches!(
            next(&receiver, [None, None, Some(late)]),
            Some(Event::Ready)
        ));
    }

    #[test]
    fn output_keeps_to_its_stream() {
        #[derive(Clone, Default)]
        struct Shared(Arc<Mutex<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                lock(&self.0).extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (out, err) = (Shared::default(), Shared::default());
        let mut outputs: Outputs = (Box::new(out.clone()), Box::new(err.clone()));
        write_out(&mut outputs, Kind::Stdout, b"a\r\n\0").unwrap();
        write_out(&mut outputs, Kind::Stderr, b"b").unwrap();
        assert_eq!(
            (lock(&out.0).as_slice(), lock(&err.0).as_slice()),
            (b"a\r\n\0".as_slice(), b"b".as_slice())
        );
    }
}

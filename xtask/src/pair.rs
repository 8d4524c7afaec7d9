//! The demo's two sides, beside the device: starts `accept`, starts `connect` once it listens, shows what both say, and
//! checks that it was the story of an accepted connection.

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::IpAddr,
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Run the examples accept and connect against each other
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address of an RDMA device
    address: IpAddr,
    /// The example accept
    accept: PathBuf,
    /// The example connect
    connect: PathBuf,
}

/// What the two sides say in the course of one connection: a message each way.
const EXPECTED: [(Side, &str); 6] = [
    (Side::Accept, LISTENING),
    (Side::Accept, "request from"),
    (Side::Accept, "established"),
    (Side::Accept, "received 16 bytes"),
    (Side::Connect, "received 16 bytes"),
    (Side::Accept, "disconnected"),
];
const LISTENING: &str = "listening on";

/// For both sides together.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// For `accept`, from the end of `connect`.
const TIME_TO_END: Duration = Duration::from_secs(10);

/// Runs the pair, with status 0 if it told the whole story.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let side = |program: &PathBuf| {
        let mut command = Command::new(program);
        command.arg(args.address.to_string());
        command
    };
    play(
        side(&args.accept),
        side(&args.connect),
        TIME_LIMIT,
        &mut std::io::stdout(),
    )?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Accept,
    Connect,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Connect => "connect",
        }
    }
}

enum Said {
    Line(Side, String),
    /// One of a side's two streams has ended.
    End(Side),
}

/// Starts one side; what it says on either stream goes into the channel.
fn start(side: Side, mut command: Command, said: &Sender<Said>) -> Result<Child> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    if let Some(stdout) = child.stdout.take() {
        listen(side, stdout, said.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        listen(side, stderr, said.clone());
    }
    Ok(child)
}

fn listen(side: Side, stream: impl Read + Send + 'static, said: Sender<Said>) {
    thread::spawn(move || {
        // Whoever no longer listens has given up already.
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let _ = said.send(Said::Line(
                side,
                String::from_utf8_lossy(&line).into_owned(),
            ));
        }
        let _ = said.send(Said::End(side));
    });
}

/// Plays both sides to the end, or to the time limit.
fn play(accept: Command, connect: Command, limit: Duration, out: &mut impl Write) -> Result<()> {
    let (said, hear) = channel();
    let mut children = vec![(Side::Accept, start(Side::Accept, accept, &said)?)];
    let mut unstarted = Some(connect);
    let told = hear_out(&hear, Instant::now() + limit, out, || {
        if let Some(connect) = unstarted.take() {
            children.push((Side::Connect, start(Side::Connect, connect, &said)?));
        }
        Ok(())
    });
    let in_time = matches!(told, Ok((_, true)));
    let mut faults = Vec::new();
    for (side, child) in &mut children {
        if let Some(fault) = end(*side, child, in_time)? {
            faults.push(fault);
        }
    }
    let (unsaid, _) = told?;
    faults.extend(
        unsaid
            .iter()
            .map(|(side, words)| format!("`{}` did not say `{words}`", side.name())),
    );
    if !faults.is_empty() {
        bail!("no accepted connection was seen: {}", faults.join("; "));
    }
    Ok(())
}

/// Sees to it that a side has ended, and says what was wrong with its end. One that is done has closed its streams.
fn end(side: Side, child: &mut Child, done: bool) -> Result<Option<String>> {
    let name = side.name();
    let waited = if done {
        child.wait().map(Some)
    } else {
        child.try_wait()
    };
    Ok(
        match waited.with_context(|| format!("cannot wait for `{name}`"))? {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("`{name}` ended with {status}")),
            None => {
                child
                    .kill()
                    .and_then(|()| child.wait().map(drop))
                    .with_context(|| format!("cannot end `{name}`"))?;
                Some(format!("`{name}` did not end in time, and was ended"))
            }
        },
    )
}

/// Shows what both sides say until all streams have ended. Returns what they left unsaid, and whether it was in time.
fn hear_out(
    hear: &Receiver<Said>,
    mut deadline: Instant,
    out: &mut impl Write,
    mut listening: impl FnMut() -> Result<()>,
) -> Result<(Vec<(Side, &'static str)>, bool)> {
    let mut unsaid = EXPECTED.to_vec();
    // Each side has two streams.
    let (mut open_accept, mut open_connect, mut listens) = (2, 2, false);
    while open_accept > 0 || (listens && open_connect > 0) {
        match hear.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Said::Line(side, line)) => {
                writeln!(out, "{:>8} | {line}", side.name())
                    .context("cannot write to standard output")?;
                unsaid.retain(|(who, words)| *who != side || !line.contains(words));
                if side == Side::Accept && line.contains(LISTENING) {
                    listens = true;
                    listening()?;
                }
            }
            Ok(Said::End(Side::Accept)) => open_accept -= 1,
            Ok(Said::End(Side::Connect)) => {
                open_connect -= 1;
                deadline = deadline.min(Instant::now() + TIME_TO_END);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Ok((unsaid, false));
            }
        }
    }
    Ok((unsaid, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn outcome(accept: &str, connect: &str) -> (Result<(), String>, String) {
        let mut out = Vec::new();
        let played = play(sh(accept), sh(connect), Duration::from_secs(5), &mut out);
        (
            played.map_err(|error| error.to_string()),
            String::from_utf8_lossy(&out).into_owned(),
        )
    }

    const GOOD: &str =
        "echo listening on 1.2.3.4:5; sleep 0.1; echo request from 1.2.3.4:6; echo established
        echo received 16 bytes; echo disconnected";

    #[test]
    fn the_whole_story_passes() {
        let (played, shown) = outcome(GOOD, "echo received 16 bytes >&2");
        assert_eq!(played, Ok(()));
        assert!(
            shown.starts_with("  accept | listening on 1.2.3.4:5\n"),
            "{shown}"
        );
        assert!(shown.contains(" connect | received 16 bytes\n"), "{shown}");
    }

    #[test]
    fn a_missing_line_fails() {
        let (played, _) = outcome(
            "echo listening on; echo request from; echo established; echo disconnected",
            "true",
        );
        let error = played.expect_err("it received nothing");
        assert!(
            error.contains("`accept` did not say `received 16 bytes`"),
            "{error}"
        );
        let (played, _) = outcome(GOOD, "true");
        let error = played.expect_err("it received no answer");
        assert!(
            error.contains("`connect` did not say `received 16 bytes`"),
            "{error}"
        );
    }

    #[test]
    fn a_side_that_fails_fails_both() {
        let (played, _) = outcome(GOOD, "exit 3");
        let error = played.expect_err("connect failed");
        assert!(
            error.contains("`connect` ended with exit status: 3"),
            "{error}"
        );
        let (played, _) = outcome(&format!("{GOOD}; kill -9 $$"), "true");
        let error = played.expect_err("accept failed");
        assert!(error.contains("`accept` ended with signal: 9"), "{error}");
    }

    #[test]
    fn a_server_that_never_listens_ends_the_demo() {
        let (played, shown) = outcome("echo no RDMA device >&2; exit 1", "echo I never ran");
        let error = played.expect_err("nothing listened");
        assert!(
            error.contains("`accept` ended with exit status: 1"),
            "{error}"
        );
        assert_eq!(shown, "  accept | no RDMA device\n");
    }

    #[test]
    fn a_server_that_hangs_is_ended() {
        let mut out = Vec::new();
        let before = Instant::now();
        let played = play(
            sh("echo listening on; exec sleep 60"),
            sh("true"),
            Duration::from_secs(1),
            &mut out,
        );
        let error = played.expect_err("it hung").to_string();
        assert!(error.contains("`accept` did not end in time"), "{error}");
        assert!(before.elapsed() < Duration::from_secs(30));
    }
}

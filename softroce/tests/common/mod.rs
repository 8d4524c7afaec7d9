//! Runs the program and looks for what it may have left behind.

use std::{
    fs,
    io::Write,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// The program with these arguments.
pub(crate) fn softroce(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softroce"));
    command.args(arguments);
    command
}

/// Runs a command to its end with that standard input.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Run {
    let mut child = start(command);
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that does not read its input closes it: no error of this test.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let run = finish(child);
    writer.join().unwrap();
    run
}

/// Starts a command.
pub(crate) fn start(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for its end.
pub(crate) fn finish(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code(),
        signal: output.status.signal(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Checks that there was exactly one message, and returns it.
pub(crate) fn one_message(run: &Run) -> &str {
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("softroce: "),
        "not one message: {:?}",
        run.stderr
    );
    lines[0]
}

/// Checks that no process has this text in its command line; one that is ending gets a moment.
pub(crate) fn assert_no_process(marker: &Path) {
    let marker = marker.to_str().unwrap().as_bytes();
    let holders = || -> Vec<String> {
        let processes = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .filter(|line| line.windows(marker.len()).any(|part| part == marker))
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .collect()
    };
    let start = Instant::now();
    while !holders().is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "left behind: {:?}",
            holders()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

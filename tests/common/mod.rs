//! What the device tests share. They run on soft-RoCE inside the micro-VM, alone on their device, one after the other.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod cm;
pub(crate) mod datagram;
pub(crate) mod interop;
pub(crate) mod iwarp;
pub(crate) mod load;
pub(crate) mod net;
pub(crate) mod raw;
pub(crate) mod removal;
pub(crate) mod tools;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The address of the first soft-RoCE device.
pub(crate) const ADDR: &str = "10.9.0.1";
/// Its IPv6 address.
pub(crate) const ADDR6: &str = "fd09::1";

/// The address of the second soft-RoCE device, which does not reach the first.
pub(crate) const ADDR_OF_SECOND: &str = "10.9.1.1";

/// How long anything here may take before it counts as stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Fails the test, with what to do, when there is no RDMA device. Every device test calls it first.
pub(crate) fn device() {
    let devices = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    assert!(
        devices > 0,
        "this test needs an RDMA device with the address {ADDR}: run `cargo xtask test`"
    );
}

/// An address of the first device with a port of the kernel's choice.
pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::new(ADDR.parse().expect("an address"), 0)
}

/// Runs `action` on a thread of its own and fails when it takes longer than a test may. A wait of [`PATIENCE`] inside ends
/// first, and says better what it waited for.
pub(crate) fn in_time<T: Send + 'static>(
    what: &str,
    action: impl FnOnce() -> T + Send + 'static,
) -> T {
    within(PATIENCE + PATIENCE, what, action)
}

/// Runs `action` on a thread of its own and fails when it takes longer than `patience`.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    what: &str,
    action: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || {
        let result = action();
        // The receiver is gone only when the test has failed already.
        let _ = sender.send(());
        result
    });
    if receiver.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("{what} took longer than {patience:?}");
    }
    match worker.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Waits until `condition` holds; says at the end what did not.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// A network device without an RDMA device, removed with the test.
pub(crate) struct PlainNetdev;

impl PlainNetdev {
    const NAME: &str = "plain0";
    /// Its address.
    pub(crate) const ADDR: &str = "10.9.77.1";
    /// An address that leads through it.
    pub(crate) const PEER: &str = "10.9.77.2";

    pub(crate) fn new() -> Self {
        command("ip", &["link", "add", Self::NAME, "type", "dummy"]);
        let plain = Self;
        let addr = format!("{}/24", Self::ADDR);
        command("ip", &["addr", "add", &addr, "dev", Self::NAME]);
        command("ip", &["link", "set", Self::NAME, "up"]);
        plain
    }
}

impl Drop for PlainNetdev {
    fn drop(&mut self) {
        // The test has failed already, or it is gone with this.
        let _ = Command::new("ip")
            .args(["link", "del", Self::NAME])
            .status();
    }
}

/// The network device that has `addr`.
pub(crate) fn netdev_of(addr: &str) -> String {
    let output = run(Command::new("ip").args(["-o", "addr", "show", "to", addr]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = text.split_whitespace().nth(1);
    name.unwrap_or_else(|| panic!("no network device has {addr}"))
        .to_owned()
}

/// Runs a command of the system, which must succeed.
pub(crate) fn command(program: &str, args: &[&str]) {
    let output = run(Command::new(program).args(args));
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}

/// What `rdma resource show` counts, such as `rxe0: pd 1 cq 1 ...`.
pub(crate) fn resources() -> String {
    let output = Command::new("rdma").args(["resource", "show"]).output();
    let output = output.expect("`rdma` of iproute2 is needed");
    assert!(output.status.success(), "rdma resource show: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How many file descriptors a process has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    let folder = format!("/proc/{pid}/fd");
    std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .count()
}

/// A built example of this crate, beside the test's own executable.
pub(crate) fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("target/PROFILE/deps");
    let path: PathBuf = folder.join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo build --examples`",
        path.display()
    );
    Command::new(path)
}

/// A program in the background, ended with the test.
pub(crate) struct Server {
    child: Child,
    /// Taken by whoever reads to the end.
    lines: Option<BufReader<ChildStdout>>,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints; empty at its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let lines = self.lines.as_mut().expect("nobody reads them");
        lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Reads from now on what it prints, so that it never waits for a reader.
    pub(crate) fn read_on(&mut self) -> JoinHandle<Vec<String>> {
        let lines = self.lines.take().expect("nobody reads them");
        thread::spawn(move || lines.lines().map(|line| line.expect("text")).collect())
    }

    /// Waits for its end, and gives its exit status and what it printed since the last line read.
    pub(crate) fn finish(mut self) -> (Option<i32>, Vec<String>) {
        let rest = self.read_on();
        (self.ended(), rest.join().expect("no panic"))
    }

    /// Waits for its end, which must come in time, and gives its exit status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        eventually("the program ends", || !self.is_running());
        self.child.wait().expect("its own child").code()
    }

    /// Whether it is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("its own child").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, which must come in time.
pub(crate) fn run(command: &mut Command) -> Output {
    run_within(PATIENCE, command)
}

/// Runs a program to its end, which must come within `patience`.
pub(crate) fn run_within(patience: Duration, command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(patience).unwrap_or_else(|_| {
        // The child is this test's own and was not waited for, so the number is still its.
        let _ = Command::new("kill").arg(pid.to_string()).status();
        panic!("{command:?} took longer than {patience:?}")
    });
    drop(waiter);
    output.expect("its own child")
}

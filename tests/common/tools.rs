//! rdma-core's tools and this crate's of the same names, one side against the other.

use std::process::{Command, Output};
use std::thread;

use super::{Server, eventually, example, in_time, run};

/// Whose program a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    Rust,
    C,
}

/// Every pair of a server and a client of which one at least is this crate's, with its port: the tool's own, or another, so
/// that pairs can run at the same time.
pub(crate) const PAIRS: [(Maker, Maker, &[&str]); 3] = [
    (Maker::Rust, Maker::C, &[]),
    (Maker::C, Maker::Rust, &["-p", "7201"]),
    (Maker::Rust, Maker::Rust, &["-p", "7202"]),
];

/// The tool `name` with `args`.
pub(crate) fn tool(maker: Maker, name: &str, args: &[&str]) -> Command {
    let mut command = match maker {
        Maker::Rust => example(name),
        Maker::C => Command::new(name),
    };
    command.args(args);
    command
}

/// Starts a server, and waits until it listens.
pub(crate) fn listening(maker: Maker, name: &str, args: &[&str]) -> Server {
    let mut server = Server::start(&mut tool(maker, name, args));
    if maker == Maker::Rust {
        let line = server.line();
        assert!(line.starts_with("listening on "), "{name} said {line:?}");
        return server;
    }
    // C's output is buffered when it goes to a pipe, so there is no line to wait for.
    let pid = format!(" pid {} ", server.pid());
    eventually("the server listens", || {
        assert!(server.is_running(), "{name} {args:?} has ended");
        let output = run(Command::new("rdma").args(["resource", "show", "cm_id"]));
        let shown = lines_of(&output);
        let mut lines = shown.iter();
        lines.any(|line| line.contains(" state LISTEN ") && line.contains(&pid))
    });
    server
}

/// Runs a client against a server of its own, both of which must end with 0; gives what each printed, the server's first.
pub(crate) fn pair(
    name: &str,
    (server, serve): (Maker, &[&str]),
    (client, ask): (Maker, &[&str]),
) -> [Vec<String>; 2] {
    let said = format!("{name}, {client:?} {ask:?} against {server:?} {serve:?}");
    let server = listening(server, name, serve);
    // Read while the client runs: a pipe that is full would hold the server.
    let server = thread::spawn(move || in_time("the server", move || server.finish()));
    let output = run(&mut tool(client, name, ask));
    assert_eq!(output.status.code(), Some(0), "{said}: {output:?}");
    let (status, lines) = server.join().expect("no panic");
    assert_eq!(status, Some(0), "server, {said}: {lines:?}");
    [lines, lines_of(&output)]
}

/// What a program has printed.
pub(crate) fn lines_of(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

//! rdma-core's tools and this crate's of the same names, one side against the other.

use std::process::{Command, Output};

use super::{Server, eventually, example, run};

/// Whose program a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    Rust,
    C,
}

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
    let mut server = listening(server, name, serve);
    let lines = server.read_on();
    let output = run(&mut tool(client, name, ask));
    assert_eq!(output.status.code(), Some(0), "{said}: {output:?}");
    let status = server.ended();
    let lines = lines.join().expect("no panic");
    assert_eq!(status, Some(0), "server, {said}: {lines:?}");
    [lines, lines_of(&output)]
}

/// What a program has printed.
pub(crate) fn lines_of(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

/// Runs a tool that must fail, and gives its status and what it says.
pub(crate) fn failing(maker: Maker, name: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = tool(maker, name, args);
    let output = run(&mut command);
    assert!(!output.status.success(), "{command:?}: {output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

/// Runs a tool that must fail as its twin in C does, and gives what both say, this crate's first.
pub(crate) fn failing_alike(name: &str, args: &[&str], status: i32) -> [String; 2] {
    [Maker::Rust, Maker::C].map(|maker| {
        let (code, text) = failing(maker, name, args);
        assert_eq!(code, Some(status), "{maker:?} {name} {args:?}: {text}");
        text
    })
}

//! What `cmtime` and rdma-core's hold while all their connections stand, on a real device.

mod common;

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

use common::tools::{Maker, lines_of, listening, tool};
use common::{ADDR, device, eventually, resources, run};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// How many connections stand.
const CONNECTIONS: usize = 50;

/// What there is of each kind, as `rdma resource show` has it.
type Counts = Vec<(String, i64)>;

fn counts() -> Counts {
    let text = resources();
    let line = text.lines().find(|line| line.contains("qp ")).expect("qp");
    let (_, counts) = line.split_once(": ").expect("a number");
    let (_, counts) = counts.split_once(": ").expect("a device");
    let words: Vec<_> = counts.split_whitespace().collect();
    words
        .chunks_exact(2)
        .map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a number")))
        .collect()
}

/// How many of each there are beyond `before`, which has the same kinds.
fn beyond(now: &Counts, before: &Counts) -> Counts {
    now.iter()
        .zip(before)
        .map(|((kind, now), (same, before))| {
            assert_eq!(kind, same);
            (kind.clone(), now - before)
        })
        .collect()
}

/// How many queue pairs are ready to send.
fn ready() -> usize {
    let output = run(Command::new("rdma").args(["resource", "show", "qp"]));
    let lines = lines_of(&output);
    let ready = lines
        .iter()
        .filter(|line| line.contains("type RC state RTS"));
    ready.count()
}

/// Counts what two programs hold while `connections` connections stand: what there is beyond what was before.
///
/// The client writes a line before each step. It goes on to the next while one line is not read, and waits to write the
/// second: so it waits between connect and disconnect.
fn at_the_peak(server: Maker, client: Maker, connections: usize) -> Counts {
    let before = counts();
    let server = listening(server, "cmtime", &["-b", ADDR]);
    let (lines, end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT).expect("a pipe");
    // Rounded up to a page, which holds one line.
    fcntl_setpipe_size(&end, 1).expect("a small pipe");
    let mut lines = File::from(lines);
    // C's program would keep its lines to itself.
    let count = connections.to_string();
    let client = tool(client, "cmtime", &["-s", ADDR, "-b", ADDR, "-c", &count]);
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(client.get_program());
    command.args(client.get_args());
    let mut running = command.stdout(Stdio::from(end)).spawn().expect("stdbuf");
    drop(command);
    let mut line = [0; 4096];
    loop {
        let length = lines.read(&mut line).expect("a line");
        assert_ne!(length, 0, "it has ended");
        if line.starts_with(b"creating q") {
            break;
        }
    }
    let waits_in = format!("/proc/{}/wchan", running.id());
    eventually("the client has connected all", || {
        fs::read_to_string(&waits_in).is_ok_and(|place| place.contains("pipe"))
    });
    let now = counts();
    assert_eq!(ready(), 2 * connections);
    while lines.read(&mut line).expect("a line") > 0 {}
    assert!(running.wait().expect("its own child").success());
    drop(server);
    beyond(&now, &before)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn cmtime_holds_what_its_twin_holds_while_all_connections_stand() {
    device();
    let twin = at_the_peak(Maker::C, Maker::C, CONNECTIONS);
    for (server, client, ours) in [
        (Maker::C, Maker::Rust, 1),
        (Maker::Rust, Maker::C, 1),
        (Maker::Rust, Maker::Rust, 2),
    ] {
        let found = at_the_peak(server, client, CONNECTIONS);
        for ((kind, found), (same, wanted)) in found.into_iter().zip(&twin) {
            assert_eq!(&kind, same);
            // Each program of this crate has a domain of its own, where that of librdmacm would do, and an id that keeps the
            // device open.
            let more = match kind.as_str() {
                "pd" | "cm_id" => ours,
                _ => 0,
            };
            let pair = format!("{kind}, {server:?} server and {client:?} client");
            assert_eq!(found, wanted + more, "{pair}");
        }
    }
    let queue_pairs = ("qp".to_owned(), 2 * CONNECTIONS as i64);
    assert!(twin.contains(&queue_pairs), "{twin:?}");
}

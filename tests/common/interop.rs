//! Pairs of rdma-core's tools and this crate's of the same names: what each side has to say, and to end with. They run on
//! whichever device has the address.

#![allow(
    unused_macros,
    unused_imports,
    reason = "only test files of pairs use the macro"
)]

use super::tools::{Maker, lines_of, listening, pair, tool};
use super::{eventually, resources, run};

/// A server and a client, of which one at least is this crate's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) server: Maker,
    pub(crate) client: Maker,
}

/// Makes tests of pairs: each name stands for three, so that a failure names its pair.
macro_rules! pairs {
    ($reason:literal, $device:path; $($name:ident => $run:expr;)+) => {$(
        mod $name {
            use super::*;

            fn run(server: Maker, client: Maker) {
                $device();
                let before = resources();
                let run: fn(Pair) = $run;
                run(Pair { server, client });
                eventually("all is gone", || resources() == before);
            }

            #[test]
            #[ignore = $reason]
            fn rust_server_c_client() {
                run(Maker::Rust, Maker::C);
            }

            #[test]
            #[ignore = $reason]
            fn c_server_rust_client() {
                run(Maker::C, Maker::Rust);
            }

            #[test]
            #[ignore = $reason]
            fn rust_server_rust_client() {
                run(Maker::Rust, Maker::Rust);
            }
        }
    )+};
}
pub(crate) use pairs;

/// Pings of a client.
const PINGS: usize = 3;

/// What ping `number` of `size` bytes says: its number, then the letters from A to z again and again, each ping from the next
/// letter on. The last byte is the text's zero.
fn content(number: usize, size: usize) -> String {
    let mut text = format!("rdma-ping-{number}: ");
    let mut letter = number;
    while text.len() < size - 1 {
        text.push(char::from(b'A' + u8::try_from(letter % 58).expect("small")));
        letter += 1;
    }
    text
}

/// Checks that a side printed every ping with every byte.
fn check_pings(side: &str, lines: &[String], size: usize) {
    let texts = lines
        .iter()
        .filter_map(|line| line.find("rdma-ping-").map(|start| &line[start..]));
    let texts: Vec<&str> = texts.collect();
    assert_eq!(texts.len(), PINGS, "the {side} of {size} bytes: {lines:?}");
    for (number, text) in texts.into_iter().enumerate() {
        let wanted = content(number, size);
        assert_eq!(text, wanted, "ping {number} of the {side}");
    }
}

/// `rping` with pings of `size` bytes, and more options for both sides. All data is looked at on both sides: rdma-core's server
/// checks none, but prints it.
pub(crate) fn rping(Pair { server, client }: Pair, addr: &str, size: usize, more: &[&str]) {
    let (count, bytes) = (PINGS.to_string(), size.to_string());
    let common = [&["-a", addr, "-S", &bytes, "-vV"], more].concat();
    let serve = [&["-s"], &common[..]].concat();
    let ask = [&["-c", "-C", &count], &common[..]].concat();
    let [served, asked] = pair("rping", (server, &serve), (client, &ask));
    check_pings(&format!("{server:?} server"), &served, size);
    check_pings(&format!("{client:?} client"), &asked, size);
}

/// `ucmatose`, with options for both sides, such as how many connections.
pub(crate) fn ucmatose(Pair { server, client }: Pair, addr: &str, options: &[&str]) {
    let serve = [&["-b", addr], options].concat();
    let ask = [&["-s", addr], options].concat();
    // Each side counts the messages that come, and ends only when all have.
    let both = pair("ucmatose", (server, &serve), (client, &ask));
    for (maker, lines) in [server, client].into_iter().zip(both) {
        let last = lines.last().map(String::as_str);
        let wanted = match maker {
            Maker::Rust => "done",
            Maker::C => "return status 0",
        };
        assert_eq!(last, Some(wanted), "{maker:?}: {lines:?}");
    }
}

/// The header of `cmtime`'s table.
const HEADER: &str = "step              total ms     max ms     min us  us / conn";

/// The steps of its table, where the client binds its ids.
pub(crate) const STEPS: [&str; 8] = [
    "create id",
    "bind addr",
    "resolve addr",
    "resolve route",
    "create qp",
    "connect",
    "disconnect",
    "destroy",
];

/// `cmtime` with so many connections: every one must go through every step, and be gone from the server afterwards.
pub(crate) fn cmtime(Pair { server, client }: Pair, addr: &str, connections: u32) {
    let mut server = listening(server, "cmtime", &["-b", addr]);
    let at_start = queue_pairs();
    let count = connections.to_string();
    let ask = ["-s", addr, "-b", addr, "-c", &count];
    let output = run(&mut tool(client, "cmtime", &ask));
    // Without a failure, which is told here, and in C, and changes no status.
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let lines = lines_of(&output);
    let failed = |line: &String| line.starts_with("connection ") || line.contains("error");
    assert!(!lines.iter().any(failed), "{lines:?}");

    assert!(lines.iter().any(|line| line == HEADER), "{lines:?}");
    let rows = table(&lines);
    let steps: Vec<_> = rows.iter().map(|(step, _)| step.as_str()).collect();
    assert_eq!(steps, STEPS, "{lines:?}");
    for (step, [total, max, min, average]) in rows {
        // The total is in milliseconds as the longest is, the shortest in microseconds: rounded to two digits all.
        let in_order = total + 0.01 >= max && max * 1000.0 + 10.0 >= min;
        assert!(in_order, "{step}: {lines:?}");
        let sum = average * f64::from(connections) / 1000.0;
        assert!((total - sum).abs() < 0.02, "{step}: {lines:?}");
    }
    eventually("the server has ended its connections", || {
        queue_pairs() == at_start
    });
    assert!(server.is_running(), "it must still serve");
}

/// How many queue pairs there are on the devices.
fn queue_pairs() -> u32 {
    let text = resources();
    let words: Vec<_> = text.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| pair[0] == "qp");
    counts
        .map(|pair| pair[1].parse::<u32>().expect("a number"))
        .sum()
}

/// The rows of `cmtime`'s table: the step, and its total, longest, shortest and average.
fn table(lines: &[String]) -> Vec<(String, [f64; 4])> {
    let rows = lines.iter().skip_while(|line| !line.starts_with("step "));
    let rows = rows.skip(1).map(|row| {
        let (step, numbers) = row.split_once(':').expect("a step");
        let numbers: Vec<f64> = numbers
            .split_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect();
        (step.trim().to_owned(), numbers.try_into().expect("four"))
    });
    rows.collect()
}

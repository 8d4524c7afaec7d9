//! The example `cmtime` beside rdma-core's, on a real device.

mod common;

use std::process::{Command, Output};

use common::{ADDR, ADDR6, Server, device, eventually, example, resources, run};

/// How many connections each run makes.
const CONNECTIONS: &str = "100";

/// A program in C, or the example that has its name.
type Program = fn(&str) -> Command;

fn c(name: &str) -> Command {
    Command::new(name)
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a server, and tells how to reach it once it listens. It serves until it is dropped.
fn serve(program: Program, addr: &str) -> Server {
    let server = Server::start(program("cmtime").args(["-b", addr]));
    eventually("cmtime listens", is_listening);
    server
}

/// Whether an id listens.
fn is_listening() -> bool {
    let output = run(Command::new("rdma").args(["resource", "show", "cm_id"]));
    String::from_utf8_lossy(&output.stdout).contains("state LISTEN")
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

/// The rows of a table: the step, and its total, longest, shortest and average.
fn table(text: &str) -> Vec<(String, [f64; 4])> {
    let (_, rows) = text.split_once("step ").expect("a table");
    let rows = rows.lines().skip(1).map(|row| {
        let (step, numbers) = row.split_once(':').expect("a step");
        let numbers: Vec<f64> = numbers
            .split_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect();
        (step.trim().to_owned(), numbers.try_into().expect("four"))
    });
    rows.collect()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn cmtime_and_its_twin_connect_and_tell_the_same() {
    device();
    let before = resources();
    let mut header = None;
    let pairs: [(Program, Program); 3] = [(c, example), (example, c), (example, example)];
    for (server, client) in pairs {
        let server = serve(server, ADDR);
        let at_start = queue_pairs();
        let mut client = client("cmtime");
        let output = run(client.args(["-s", ADDR, "-b", ADDR, "-c", CONNECTIONS]));
        let text = text(&output);
        // So failures are told, here and in C.
        let failed = |line: &str| line.starts_with("connection ") || line.contains("error");
        assert!(!text.lines().any(failed), "{client:?}: {text}");
        let found = text
            .lines()
            .find(|line| line.starts_with("step "))
            .map(str::to_owned);
        assert_eq!(*header.get_or_insert_with(|| found.clone()), found);
        let rows = table(&text);
        let steps: Vec<_> = rows.iter().map(|(step, _)| step.as_str()).collect();
        let wanted = [
            "create id",
            "bind addr",
            "resolve addr",
            "resolve route",
            "create qp",
            "connect",
            "disconnect",
            "destroy",
        ];
        assert_eq!(steps, wanted, "{client:?}");
        for (step, [total, max, min, average]) in rows {
            assert!(
                total + 0.01 >= max && max * 1000.0 + 10.0 >= min,
                "{client:?}: {step}: {text}"
            );
            // Rounded to two digits on both sides.
            assert!(
                (total * 10.0 - average).abs() < 0.2,
                "{client:?}: {step}: {text}"
            );
        }
        eventually("the server has ended its connections", || {
            queue_pairs() == at_start
        });
        drop(server);
    }
    eventually("all is gone with the programs", || resources() == before);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn cmtime_connects_over_ipv6_and_tells_of_failures() {
    device();
    let server = serve(example, ADDR6);
    let text_of_good = text(&run(example("cmtime").args(["-s", ADDR6, "-c", "10"])));
    assert_eq!(table(&text_of_good).len(), 7, "not bound: {text_of_good}");
    drop(server);
    // Nobody listens: as in C, the table is printed, and the calls have not failed.
    for program in [c as Program, example] {
        let text = text(&run(
            program("cmtime").args(["-s", ADDR, "-c", "2", "-p", "7499"])
        ));
        let told = |line: &&str| line.starts_with("connection ") || line.contains("error");
        assert_eq!(text.lines().filter(told).count(), 2, "{text}");
        // Of what has not happened the shortest time has no place in its column.
        let (_, rows) = text.split_once("step ").expect("a table");
        assert_eq!(rows.lines().count(), 8, "{text}");
    }
    let mut statuses = Vec::new();
    for program in [c as Program, example] {
        let output = run(program("cmtime").arg("-Z"));
        statuses.push(output.status.code());
    }
    assert_eq!(statuses, [Some(1), Some(1)]);
}

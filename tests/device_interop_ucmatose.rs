//! The example `ucmatose` beside rdma-core's program of that name, each as server and as client, on a real device.

mod common;

use std::thread;

use common::tools::{Maker, PAIRS, pair, tool};
use common::{ADDR, ADDR6, device, eventually, resources, run};

/// Each pair once, all at the same time, with options for both sides.
fn pairs(addr: &str, more: &[&str]) {
    device();
    let before = resources();
    thread::scope(|scope| {
        for (server, client, port) in PAIRS {
            scope.spawn(move || pair_of(addr, &[port, more].concat(), server, client));
        }
    });
    eventually("all is gone", || resources() == before);
}

/// Each pair once, one after the other, with a hundred connections.
fn hundreds(addr: &str) {
    device();
    let before = resources();
    for (server, client, port) in PAIRS {
        pair_of(addr, &[port, &["-c", "100"]].concat(), server, client);
    }
    eventually("all is gone", || resources() == before);
}

fn pair_of(addr: &str, more: &[&str], server: Maker, client: Maker) {
    let serve = [&["-b", addr][..], more].concat();
    let ask = [&["-s", addr][..], more].concat();
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

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ucmatose_pairs_with_one_connection() {
    pairs(ADDR, &[]);
    pairs(ADDR6, &[]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ucmatose_pairs_with_16_connections() {
    pairs(ADDR, &["-c", "16", "-C", "5", "-S", "4000"]);
    pairs(ADDR6, &["-c", "16"]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ucmatose_pairs_with_100_connections_over_ipv4() {
    hundreds(ADDR);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ucmatose_pairs_with_100_connections_over_ipv6() {
    hundreds(ADDR6);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ucmatose_pairs_with_every_option() {
    let options = [
        "-c", "2", "-m", "-a", "14", "-t", "0x20", "-f", "ip", "-P", "tcp",
    ];
    pairs(ADDR, &options);
    // Without messages.
    pairs(ADDR, &["-S", "0"]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn ucmatose_ends_as_its_twin_does() {
    device();
    for (args, wanted) in [
        (&["-x"][..], 1),
        // An address that no device has.
        (&["-b", "192.0.2.1"], 255),
    ] {
        for maker in [Maker::Rust, Maker::C] {
            let output = run(&mut tool(maker, "ucmatose", args));
            let status = output.status.code();
            assert_eq!(status, Some(wanted), "{maker:?} {args:?}: {output:?}");
        }
    }
    // Nobody listens: C's program waits for ever to see end what never began, after it has said the same number.
    let output = run(&mut tool(Maker::Rust, "ucmatose", &["-s", ADDR, "-p", "9"]));
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    for (args, wanted) in [
        (["-f", "gid"], "GIDs (AF_IB) are not supported"),
        (["-P", "ib"], "not InfiniBand's services"),
    ] {
        let output = run(&mut tool(Maker::Rust, "ucmatose", &args));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(wanted), "{error}");
    }
}

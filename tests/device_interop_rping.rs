//! The example `rping` beside rdma-core's program of that name, each as server and as client, on a real device.

mod common;

use std::iter;
use std::thread;
use std::time::Duration;

use common::tools::{Maker, PAIRS, listening, pair, tool};
use common::{ADDR, ADDR6, device, eventually, resources, run, run_within};

/// Pings of a client.
const PINGS: usize = 3;

/// How long a client may take among many that start at once.
const BURST: Duration = Duration::from_secs(100);

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
fn check(side: &str, lines: &[String], size: usize) {
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

/// Each pair once with every size, and more options for both sides. All data is looked at on both sides: rdma-core's server
/// checks none, but prints it.
fn pings(addr: &str, sizes: &[usize], more: &[&str]) {
    device();
    thread::scope(|scope| {
        for (server, client, port) in PAIRS {
            scope.spawn(move || {
                let more = [port, more].concat();
                for &size in sizes {
                    pings_of(addr, size, &more, server, client);
                }
            });
        }
    });
}

fn pings_of(addr: &str, size: usize, more: &[&str], server: Maker, client: Maker) {
    let (count, bytes) = (PINGS.to_string(), size.to_string());
    let common = ["-a", addr, "-S", &bytes, "-vV"];
    let serve = [&["-s"], &common[..], more].concat();
    let ask = [&["-c", "-C", &count], &common[..], more].concat();
    let [served, asked] = pair("rping", (server, &serve), (client, &ask));
    check(&format!("{server:?} server"), &served, size);
    check(&format!("{client:?} client"), &asked, size);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_pairs_over_ipv4() {
    pings(ADDR, &[64, 4096, 65000], &[]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_pairs_over_ipv6() {
    pings(ADDR6, &[64, 4096, 65000], &[]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_pairs_with_external_queue_pairs() {
    pings(ADDR, &[64], &["-q"]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_serves_a_burst_of_forty() {
    device();
    let before = resources();
    let mut server = listening(Maker::Rust, "rping", &["-sPV", "-a", ADDR]);
    let idle = resources();
    assert_ne!(idle, before, "the listener is to be counted");
    let clients: Vec<_> = [(Maker::C, 40), (Maker::Rust, 1)]
        .into_iter()
        .flat_map(|(maker, count)| iter::repeat_n(maker, count))
        .map(|maker| {
            let args = ["-c", "-a", ADDR, "-C", "3", "-V"];
            thread::spawn(move || run_within(BURST, &mut tool(maker, "rping", &args)))
        })
        .collect();
    let outputs = clients
        .into_iter()
        .map(|client| client.join().expect("no panic"));
    let failed: Vec<_> = outputs.filter(|output| !output.status.success()).collect();
    assert!(failed.is_empty(), "{} failed: {failed:?}", failed.len());
    assert!(server.is_running(), "it must still serve");
    eventually("all clients are gone", || resources() == idle);
    drop(server);
    eventually("all is gone with the server", || resources() == before);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_takes_no_ping_above_its_size() {
    device();
    let server = listening(Maker::Rust, "rping", &["-s", "-a", ADDR]);
    let args = ["-c", "-a", ADDR, "-C", "1", "-S", "65", "-v"];
    let output = run(&mut tool(Maker::C, "rping", &args));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("rdma-ping-"), "{output:?}");
    assert_eq!(server.finish(), (Some(255), Vec::new()));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rping_ends_as_its_twin_does() {
    device();
    for (args, wanted) in [
        (&[][..], 22),
        (&["-x"], 22),
        (&["-s", "-S", "22"], 22),
        (&["-s", "-S", "65536"], 22),
        // An address that no device has, and a port where nobody listens.
        (&["-s", "-a", "192.0.2.1"], 255),
        (&["-c", "-a", ADDR, "-p", "9"], 255),
    ] {
        for maker in [Maker::Rust, Maker::C] {
            let output = run(&mut tool(maker, "rping", args));
            let status = output.status.code();
            assert_eq!(status, Some(wanted), "{maker:?} {args:?}: {output:?}");
        }
    }
    let output = run(&mut tool(Maker::Rust, "rping", &["-c"]));
    assert_eq!(output.status.code(), Some(22), "no server: {output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("-a <ADDR>"), "{error}");
}

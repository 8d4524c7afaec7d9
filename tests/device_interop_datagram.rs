//! Pairs of the examples `udaddy` and `mckey` and rdma-core's programs of those names.

mod common;

use std::thread;

use common::interop::{Pair, pairs};
use common::tools::{Maker, pair, tool};
use common::{ADDR, ADDR6, Server, device, eventually, resources, run};

pairs! {
    "needs an RDMA device: cargo xtask test", device;
    udaddy_over_ipv4 => |pair| udaddy(pair, ADDR, &[]);
    udaddy_over_ipv6 => |pair| udaddy(pair, ADDR6, &[]);
    udaddy_with_3_queue_pairs => |pair| {
        udaddy(pair, ADDR, &["-c", "3", "-C", "20", "-S", "1000", "-f", "ip"]);
    };
    mckey_over_ipv4 => mckey;
}

fn udaddy(Pair { server, client }: Pair, addr: &str, options: &[&str]) {
    let serve = [&["-b", addr], options].concat();
    let ask = [&["-s", addr], options].concat();
    // Each side counts the messages that come, and ends only when all have.
    pair("udaddy", (server, &serve), (client, &ask));
}

/// The server receives, and the client sends, once as a full member of the group and once as one that only sends.
fn mckey(pair: Pair) {
    // The programs wait for three seconds, so both run at once, each in a group of its own.
    thread::scope(|scope| {
        scope.spawn(|| mckey_in(pair, "239.9.8.1", &["-s"]));
        scope.spawn(|| mckey_in(pair, "239.9.8.2", &["-s", "-o"]));
    });
}

fn mckey_in(Pair { server, client }: Pair, group: &str, send: &[&str]) {
    let args = ["-m", group, "-b", ADDR, "-c", "2", "-S", "1000"];
    let receiver = Server::start(&mut tool(server, "mckey", &args));
    let sender = [&args, send].concat();
    let output = run(&mut tool(client, "mckey", &sender));
    assert_eq!(output.status.code(), Some(0), "{sender:?}: {output:?}");
    let (status, lines) = receiver.finish();
    assert_eq!(status, Some(0), "of {sender:?}: {lines:?}");
}

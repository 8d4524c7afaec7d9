//! Pairs of the example `rping` and rdma-core's program of that name.

mod common;

use std::iter;
use std::thread;
use std::time::Duration;

use common::interop::{Pair, pairs, rping};
use common::tools::{Maker, listening, tool};
use common::{ADDR, ADDR6, device, eventually, resources, run_within};

pairs! {
    "needs an RDMA device: cargo xtask test", device;
    rping_64_bytes_over_ipv4 => |pair| rping(pair, ADDR, 64, &[]);
    rping_4096_bytes_over_ipv4 => |pair| rping(pair, ADDR, 4096, &[]);
    rping_65000_bytes_over_ipv4 => |pair| rping(pair, ADDR, 65000, &[]);
    rping_64_bytes_over_ipv6 => |pair| rping(pair, ADDR6, 64, &[]);
    rping_4096_bytes_over_ipv6 => |pair| rping(pair, ADDR6, 4096, &[]);
    rping_65000_bytes_over_ipv6 => |pair| rping(pair, ADDR6, 65000, &[]);
    rping_with_external_queue_pairs => |pair| rping(pair, ADDR, 64, &["-q"]);
}

/// How long a client may take among many that start at once.
const BURST: Duration = Duration::from_secs(100);

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

//! Pairs of the example `ucmatose` and rdma-core's program of that name, on soft-iWARP. With a hundred connections the device has
//! no room for either side's queues: see `iwarp_tools`.

mod common;

use std::panic::catch_unwind;

use common::interop::{self, Pair, pairs};
use common::iwarp::{ADDR, ADDR6, device};
use common::tools::Maker;
use common::{eventually, resources};

pairs! {
    "needs soft-iWARP: cargo xtask test --iwarp", device;
    ucmatose_with_1_connection_over_ipv4 => |pair| ucmatose(pair, ADDR, &["-c", "1"]);
    ucmatose_with_16_connections_over_ipv4 => |pair| {
        ucmatose(pair, ADDR, &["-c", "16", "-C", "5", "-S", "4000"]);
    };
    ucmatose_with_35_connections_over_ipv4 => |pair| ucmatose(pair, ADDR, &["-c", "35"]);
    ucmatose_with_1_connection_over_ipv6 => |pair| ucmatose(pair, ADDR6, &["-c", "1"]);
    ucmatose_with_16_connections_over_ipv6 => |pair| ucmatose(pair, ADDR6, &["-c", "16"]);
    ucmatose_with_35_connections_over_ipv6 => |pair| ucmatose(pair, ADDR6, &["-c", "35"]);
    ucmatose_on_two_channels => |pair| {
        ucmatose(pair, ADDR, &["-c", "2", "-m", "-t", "0x20", "-f", "ip", "-P", "tcp"]);
    };
    ucmatose_without_messages => |pair| ucmatose(pair, ADDR, &["-S", "0"]);
}

/// How often a pair may try.
const TRIES: usize = 5;

/// Over iWARP the client has to send first, and this tool's server does: rdma-core's own pair, with two connections, fails one
/// time in eight on soft-iWARP, as one side finds the connection down. So a pair may try again.
fn ucmatose(pair: Pair, addr: &str, options: &[&str]) {
    let passes = || catch_unwind(|| interop::ucmatose(pair, addr, options)).is_ok();
    assert!((0..TRIES).any(|_| passes()), "not once in {TRIES} tries");
}

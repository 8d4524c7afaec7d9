//! Pairs of the example `cmtime` and rdma-core's program of that name, on soft-iWARP, with as many connections as the device has
//! room for: see `iwarp_tools`.

mod common;

use common::interop::{Pair, cmtime, pairs};
use common::iwarp::{ADDR, ADDR6, device};
use common::tools::Maker;
use common::{eventually, resources};

pairs! {
    "needs soft-iWARP: cargo xtask test --iwarp", device;
    cmtime_with_50_connections_over_ipv4 => |pair| cmtime(pair, ADDR, 50);
    cmtime_with_50_connections_over_ipv6 => |pair| cmtime(pair, ADDR6, 50);
}

//! Pairs of the example `cmtime` and rdma-core's program of that name.

mod common;

use common::interop::{Pair, cmtime, pairs};
use common::tools::Maker;
use common::{ADDR, ADDR6, device, eventually, resources};

pairs! {
    "needs an RDMA device: cargo xtask test", device;
    cmtime_with_100_connections_over_ipv4 => |pair| cmtime(pair, ADDR, 100);
    cmtime_with_100_connections_over_ipv6 => |pair| cmtime(pair, ADDR6, 100);
}

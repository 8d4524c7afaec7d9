//! Pairs of the example `rping` and rdma-core's program of that name, on soft-iWARP.

mod common;

use common::interop::{Pair, pairs, rping};
use common::iwarp::{ADDR, ADDR6, device};
use common::tools::Maker;
use common::{eventually, resources};

pairs! {
    "needs soft-iWARP: cargo xtask test --iwarp", device;
    rping_64_bytes_over_ipv4 => |pair| rping(pair, ADDR, 64, &[]);
    rping_4096_bytes_over_ipv4 => |pair| rping(pair, ADDR, 4096, &[]);
    rping_65000_bytes_over_ipv4 => |pair| rping(pair, ADDR, 65000, &[]);
    rping_64_bytes_over_ipv6 => |pair| rping(pair, ADDR6, 64, &[]);
    rping_4096_bytes_over_ipv6 => |pair| rping(pair, ADDR6, 4096, &[]);
    rping_65000_bytes_over_ipv6 => |pair| rping(pair, ADDR6, 65000, &[]);
}

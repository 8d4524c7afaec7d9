//! Pairs of the example `ucmatose` and rdma-core's program of that name.

mod common;

use common::interop::{Pair, pairs, ucmatose};
use common::tools::Maker;
use common::{ADDR, ADDR6, device, eventually, resources};

pairs! {
    "needs an RDMA device: cargo xtask test", device;
    ucmatose_with_1_connection_over_ipv4 => |pair| ucmatose(pair, ADDR, &["-c", "1"]);
    ucmatose_with_16_connections_over_ipv4 => |pair| {
        ucmatose(pair, ADDR, &["-c", "16", "-C", "5", "-S", "4000"]);
    };
    ucmatose_with_100_connections_over_ipv4 => |pair| ucmatose(pair, ADDR, &["-c", "100"]);
    ucmatose_with_1_connection_over_ipv6 => |pair| ucmatose(pair, ADDR6, &["-c", "1"]);
    ucmatose_with_16_connections_over_ipv6 => |pair| ucmatose(pair, ADDR6, &["-c", "16"]);
    ucmatose_with_100_connections_over_ipv6 => |pair| ucmatose(pair, ADDR6, &["-c", "100"]);
    ucmatose_with_every_option => |pair| {
        let options = [
            "-c", "2", "-m", "-a", "14", "-t", "0x20", "-f", "ip", "-P", "tcp",
        ];
        ucmatose(pair, ADDR, &options);
    };
    ucmatose_without_messages => |pair| ucmatose(pair, ADDR, &["-S", "0"]);
}

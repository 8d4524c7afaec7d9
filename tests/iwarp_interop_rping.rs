//! Pairs of the example `rping` and rdma-core's program of that name, on soft-iWARP. This crate's is the client only: its server
//! reads into a buffer of a pool, which iWARP would have to open to the peer.

mod common;

use common::interop::{Pair, rping};
use common::iwarp::{ADDR, ADDR6, device};
use common::tools::Maker;
use common::{eventually, resources};

fn c_server_rust_client(addr: &str, size: usize) {
    device();
    let before = resources();
    let pair = Pair {
        server: Maker::C,
        client: Maker::Rust,
    };
    rping(pair, addr, size, &[]);
    eventually("all is gone", || resources() == before);
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn rping_64_bytes_over_ipv4_c_server_rust_client() {
    c_server_rust_client(ADDR, 64);
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn rping_4096_bytes_over_ipv4_c_server_rust_client() {
    c_server_rust_client(ADDR, 4096);
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn rping_65000_bytes_over_ipv4_c_server_rust_client() {
    c_server_rust_client(ADDR, 65000);
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn rping_64_bytes_over_ipv6_c_server_rust_client() {
    c_server_rust_client(ADDR6, 64);
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn rping_4096_bytes_over_ipv6_c_server_rust_client() {
    c_server_rust_client(ADDR6, 4096);
}

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn rping_65000_bytes_over_ipv6_c_server_rust_client() {
    c_server_rust_client(ADDR6, 65000);
}

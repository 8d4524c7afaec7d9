//! The tools beside rdma-core's where soft-iWARP, or the crate over it, cannot do what they are for.

mod common;

use common::iwarp::{ADDR, device};
use common::tools::{Maker, failing, failing_alike, listening};

#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn udaddy_and_mckey_find_no_datagrams_as_their_twins_do() {
    device();
    let tools = [
        ("udaddy", &["-s", ADDR][..]),
        ("mckey", &["-m", "239.9.8.1", "-b", ADDR]),
    ];
    for (name, args) in tools {
        let [rust, c] = failing_alike(name, args, 255);
        assert!(rust.contains("iWARP has no datagrams"), "{name}: {rust}");
        let wanted = "unable to create QP: Operation not supported";
        assert!(c.contains(wanted), "{name}: {c}");
    }
}

/// Rdma-core's library for siw maps queues of a process one page behind the other, and takes the place of page 144 (0x90000) for
/// an error: ucmatose needs four pages for each connection, and cmtime two.
#[test]
#[ignore = "needs soft-iWARP: cargo xtask test --iwarp"]
fn ucmatose_has_no_room_for_a_hundred_connections_as_its_twin_has_none() {
    device();
    for maker in [Maker::Rust, Maker::C] {
        let server = listening(Maker::C, "ucmatose", &["-b", ADDR, "-c", "100"]);
        // Its own queues, or those of the server that ends then: whichever side runs out first.
        let (status, text) = failing(maker, "ucmatose", &["-s", ADDR, "-c", "100"]);
        assert!(status.is_some(), "{maker:?} was ended by a signal: {text}");
        drop(server);
    }
}

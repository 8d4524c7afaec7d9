//! What the tests on soft-iWARP share. They run inside a micro-VM that has soft-RoCE too.

use std::net::SocketAddr;
use std::path::Path;

use super::cm::Listening;

/// The address of the soft-iWARP device.
pub(crate) const ADDR: &str = "10.9.2.1";
/// Its IPv6 address.
pub(crate) const ADDR6: &str = "fd09:2::1";

/// Fails the test, with what to do, when there is no soft-iWARP device. Every test on it calls it first.
pub(crate) fn device() {
    assert!(
        Path::new("/sys/class/infiniband/siw0").exists(),
        "this test needs the soft-iWARP device siw0 with the address {ADDR}: run `cargo xtask test --iwarp`"
    );
}

/// An address of the device with a port of the kernel's choice.
pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::new(ADDR.parse().expect("an address"), 0)
}

/// A listening id on the device.
pub(crate) fn listening() -> Listening {
    Listening::at(any_port(), 0)
}

/// An address of the device where nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    listening().addr()
}

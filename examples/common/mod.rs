//! What the examples share: addresses, the 16-byte message, and the error of a machine without RDMA.

pub(crate) mod link;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use rdmacm::{Error, ErrorKind};

/// The port of rdma-core's own examples.
const PORT: u16 = 7471;

/// The message that `rdma_server` and `rdma_client` exchange.
#[allow(dead_code, reason = "not every example sends one")]
pub(crate) const MESSAGE: [u8; 16] = *b"rdmacm: 16 bytes";

/// `ADDR` or `ADDR:PORT`, for IPv6 `[ADDR]:PORT`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    text.parse()
        .or_else(|_| {
            let ip: IpAddr = bare.unwrap_or(text).parse()?;
            Ok(SocketAddr::new(ip, PORT))
        })
        .map_err(|_: std::net::AddrParseError| {
            "an IP address with an optional port is needed, such as 10.9.0.1, 10.9.0.1:7471 or [fd09::1]:7471".to_owned()
        })
}

/// Ends a program: 0, or 1 with the error and, where there is no RDMA device, what to do about it.
pub(crate) fn report<E: Into<Box<dyn std::error::Error>>>(result: Result<(), E>) -> ExitCode {
    let Err(error) = result.map_err(Into::into) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    let Some(error) = error.downcast_ref::<Error>() else {
        return ExitCode::FAILURE;
    };
    // A text that the server gave as its reason, without the zeros that follow it over InfiniBand and RoCE.
    let data = error
        .rejection()
        .map_or(&[][..], |rejection| rejection.private_data());
    if let Some(text @ [_, ..]) = data.split(|&byte| byte == 0).next() {
        eprintln!("the server says: \"{}\"", text.escape_ascii());
    }
    if error.kind() == ErrorKind::NoDevice {
        eprintln!("to see it with a software device, in a virtual machine: cargo xtask demo");
    }
    ExitCode::FAILURE
}

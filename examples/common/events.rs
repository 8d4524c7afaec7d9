//! What the tools share that ask by events: options of the connection manager's, and the status of a failure.

#![allow(dead_code, reason = "each tool uses a part of it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rdmacm::{Event, EventKind};

use super::tool::{self, Outcome};

/// How long the resolution of an address or a route may take.
pub(crate) const RESOLVE: Duration = Duration::from_secs(2);

/// How addresses are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// As names or addresses.
    Name,
    /// As addresses only.
    Numeric,
}

impl Format {
    /// Reads an option.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "name" => Ok(Self::Name),
            "ip" | "ipv6" => Ok(Self::Numeric),
            "gid" => Err("addresses that are GIDs (AF_IB) are not supported".to_owned()),
            _ => Err("the formats are name, ip and ipv6".to_owned()),
        }
    }

    /// Finds the address of a host.
    pub(crate) fn find(self, host: &str, port: u16) -> Outcome<SocketAddr> {
        match self {
            Self::Name => tool::host(host, port),
            Self::Numeric => tool::numeric(host, port),
        }
    }
}

/// The port space, by its name or its number: there is one.
#[derive(Clone, Copy)]
pub(crate) struct Udp;

impl Udp {
    /// Reads an option that has the name.
    pub(crate) fn by_name(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("udp") {
            Ok(Self)
        } else {
            Err("only udp is supported".to_owned())
        }
    }

    /// Reads an option that has the number, 0x111.
    pub(crate) fn by_number(text: &str) -> Result<Self, String> {
        let number = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        if number == Ok(0x111) {
            Ok(Self)
        } else {
            Err("only 0x111 (UDP) is supported".to_owned())
        }
    }
}

/// Where a server listens: at every address unless it was told one.
pub(crate) fn local(host: Option<&str>, port: u16, format: Format) -> Outcome<SocketAddr> {
    match host {
        Some(host) => format.find(host, port),
        None => Ok((Ipv4Addr::UNSPECIFIED, port).into()),
    }
}

/// The failure that an event stands for; the program's status is the event's.
pub(crate) fn check(event: &Event) -> Outcome {
    let status = match &event.kind {
        EventKind::AddrError(status)
        | EventKind::RouteError(status)
        | EventKind::ConnectError(status)
        | EventKind::Unreachable(status)
        | EventKind::MulticastError { status, .. } => status.as_raw(),
        EventKind::Rejected(rejection) => rejection.reason().as_raw(),
        EventKind::LookupFailed(failure) => failure.status().as_raw(),
        _ => return Ok(()),
    };
    let text = event.failure().map(|error| error.to_string());
    Err(tool::failure(
        tool::status(status),
        text.unwrap_or_default(),
    ))
}

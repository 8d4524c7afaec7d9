//! Addresses as C wants them.

use std::net::SocketAddr;

use libc::sockaddr_storage;

use crate::poison::zeroed;
use libc::{sockaddr_in, sockaddr_in6};

/// An address in C's form.
pub(crate) enum CAddr {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl From<SocketAddr> for CAddr {
    fn from(addr: SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(v4) => Self::V4(sockaddr_in {
                // CAST: 2 fits.
                sin_family: 2,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Self::V6(sockaddr_in6 {
                // CAST: 10 fits.
                sin6_family: 10,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }
}

const _: () = assert!(libc::AF_INET == 2 && libc::AF_INET6 == 10);

/// Writes an address over a member of `rdma_addr`.
macro_rules! store {
    ($union:expr, $v4:ident, $v6:ident, $storage:ident, $addr:expr) => {{
        $union.$storage = $crate::addr::unset();
        match $addr.map($crate::addr::CAddr::from) {
            Some($crate::addr::CAddr::V4(v4)) => $union.$v4 = v4,
            Some($crate::addr::CAddr::V6(v6)) => $union.$v6 = v6,
            None => {}
        }
    }};
}
pub(crate) use store;

pub(crate) fn unset() -> sockaddr_storage {
    zeroed()
}

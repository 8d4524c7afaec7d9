#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{CStr, c_char, c_int};
use std::net::{IpAddr, SocketAddr};

use crate::addr::CAddr;
use crate::arg;
use crate::c::{rdma_addrinfo, rdma_port_space};
use crate::poison::{Obj, zeroed};
use libc::sockaddr;

/// The text at `pointer`, if there is one.
fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null; the caller of the C function promises a terminated text.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

fn leak(address: SocketAddr) -> (*mut sockaddr, u32) {
    let (pointer, length) = match CAddr::from(address) {
        CAddr::V4(v4) => (Box::into_raw(Box::new(v4)).cast(), size_of_val(&v4)),
        CAddr::V6(v6) => (Box::into_raw(Box::new(v6)).cast(), size_of_val(&v6)),
    };
    (pointer, u32::try_from(length).unwrap_or(0))
}

export! { count:
    fn rdma_getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
        res: *mut *mut rdma_addrinfo,
    ) -> c_int {
        let _ = hints;
        let ip = text(node).map_or(Ok(IpAddr::from([0, 0, 0, 0])), |node| node.parse::<IpAddr>());
        let port = text(service).map_or(Ok(0), |service| service.parse::<u16>());
        // Numbers only: a name would take a resolver.
        let (Ok(ip), Ok(port)) = (ip, port) else {
            return libc::EAI_NONAME;
        };
        let mut info: rdma_addrinfo = zeroed();
        let (address, length) = leak(SocketAddr::new(ip, port));
        info.ai_family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        info.ai_port_space = c_int::try_from(rdma_port_space::RDMA_PS_TCP.0).unwrap_or(0);
        info.ai_dst_addr = address;
        info.ai_dst_len = length;
        arg::write("the result", res, Obj::new(info).raw());
        0
    }
}

export! { plain:
    fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
        // Leaked: nobody counts these.
        let _ = res;
    }
}

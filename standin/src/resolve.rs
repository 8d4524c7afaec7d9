#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::arg;
use crate::c::{rdma_cm_event_type, rdma_cm_id};
use crate::doom::doom;
use crate::inject;
use crate::kernel::State;
use crate::message::Queued;
use crate::world::{World, window, world};
use libc::sockaddr;

impl World {
    /// Queues what comes after a call: what a test has planned, or the natural event.
    fn answer(&mut self, call: &str, id: usize, natural: Queued) {
        let queued = match inject::answer(call) {
            Some(planned) => Queued::planned(id, planned),
            None => Some(natural),
        };
        if let Some(queued) = queued {
            // After a failure the kernel is where it was before, and can be asked again.
            if queued.code == rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR.0 {
                self.id_mut(id).state = State::Bound;
            } else if queued.code == rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR.0 {
                self.id_mut(id).state = State::AddrResolved;
            }
            self.push(queued);
        }
    }
}

fn any(like: SocketAddr) -> SocketAddr {
    let ip = match like {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}

export! { rdma:
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
        let local = arg::address(addr)?;
        let mut world = world();
        if world.kernel_id(id.addr())?.state != State::Idle {
            return Err(libc::EINVAL);
        }
        world.bind(id.addr(), local)?;
        world.query(id.addr())
    }

    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
        let _ = backlog;
        let mut world = world();
        let found = world.kernel_id(id.addr())?;
        match found.state {
            State::Idle => world.bind(id.addr(), SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))?,
            State::Bound => {}
            _ => return Err(libc::EINVAL),
        }
        world.id_mut(id.addr()).state = State::Listening;
        world.query(id.addr())
    }

    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        src_addr: *mut sockaddr,
        dst_addr: *mut sockaddr,
        timeout_ms: c_int,
    ) -> c_int {
        let _ = timeout_ms;
        let address = id.addr();
        let peer = arg::address(dst_addr)?;
        let source = if src_addr.is_null() { None } else { Some(arg::address(src_addr)?) };
        let mut world = world();
        match world.kernel_id(address)?.state {
            State::Idle => {
                let local = source.unwrap_or_else(|| any(peer));
                world.bind(address, local)?;
            }
            State::Bound => {}
            _ => return Err(libc::EINVAL),
        }
        let bound = world.id(address).device;
        let device = bound.or_else(|| world.device_at(peer.ip())).or_else(|| world.device_towards(peer.ip()));
        world.id_mut(address).peer_address = Some(peer);
        let natural = match device {
            Some(device) => {
                let own = |ip: &&IpAddr| ip.is_ipv4() == peer.is_ipv4();
                let from = world.devices[device].addresses.iter().find(own).copied();
                let resolved = world.id_mut(address);
                resolved.device = Some(device);
                resolved.state = State::AddrResolved;
                if let (Some(ip), Some(local)) = (from, resolved.local.as_mut()) {
                    if local.ip().is_unspecified() {
                        local.set_ip(ip);
                    }
                }
                Queued::new(address, rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED, 0)
            }
            None => {
                let event = rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR;
                Queued::new(address, event, -libc::ENODEV)
            }
        };
        world.answer("rdma_resolve_addr", address, natural);
        // The kernel has started, and only now does the library write the peer's address into the id.
        world.id_mut(address).writes_addresses = true;
        let mut world = window(world, address, "rdma_resolve_addr", false, false);
        let id_state = world.id_mut(address);
        id_state.writes_addresses = false;
        id_state.show_addresses();
        Ok(())
    }

    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
        let _ = timeout_ms;
        let address = id.addr();
        let mut world = world();
        if world.id(address).c.look(|c| c.verbs.is_null()) {
            doom!("the id has no device: would follow the null pointer id->verbs");
        }
        if world.kernel_id(address)?.state != State::AddrResolved {
            return Err(libc::EINVAL);
        }
        world.id_mut(address).state = State::RouteResolved;
        let natural = Queued::new(address, rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
        world.answer("rdma_resolve_route", address, natural);
        Ok(())
    }
}

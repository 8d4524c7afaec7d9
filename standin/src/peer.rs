//! Another end that is a test's and no program's: it asks for a connection, answers by itself, and remembers what it saw.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::c::{rdma_cm_event_type, rdma_port_space};
use crate::id::Id;
use crate::kernel::State;
use crate::message::{Param, Queued};
use crate::world::World;

impl World {
    /// Asks `to` for a connection, and gives the number of the new end.
    pub(crate) fn automatic_peer(&mut self, to: SocketAddr, said: Param) -> Option<usize> {
        let device = self.device_at(to.ip())?;
        let mut id = Id::new(
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            rdma_port_space::RDMA_PS_TCP,
        );
        id.automatic = true;
        id.state = State::RouteResolved;
        id.device = Some(device);
        id.local = Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 9));
        id.peer_address = Some(to);
        let address = id.c.address();
        self.ids.insert(address, id);
        if self.ask(address, said).is_err() {
            self.free_id(address);
            return None;
        }
        Some(address)
    }

    /// What an automatic end does with an event.
    pub(crate) fn automatic(&mut self, queued: &Queued) {
        let address = queued.id;
        self.id_mut(address).seen.push((queued.code, queued.status));
        match rdma_cm_event_type(queued.code) {
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => {
                let _ = self.confirm(address);
            }
            rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED => {
                let id = self.id_mut(address);
                if id.state == State::Left {
                    id.state = State::Ended;
                    if let Some(peer) = id.peer {
                        self.disconnected(peer);
                    }
                }
            }
            _ => {}
        }
    }

    /// An automatic end goes away.
    pub(crate) fn automatic_end(&mut self, address: usize) {
        self.end_in_kernel(address);
        self.free_id(address);
    }
}

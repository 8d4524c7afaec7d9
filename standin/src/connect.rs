#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_int, c_void};
use std::net::IpAddr;

use crate::arg;
use crate::c::{ibv_qp_state, rdma_cm_event_type, rdma_cm_id, rdma_conn_param};
use crate::call::Errno;
use crate::doom::doom;
use crate::gid::gid_of;
use crate::id::Id;
use crate::inject;
use crate::kernel::State;
use crate::message::{
    CONSUMER_DEFINED, DATAGRAM_REPLY, DATAGRAM_REQUEST, Datagram, INVALID_SERVICE_ID, Param,
    Queued, REJECT, REPLY, REQUEST, UDP_QKEY, padded,
};
use crate::poison::zeroed;
use crate::world::{World, window, world};

/// Stands for "as many as possible".
const ALL: u8 = 0xff;

impl World {
    /// The library's check of the depths against what it keeps of the device.
    fn check_depths(&self, id: usize, param: Option<&Param>) -> Result<(u8, u8), Errno> {
        let Some(held) = self.id(id).held else {
            doom!("the id has no device: would follow a null pointer to it");
        };
        let (responder, initiator) = self.devices[held].depths();
        if let Some(param) = param {
            let above = |asked: u8, limit: u8| asked != ALL && asked > limit;
            if !self.id(id).is_datagram()
                && (above(param.responder_resources, responder)
                    || above(param.initiator_depth, initiator))
            {
                return Err(libc::EINVAL);
            }
        }
        Ok((responder, initiator))
    }

    /// The number of the queue pair that a call speaks of.
    fn qp_number(&self, id: usize, param: Option<&Param>) -> Option<u32> {
        match self.id(id).qp() {
            0 => param.map(|param| param.qp_num),
            qp => Some(self.qp(qp).number),
        }
    }

    /// Sends the request of an id to whoever listens at its peer's address.
    pub(crate) fn ask(&mut self, id: usize, said: Param) -> Result<(), Errno> {
        let datagram = self.id(id).is_datagram();
        let iwarp = self.is_iwarp(id);
        let room = if datagram { DATAGRAM_REQUEST } else { REQUEST };
        if !iwarp && said.private_data.len() > room {
            return Err(libc::EINVAL);
        }
        let (Some(to), ps) = (self.id(id).peer_address, self.id(id).ps) else {
            return Err(libc::EINVAL);
        };
        if let Some(planned) = inject::answer("rdma_connect") {
            self.id_mut(id).state = State::Asked;
            self.id_mut(id).said = said;
            if let Some(queued) = Queued::planned(id, planned) {
                self.push(queued);
            }
            return Ok(());
        }
        let Some(listener) = self.listener_at(to, ps) else {
            if iwarp {
                return Err(libc::ECONNREFUSED);
            }
            self.id_mut(id).state = State::Asked;
            if datagram {
                self.look_up_failed(id, 1, Vec::new());
            } else {
                self.reject_peer(id, INVALID_SERVICE_ID, Vec::new());
            }
            return Ok(());
        };
        let child = self.new_child(listener, id);
        let mut offer = said.clone().turned();
        offer.private_data = padded(offer.private_data, room, iwarp);
        self.id_mut(child).heard = offer.clone();
        let asking = self.id_mut(id);
        asking.state = State::Asked;
        asking.peer = Some(child);
        asking.said = said;
        let event = rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;
        let mut queued = Queued::new(listener, event, 0);
        queued = if datagram {
            queued.datagram(datagram_of(offer.private_data, 0, None))
        } else {
            queued.with(offer)
        };
        queued.child = Some(child);
        self.push(queued);
        Ok(())
    }

    /// The id of a request, which nobody knows yet.
    fn new_child(&mut self, listener: usize, asking: usize) -> usize {
        let (local, peer) = (self.id(asking).peer_address, self.id(asking).local);
        let (device, file) = (self.id(asking).device, self.id(listener).file);
        let channel = self.channel(file).c.raw();
        let mut child = Id::new(channel, std::ptr::null_mut(), self.id(listener).ps);
        child.state = State::Requested;
        child.device = device;
        child.local = local;
        child.peer_address = peer;
        child.peer = Some(asking);
        child.delivered = false;
        let address = child.c.address();
        self.ids.insert(address, child);
        address
    }

    /// The id of a request that nobody has made.
    pub(crate) fn orphan(&mut self, id: usize) -> usize {
        let child = self.new_child(id, id);
        let found = self.id_mut(child);
        found.peer = None;
        found.state = State::Ended;
        child
    }

    fn look_up_failed(&mut self, id: usize, status: i32, data: Vec<u8>) {
        self.id_mut(id).peer = None;
        self.id_mut(id).state = State::Ended;
        let data = padded(data, DATAGRAM_REPLY, false);
        let event = rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE;
        self.push(Queued::new(id, event, status).datagram(datagram_of(data, 0, None)));
    }

    /// The kernel's part of an accept.
    fn answer_request(&mut self, id: usize, said: Param) -> Result<(), Errno> {
        let iwarp = self.is_iwarp(id);
        let datagram = self.id(id).is_datagram();
        if self
            .id(id)
            .device
            .is_some_and(|device| self.devices[device].removed)
        {
            return Err(libc::ENXIO);
        }
        let Some(peer) = self
            .id(id)
            .peer
            .filter(|_| self.id(id).state == State::Requested)
        else {
            return Err(if iwarp {
                libc::ECONNRESET
            } else {
                libc::EINVAL
            });
        };
        let room = if datagram { DATAGRAM_REPLY } else { REPLY };
        if !iwarp && said.private_data.len() > room {
            // The kernel says no in the program's name.
            if datagram {
                self.look_up_failed(peer, 2, Vec::new());
            } else {
                self.reject_peer(peer, CONSUMER_DEFINED, Vec::new());
            }
            let id = self.id_mut(id);
            id.peer = None;
            id.state = State::Ended;
            return Err(libc::EINVAL);
        }
        let mut answer = said.clone().turned();
        answer.private_data = padded(answer.private_data, room, iwarp);
        self.id_mut(id).said = said;
        self.id_mut(peer).heard = answer.clone();
        if datagram {
            self.id_mut(id).state = State::Ended;
            self.id_mut(peer).state = State::Ended;
            let own = self.id(id).device.map(|device| &self.devices[device]);
            let own = own.and_then(|device| device.addresses.first().copied());
            let reply = datagram_of(answer.private_data, answer.qp_num, own);
            let event = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
            self.push(Queued::new(peer, event, 0).datagram(reply));
        } else if iwarp {
            self.iwarp_connected(id, peer, answer);
        } else {
            self.id_mut(id).state = State::Answered;
            self.id_mut(peer).state = State::Responded;
            let event = rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE;
            self.push(Queued::new(peer, event, 0).with(answer));
        }
        Ok(())
    }

    /// Over iWARP the kernel connects both queue pairs and tells both ends.
    fn iwarp_connected(&mut self, id: usize, peer: usize, answer: Param) {
        for (own, other) in [(id, peer), (peer, id)] {
            self.id_mut(own).state = State::Established;
            let remote = self.id(other).said.qp_num;
            let (number, depth) = (self.id(own).said.qp_num, self.id(own).said.initiator_depth);
            if let Some(qp) = self.numbers.get(&number).copied() {
                self.qp_mut(qp).remote = remote;
                self.qp_mut(qp).attr.max_rd_atomic = depth;
                self.set_state(qp, ibv_qp_state::IBV_QPS_RTS);
            }
        }
        let event = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
        self.push(Queued::new(id, event, 0));
        self.push(Queued::new(peer, event, 0).with(answer));
    }

    /// The kernel's part of the last message of a handshake.
    pub(crate) fn confirm(&mut self, id: usize) -> Result<(), Errno> {
        let found = self.kernel_id(id)?;
        if found.state != State::Responded {
            return Err(libc::EINVAL);
        }
        found.state = State::Established;
        if let Some(peer) = found.peer {
            self.id_mut(peer).state = State::Established;
            let event = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
            self.push(Queued::new(peer, event, 0));
        }
        Ok(())
    }

    fn reject(&mut self, id: usize, data: Vec<u8>, reason: i32) -> Result<(), Errno> {
        let iwarp = self.is_iwarp(id);
        let datagram = self.id(id).is_datagram();
        let found = self.kernel_id(id)?;
        if !matches!(
            found.state,
            State::Requested | State::Answered | State::Responded
        ) {
            return Err(libc::EINVAL);
        }
        let room = if datagram { DATAGRAM_REPLY } else { REJECT };
        if !iwarp && data.len() > room {
            return Err(libc::EINVAL);
        }
        found.state = State::Ended;
        let Some(peer) = found.peer.take() else {
            return Err(libc::EINVAL);
        };
        if datagram {
            self.look_up_failed(peer, 2, data);
        } else {
            self.reject_peer(peer, reason, data);
        }
        Ok(())
    }
}

/// What a datagram event has, for an address handle to the one device.
fn datagram_of(private_data: Vec<u8>, qp_num: u32, to: Option<IpAddr>) -> Datagram {
    let mut ah_attr: crate::c::ibv_ah_attr = zeroed();
    ah_attr.is_global = 1;
    ah_attr.port_num = 1;
    ah_attr.grh.hop_limit = 64;
    if let Some(to) = to {
        ah_attr.grh.dgid = gid_of(to);
    }
    Datagram {
        private_data,
        ah_attr,
        qp_num,
        qkey: if qp_num == 0 { 0 } else { UDP_QKEY },
    }
}

fn param_of(param: *mut rdma_conn_param) -> Option<Param> {
    (!param.is_null()).then(|| Param::of(&arg::read("the parameters", param.cast_const())))
}

export! { rdma:
    fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
        let address = id.addr();
        let mut said = param_of(conn_param);
        let world = world();
        let has_qp = world.id(address).qp() != 0;
        if !has_qp && said.is_none() && !world.id(address).is_datagram() {
            return Err(libc::EINVAL);
        }
        let (responder, initiator) = world.check_depths(address, said.as_ref())?;
        let mut world = window(world, address, "rdma_connect", true, false);
        let number = world.qp_number(address, said.as_ref()).unwrap_or(0);
        let defaults = Param { retry_count: 7, rnr_retry_count: 7, ..Param::default() };
        let all = said.is_none();
        let said = said.get_or_insert(defaults);
        if all || said.responder_resources == ALL {
            said.responder_resources = responder;
        }
        if all || said.initiator_depth == ALL {
            said.initiator_depth = initiator;
        }
        said.qp_num = number;
        let found = world.kernel_id(address)?;
        found.responder_resources = said.responder_resources;
        found.initiator_depth = said.initiator_depth;
        let ready = found.state == State::RouteResolved
            || (found.state == State::AddrResolved && found.is_datagram());
        if !ready {
            return Err(libc::EINVAL);
        }
        let said = said.clone();
        world.ask(address, said)
    }

    fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
        let address = id.addr();
        let world = world();
        if world.id(address).qp() == 0 && conn_param.is_null() {
            doom!("no parameters and no queue pair on the id: would follow the null pointer conn_param");
        }
        let said = param_of(conn_param);
        let (responder, initiator) = world.check_depths(address, said.as_ref())?;
        let mut world = window(world, address, "rdma_accept", true, false);
        let number = world.qp_number(address, said.as_ref()).unwrap_or(0);
        let mut said = said.unwrap_or_else(|| Param {
            responder_resources: ALL,
            initiator_depth: ALL,
            retry_count: 7,
            rnr_retry_count: 7,
            ..Param::default()
        });
        said.qp_num = number;
        let found = world.id_mut(address);
        // Without values of its own: the smaller of what was offered and what the device can.
        if said.responder_resources == ALL {
            said.responder_resources = found.responder_resources.min(responder);
        }
        if said.initiator_depth == ALL {
            said.initiator_depth = found.initiator_depth.min(initiator);
        }
        found.responder_resources = said.responder_resources;
        found.initiator_depth = said.initiator_depth;
        if !found.is_datagram() {
            world.qp_to_rtr(address, Some(said.responder_resources))?;
            world.qp_to_rts(address, Some(said.initiator_depth))?;
        }
        world.kernel_id(address)?;
        world.answer_request(address, said).inspect_err(|_| world.qp_to_error(address))
    }

    fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
        let mut world = world();
        if world.id(id.addr()).qp() != 0 {
            return Err(libc::EINVAL);
        }
        world.confirm(id.addr())
    }

    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int {
        let data = arg::bytes(private_data.cast(), private_data_len.into());
        world().reject(id.addr(), data, CONSUMER_DEFINED)
    }

    fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int {
        let data = arg::bytes(private_data.cast(), private_data_len.into());
        // Vendor option not supported.
        world().reject(id.addr(), data, 35)
    }

    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
        let address = id.addr();
        let world = world();
        if world.id(address).c.look(|c| c.verbs.is_null()) {
            return Err(libc::EINVAL);
        }
        let mut world = window(world, address, "rdma_disconnect", true, false);
        if world.id(address).qp() != 0 && !world.is_iwarp(address) {
            world.modify_on(address, ibv_qp_state::IBV_QPS_ERR)?;
        }
        let found = world.kernel_id(address)?;
        if found.device.is_none() || (!found.state.is_connection()) {
            return Err(libc::EINVAL);
        }
        let (state, peer, device) = (found.state, found.peer, found.device);
        if device.is_some_and(|device| world.devices[device].removed) {
            return Err(libc::ENXIO);
        }
        match (state, peer) {
            (State::Established, Some(peer)) if world.is_iwarp(address) => {
                for (own, other) in [(address, peer), (peer, address)] {
                    world.id_mut(own).state = State::Leaving;
                    world.id_mut(own).peer = None;
                    let _ = world.modify_on(own, ibv_qp_state::IBV_QPS_ERR);
                    let _ = other;
                    world.disconnected(own);
                }
            }
            (State::Established, Some(peer)) => {
                world.id_mut(address).state = State::Leaving;
                world.disconnect_peer(peer);
            }
            (State::Established, None) => world.id_mut(address).state = State::Leaving,
            (State::Left, peer) => {
                world.id_mut(address).state = State::Ended;
                if let Some(peer) = peer {
                    world.disconnected(peer);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

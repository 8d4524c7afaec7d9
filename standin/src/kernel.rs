//! What the kernel does: the states of ids, ports, and the end of an id.

use std::net::{IpAddr, SocketAddr};

use crate::c::{ibv_event_type, rdma_cm_event_type, rdma_port_space};
use crate::call::Errno;
use crate::id::Id;
use crate::message::{CONSUMER_DEFINED, Load, Param, Queued, REJECT};
use crate::world::World;

/// How far an id has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Bound,
    Listening,
    AddrResolved,
    RouteResolved,
    /// Has asked; no answer yet.
    Asked,
    /// The new id of a request.
    Requested,
    /// Has accepted; the other end has not confirmed.
    Answered,
    /// The other end has accepted; this one has not confirmed.
    Responded,
    Established,
    /// Has disconnected; the other end has not answered.
    Leaving,
    /// The other end has disconnected; this one has not answered.
    Left,
    /// Was connected, or failed to.
    Ended,
}

impl State {
    /// Whether the kernel's connection manager has made something for the id: then it can be asked about it.
    pub(crate) fn is_connection(self) -> bool {
        matches!(
            self,
            Self::Asked
                | Self::Requested
                | Self::Answered
                | Self::Responded
                | Self::Established
                | Self::Leaving
                | Self::Left
                | Self::Ended
        )
    }
}

/// An id that has taken a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) id: usize,
    ip: IpAddr,
    ps: rdma_port_space,
    reuse: bool,
}

const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

impl World {
    /// Binds an id to a local address.
    pub(crate) fn bind(&mut self, id: usize, mut address: SocketAddr) -> Result<(), Errno> {
        let device = if address.ip().is_unspecified() {
            None
        } else {
            Some(self.device_at(address.ip()).ok_or_else(|| {
                if address.ip().is_loopback() {
                    libc::ENODEV
                } else {
                    libc::EADDRNOTAVAIL
                }
            })?)
        };
        let (ps, reuse) = (self.id(id).ps, self.id(id).reuse);
        if address.port() == 0 {
            let port = self.free_port().ok_or(libc::EADDRNOTAVAIL)?;
            address.set_port(port);
        } else if self.is_taken(address, ps, reuse) {
            return Err(libc::EADDRINUSE);
        }
        let bound = Bound {
            id,
            ip: address.ip(),
            ps,
            reuse,
        };
        self.ports
            .entry(u32::from(address.port()))
            .or_default()
            .push(bound);
        let id = self.id_mut(id);
        id.port_taken = true;
        id.local = Some(address);
        id.device = device;
        id.state = State::Bound;
        Ok(())
    }

    fn is_taken(&self, address: SocketAddr, ps: rdma_port_space, reuse: bool) -> bool {
        let Some(bound) = self.ports.get(&u32::from(address.port())) else {
            return false;
        };
        bound.iter().any(|other| {
            let overlap = other.ip == address.ip()
                || other.ip.is_unspecified()
                || address.ip().is_unspecified();
            other.ps == ps && overlap && !(reuse && other.reuse)
        })
    }

    fn free_port(&mut self) -> Option<u16> {
        for _ in EPHEMERAL {
            let next = self.last_port.saturating_add(1);
            self.last_port = if EPHEMERAL.contains(&next) {
                next
            } else {
                *EPHEMERAL.start()
            };
            if !self.ports.contains_key(&u32::from(self.last_port)) {
                return Some(self.last_port);
            }
        }
        None
    }

    fn give_port_back(&mut self, id: usize) {
        let Some(local) = self.id(id).local else {
            return;
        };
        let port = u32::from(local.port());
        if let Some(bound) = self.ports.get_mut(&port) {
            bound.retain(|other| other.id != id);
            if bound.is_empty() {
                self.ports.remove(&port);
            }
        }
        self.id_mut(id).port_taken = false;
    }

    /// The id that listens where `address` is.
    pub(crate) fn listener_at(&self, address: SocketAddr, ps: rdma_port_space) -> Option<usize> {
        let bound = self.ports.get(&u32::from(address.port()))?;
        let listens = |other: &&Bound| {
            other.ps == ps
                && (other.ip == address.ip() || other.ip.is_unspecified())
                && self.id(other.id).state == State::Listening
        };
        bound.iter().find(listens).map(|bound| bound.id)
    }

    /// Ends an id in the kernel, and says how many of its events were handed out.
    pub(crate) fn end_in_kernel(&mut self, address: usize) -> u32 {
        if self.id(address).port_taken {
            self.give_port_back(address);
        }
        self.leave_peer(address);
        let (file, state) = (self.id(address).file, self.id(address).state);
        // What nobody has read is dropped; a request among it ends with its new id.
        for queued in self.withdraw(file, |queued| queued.id == address) {
            if let Some(child) = queued.child {
                self.drop_child(child);
            }
        }
        self.id_mut(address).state = State::Ended;
        debug_assert!(state != State::Requested || self.id(address).peer.is_none());
        self.id(address).reported
    }

    /// Ends the new id of a request that no program has seen.
    pub(crate) fn drop_child(&mut self, child: usize) {
        self.leave_peer(child);
        self.free_id(child);
    }

    /// Tells the other end that this one is going.
    fn leave_peer(&mut self, address: usize) {
        let Some(peer) = self.id_mut(address).peer.take() else {
            return;
        };
        if self.ids.find(peer).is_none() {
            return;
        }
        let state = self.id(address).state;
        match state {
            // Nobody tells a program about an id that it has not accepted.
            State::Asked => {
                let other = self.id_mut(peer);
                other.peer = None;
                other.state = State::Ended;
            }
            State::Requested | State::Responded | State::Answered => {
                self.reject_peer(peer, CONSUMER_DEFINED, Vec::new());
            }
            State::Established => self.disconnect_peer(peer),
            State::Left => self.disconnected(peer),
            _ => {}
        }
        if let Some(other) = self.ids.find_mut(peer) {
            other.peer = None;
        }
    }

    /// The peer gets REJECTED.
    pub(crate) fn reject_peer(&mut self, peer: usize, reason: i32, data: Vec<u8>) {
        let iwarp = self.is_iwarp(peer);
        let id = self.id_mut(peer);
        id.peer = None;
        id.state = State::Ended;
        let status = if iwarp && reason == CONSUMER_DEFINED {
            -libc::ECONNRESET
        } else {
            reason
        };
        let param = Param {
            private_data: crate::message::padded(data, REJECT, iwarp),
            ..Param::default()
        };
        self.push(
            Queued::new(peer, rdma_cm_event_type::RDMA_CM_EVENT_REJECTED, status).with(param),
        );
    }

    /// The peer hears that this end has disconnected.
    pub(crate) fn disconnect_peer(&mut self, peer: usize) {
        self.id_mut(peer).state = State::Left;
        self.push(Queued::new(
            peer,
            rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED,
            0,
        ));
    }

    /// An end that has disconnected hears that the other has answered.
    pub(crate) fn disconnected(&mut self, id: usize) {
        if self.id(id).state != State::Leaving {
            return;
        }
        self.id_mut(id).state = State::Ended;
        self.push(Queued::new(
            id,
            rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED,
            0,
        ));
    }

    pub(crate) fn is_iwarp(&self, id: usize) -> bool {
        let device = self.id(id).device;
        device.is_some_and(|device| self.devices[device].is_iwarp())
    }

    /// Takes a device away, as hot-unplugging does: every id on it is told.
    pub(crate) fn remove_device(&mut self, device: usize) {
        self.devices[device].removed = true;
        self.happens(device, ibv_event_type::IBV_EVENT_DEVICE_FATAL, 0);
        let on_it = |(_, id): &(usize, &Id)| id.device == Some(device) && id.delivered;
        let ids: Vec<usize> = self
            .ids
            .iter()
            .filter(on_it)
            .map(|(address, _)| address)
            .collect();
        for id in ids {
            // A request that was not accepted is told nothing.
            if self.id(id).state == State::Requested {
                continue;
            }
            self.push(Queued::new(
                id,
                rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL,
                0,
            ));
        }
    }
}

/// The parameters in an event of a connection.
pub(crate) fn conn(queued: &Queued) -> Param {
    match &queued.load {
        Load::Conn(param) => param.clone(),
        Load::Datagram(_) => Param::default(),
    }
}

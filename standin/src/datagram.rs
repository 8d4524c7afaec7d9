//! Datagrams: whom they are for, and the header in front of them.

use crate::c::ibv_qp_type;
use crate::gid::{bytes_of, gid_of, is_multicast};
use crate::qp::Send;
use crate::world::World;
use crate::wr;

/// The global routing header, as it lies in front of what was received.
pub(crate) type Header = [u8; 40];

/// The most that a datagram carries: the MTU of every port here.
const LARGEST: usize = 1024;
/// The number of a queue pair that stands for all that are attached to a group.
const EVERYBODY: u32 = 0x00ff_ffff;
/// A key with this bit stands for the sender's own.
const OWN_KEY: u32 = 1 << 31;

impl World {
    /// Sends a datagram. It is lost without a word when nobody takes it.
    pub(crate) fn datagram(&mut self, qp: usize, send: &Send, data: &[u8]) {
        let (handle, number, key) = wr::datagram_of(&send.wr);
        let to = bytes_of(&self.ah(handle.addr()).attr.grh.dgid);
        let (pd, own_key) = (self.qp(qp).pd, self.qp(qp).attr.qkey);
        let device = self.pd(pd).device;
        let key = if key & OWN_KEY != 0 { own_key } else { key };
        if data.len() > LARGEST {
            return;
        }
        let group = number == EVERYBODY && is_multicast(to);
        let takes: Vec<usize> = self
            .qps
            .iter()
            .filter(|(_, other)| {
                let meant = if group {
                    other.attached.contains(&to)
                } else {
                    other.number == number && self.has_gid(other.pd, to)
                };
                meant && other.kind == ibv_qp_type::IBV_QPT_UD && other.attr.qkey == key
            })
            .map(|(address, _)| address)
            .collect();
        let from = self.devices[device].addresses.first();
        let from = from.map_or([0; 16], |address| bytes_of(&gid_of(*address)));
        let header = header(data.len(), from, to);
        for other in takes {
            if self.is_ready(other) {
                // What becomes of it, the sender never hears.
                let _ = self.deliver(qp, other, send, data, Some(&header));
            }
        }
    }
}

impl World {
    /// Whether the device of a domain has this address.
    fn has_gid(&self, pd: usize, gid: [u8; 16]) -> bool {
        let device = &self.devices[self.pd(pd).device];
        let mut own = device.addresses.iter();
        own.any(|address| bytes_of(&gid_of(*address)) == gid)
    }
}

fn header(length: usize, from: [u8; 16], to: [u8; 16]) -> Header {
    let mut header = [0; 40];
    header[0] = 0x60;
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    header[4..6].copy_from_slice(&length.to_be_bytes());
    // The next header is InfiniBand's, and 64 hops are left.
    header[6] = 0x1b;
    header[7] = 64;
    header[8..24].copy_from_slice(&from);
    header[24..].copy_from_slice(&to);
    header
}

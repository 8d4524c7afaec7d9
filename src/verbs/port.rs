#![expect(unsafe_code, reason = "asks a device about its ports")]

use std::fmt;

use bitflags::bitflags;
use rdma_sys::{ibv_port_attr, ibv_port_state};

use super::context::Context;
use super::mtu::Mtu;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs};

const OP: &str = "ibv_query_port";

/// A port of a device as it was when it was asked (`ibv_port_attr`).
#[doc(alias = "ibv_port_attr")]
#[derive(Clone, Copy)]
pub struct Port {
    number: u8,
    attr: ibv_port_attr,
}

/// What state a port is in (`ibv_port_state`).
#[doc(alias = "ibv_port_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortState {
    /// Nothing is known of it.
    #[doc(alias = "IBV_PORT_NOP")]
    Nop,
    /// The link is down.
    #[doc(alias = "IBV_PORT_DOWN")]
    Down,
    /// The link is up; nobody has set the port up yet.
    #[doc(alias = "IBV_PORT_INIT")]
    Init,
    /// It is set up, and waits to be made active.
    #[doc(alias = "IBV_PORT_ARMED")]
    Armed,
    /// It works.
    #[doc(alias = "IBV_PORT_ACTIVE")]
    Active,
    /// The link has gone down a moment ago, and may come back.
    #[doc(alias = "IBV_PORT_ACTIVE_DEFER")]
    ActiveDefer,
    /// A number that this crate has no name for.
    Unknown(u32),
}

/// What is under a port.
#[doc(alias = "link_layer")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkLayer {
    /// The device does not say. Older InfiniBand devices do so.
    #[doc(alias = "IBV_LINK_LAYER_UNSPECIFIED")]
    Unspecified,
    /// InfiniBand.
    #[doc(alias = "IBV_LINK_LAYER_INFINIBAND")]
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    #[doc(alias = "IBV_LINK_LAYER_ETHERNET")]
    Ethernet,
    /// A number that this crate has no name for.
    Unknown(u8),
}

bitflags! {
    /// What a port can do (`ibv_port_cap_flags`). Bits without a name here are kept.
    #[doc(alias = "ibv_port_cap_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PortFlags: u32 {
        /// It is run by the subnet manager.
        #[doc(alias = "IBV_PORT_SM")]
        const SM = rdma_sys::IBV_PORT_SM;
        /// It sends notices.
        #[doc(alias = "IBV_PORT_NOTICE_SUP")]
        const NOTICE_SUP = rdma_sys::IBV_PORT_NOTICE_SUP;
        /// It sends traps.
        #[doc(alias = "IBV_PORT_TRAP_SUP")]
        const TRAP_SUP = rdma_sys::IBV_PORT_TRAP_SUP;
        /// It can hold its packets back.
        #[doc(alias = "IBV_PORT_OPT_IPD_SUP")]
        const OPT_IPD_SUP = rdma_sys::IBV_PORT_OPT_IPD_SUP;
        /// Connections can move to another path by themselves.
        #[doc(alias = "IBV_PORT_AUTO_MIGR_SUP")]
        const AUTO_MIGR_SUP = rdma_sys::IBV_PORT_AUTO_MIGR_SUP;
        /// It maps service levels.
        #[doc(alias = "IBV_PORT_SL_MAP_SUP")]
        const SL_MAP_SUP = rdma_sys::IBV_PORT_SL_MAP_SUP;
        /// It speaks at extended speeds.
        #[doc(alias = "IBV_PORT_EXTENDED_SPEEDS_SUP")]
        const EXTENDED_SPEEDS_SUP = rdma_sys::IBV_PORT_EXTENDED_SPEEDS_SUP;
        /// It has a second set of capabilities.
        #[doc(alias = "IBV_PORT_CAP_MASK2_SUP")]
        const CAP_MASK2_SUP = rdma_sys::IBV_PORT_CAP_MASK2_SUP;
        /// It takes part in connection management.
        #[doc(alias = "IBV_PORT_CM_SUP")]
        const CM_SUP = rdma_sys::IBV_PORT_CM_SUP;
        /// It can be initialized again.
        #[doc(alias = "IBV_PORT_REINIT_SUP")]
        const REINIT_SUP = rdma_sys::IBV_PORT_REINIT_SUP;
        /// It takes part in device management.
        #[doc(alias = "IBV_PORT_DEVICE_MGMT_SUP")]
        const DEVICE_MGMT_SUP = rdma_sys::IBV_PORT_DEVICE_MGMT_SUP;
        /// It has a class of its vendor.
        #[doc(alias = "IBV_PORT_VENDOR_CLASS_SUP")]
        const VENDOR_CLASS_SUP = rdma_sys::IBV_PORT_VENDOR_CLASS_SUP;
        /// It knows how long its link takes.
        #[doc(alias = "IBV_PORT_LINK_LATENCY_SUP")]
        const LINK_LATENCY_SUP = rdma_sys::IBV_PORT_LINK_LATENCY_SUP;
        /// It tells its clients to register again.
        #[doc(alias = "IBV_PORT_CLIENT_REG_SUP")]
        const CLIENT_REG_SUP = rdma_sys::IBV_PORT_CLIENT_REG_SUP;
        /// Its addresses are IP addresses.
        #[doc(alias = "IBV_PORT_IP_BASED_GIDS")]
        const IP_BASED_GIDS = rdma_sys::IBV_PORT_IP_BASED_GIDS;
        const _ = !0;
    }
}

impl Context {
    /// Asks for the state of a port. Ports are numbered from 1.
    ///
    /// Calls `ibv_query_port` ([man 3](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for a number above the device's last port,
    /// [`InvalidInput`](ErrorKind::InvalidInput) for 0; what the device reports, such as `EIO` after its removal.
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, number: u8) -> Result<Port> {
        let last = self.limits().port_count();
        if number > last {
            return Err(Error::too_large(
                OP,
                "port_num",
                number.into(),
                last.into(),
                "the device has no more ports",
            ));
        }
        if number == 0 {
            return Err(Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "port_num is 0; ports are numbered from 1",
            ));
        }
        let mut attr = ibv_port_attr::default();
        // SAFETY: `ibv_query_port` wants an open device and room for the answer.
        let returned = unsafe { rdma_sys::ibv_query_port(self.as_raw(), number, &raw mut attr) };
        errno_of_verbs(returned).map_err(|errno| Error::os(OP, errno))?;
        Ok(Port { number, attr })
    }

    /// Asks for the state of every port.
    ///
    /// Calls `ibv_query_port` for each. Blocks: no.
    ///
    /// # Errors
    ///
    /// What the device reports.
    pub fn ports(&self) -> Result<Vec<Port>> {
        (1..=self.limits().port_count())
            .map(|number| self.port(number))
            .collect()
    }
}

impl Port {
    /// The port's number, from 1.
    #[doc(alias = "port_num")]
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// What state it is in.
    #[must_use]
    pub fn state(&self) -> PortState {
        match self.attr.state {
            ibv_port_state::IBV_PORT_NOP => PortState::Nop,
            ibv_port_state::IBV_PORT_DOWN => PortState::Down,
            ibv_port_state::IBV_PORT_INIT => PortState::Init,
            ibv_port_state::IBV_PORT_ARMED => PortState::Armed,
            ibv_port_state::IBV_PORT_ACTIVE => PortState::Active,
            ibv_port_state::IBV_PORT_ACTIVE_DEFER => PortState::ActiveDefer,
            ibv_port_state(number) => PortState::Unknown(number),
        }
    }

    /// The largest packet that the port can do.
    #[must_use]
    pub fn max_mtu(&self) -> Mtu {
        Mtu::from_raw(self.attr.max_mtu.0)
    }

    /// The largest packet that the port does as it is set up.
    #[must_use]
    pub fn active_mtu(&self) -> Mtu {
        Mtu::from_raw(self.attr.active_mtu.0)
    }

    /// The longest message, in bytes (`max_msg_sz`).
    #[doc(alias = "max_msg_sz")]
    #[must_use]
    pub fn max_msg_size(&self) -> u32 {
        self.attr.max_msg_sz
    }

    /// What is under the port.
    #[must_use]
    pub fn link_layer(&self) -> LinkLayer {
        match u32::from(self.attr.link_layer) {
            rdma_sys::IBV_LINK_LAYER_UNSPECIFIED => LinkLayer::Unspecified,
            rdma_sys::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
            rdma_sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::Unknown(self.attr.link_layer),
        }
    }

    /// The port's local address in an InfiniBand subnet; 0 on Ethernet.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.attr.lid
    }

    /// How many of the low bits of a local address are the port's own to use.
    #[must_use]
    pub fn lmc(&self) -> u8 {
        self.attr.lmc
    }

    /// The local address of the subnet manager; 0 on Ethernet.
    #[must_use]
    pub fn sm_lid(&self) -> u16 {
        self.attr.sm_lid
    }

    /// The service level of the subnet manager.
    #[must_use]
    pub fn sm_sl(&self) -> u8 {
        self.attr.sm_sl
    }

    /// How many entries the table of addresses has: see [`Context::gids`].
    #[doc(alias = "gid_tbl_len")]
    #[must_use]
    pub fn gid_table_len(&self) -> u32 {
        u32::try_from(self.attr.gid_tbl_len).unwrap_or(0)
    }

    /// How many entries the table of partition keys has.
    #[doc(alias = "pkey_tbl_len")]
    #[must_use]
    pub fn pkey_table_len(&self) -> u16 {
        self.attr.pkey_tbl_len
    }

    /// What the port can do.
    #[doc(alias = "port_cap_flags")]
    #[must_use]
    pub fn flags(&self) -> PortFlags {
        PortFlags::from_bits_retain(self.attr.port_cap_flags)
    }

    /// Whether packets to this port must have a global routing header, so that a path to it needs a [`Gid`](super::Gid).
    #[doc(alias = "IBV_QPF_GRH_REQUIRED")]
    #[must_use]
    pub fn needs_grh(&self) -> bool {
        self.attr.flags & rdma_sys::IBV_QPF_GRH_REQUIRED != 0
            || self.link_layer() == LinkLayer::Ethernet
    }

    /// How many lanes the link has; `None` for a number that this crate has no name for.
    #[doc(alias = "active_width")]
    #[must_use]
    pub fn lanes(&self) -> Option<u32> {
        match self.attr.active_width {
            1 => Some(1),
            2 => Some(4),
            4 => Some(8),
            8 => Some(12),
            16 => Some(2),
            _ => None,
        }
    }

    /// The speed of a lane in Mbit/s, as InfiniBand names its generations; `None` for a number that this crate has no name for.
    #[doc(alias = "active_speed")]
    #[doc(alias = "active_speed_ex")]
    #[must_use]
    pub fn lane_megabits(&self) -> Option<u32> {
        Some(match self.speed_number() {
            1 => 2_500,
            2 => 5_000,
            4 | 8 => 10_000,
            16 => 14_000,
            32 => 25_000,
            64 => 50_000,
            128 => 100_000,
            256 => 200_000,
            _ => return None,
        })
    }

    /// The speed of the link in Mbit/s: that of all lanes together, before the encoding is taken off.
    #[must_use]
    pub fn megabits(&self) -> Option<u32> {
        self.lanes()?.checked_mul(self.lane_megabits()?)
    }

    /// The number of the lanes' speed: the 8 bits of old, or the 32 that newer libraries have for faster links.
    fn speed_number(&self) -> u32 {
        match self.attr.active_speed_ex {
            0 => self.attr.active_speed.into(),
            wide => wide,
        }
    }

    /// The C structure. What a device or an older library does not know is 0.
    #[must_use]
    pub fn as_raw(&self) -> &ibv_port_attr {
        &self.attr
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("number", &self.number)
            .field("state", &self.state())
            .field("link_layer", &self.link_layer())
            .field("max_mtu", &self.max_mtu())
            .field("active_mtu", &self.active_mtu())
            .field("lid", &self.lid())
            .field("gid_table_len", &self.gid_table_len())
            .field("lanes", &self.lanes())
            .field("lane_megabits", &self.lane_megabits())
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(change: impl FnOnce(&mut ibv_port_attr)) -> Port {
        let mut attr = ibv_port_attr::default();
        change(&mut attr);
        Port { number: 1, attr }
    }

    #[test]
    fn numbers_of_tomorrow_are_kept() {
        let strange = port(|attr| {
            attr.state = ibv_port_state(77);
            attr.active_mtu = rdma_sys::ibv_mtu(9);
            attr.link_layer = 5;
            attr.port_cap_flags = 1 << 31;
            attr.active_width = 32;
            attr.active_speed = 3;
            attr.gid_tbl_len = -4;
        });
        assert_eq!(strange.state(), PortState::Unknown(77));
        assert_eq!(strange.active_mtu().bytes(), None);
        assert_eq!(strange.active_mtu().as_raw(), 9);
        assert_eq!(strange.link_layer(), LinkLayer::Unknown(5));
        assert_eq!(strange.flags().bits(), 1 << 31);
        assert_eq!((strange.lanes(), strange.lane_megabits()), (None, None));
        assert_eq!(strange.megabits(), None);
        assert_eq!(strange.gid_table_len(), 0);
        assert!(format!("{strange:?}").contains("Unknown(77)"));
    }

    #[test]
    fn a_fast_link_has_its_speed_in_the_wider_field() {
        let ndr = port(|attr| {
            attr.active_width = 2;
            attr.active_speed = 128;
        });
        assert_eq!(ndr.megabits(), Some(400_000));
        let xdr = port(|attr| {
            attr.active_width = 2;
            attr.active_speed = 0;
            attr.active_speed_ex = 256;
        });
        assert_eq!(xdr.megabits(), Some(800_000));
    }

    #[test]
    fn a_path_over_ethernet_needs_a_global_address() {
        assert!(port(|attr| attr.link_layer = 2).needs_grh());
        assert!(!port(|attr| attr.link_layer = 1).needs_grh());
        let told = port(|attr| {
            attr.link_layer = 1;
            attr.flags = 1;
        });
        assert!(told.needs_grh());
    }
}

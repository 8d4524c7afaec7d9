#![expect(unsafe_code, reason = "asks a device for its addresses")]

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rdma_sys::{ibv_gid, ibv_gid_entry};

use super::context::Context;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs};

/// The address of a port (`ibv_gid`): 16 bytes, in the shape of an IPv6 address.
///
/// On RoCE v2 it is the IP address itself, an IPv4 address in its mapped form (`::ffff:10.9.0.1`).
#[doc(alias = "ibv_gid")]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid([u8; 16]);

impl Gid {
    /// From the bytes, in network order.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, in network order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The IP address that it stands for on RoCE v2: IPv4 where it is a mapped one.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// Whether it is all zeros: no address.
    #[must_use]
    pub fn is_unspecified(self) -> bool {
        self == Self::default()
    }

    pub(super) fn from_raw(raw: ibv_gid) -> Self {
        // SAFETY: both members of the union are the same sixteen bytes.
        Self(unsafe { raw.raw })
    }

    pub(crate) const fn to_raw(self) -> ibv_gid {
        ibv_gid { raw: self.0 }
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    /// The mapped form, as RoCE v2 has it.
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Gid> for Ipv6Addr {
    fn from(gid: Gid) -> Self {
        gid.0.into()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// What kind of address a [`Gid`] is, which decides what packets look like (`ibv_gid_type`).
#[doc(alias = "ibv_gid_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand's.
    #[doc(alias = "IBV_GID_TYPE_IB")]
    InfiniBand,
    /// RoCE version 1: Ethernet only, within one network.
    #[doc(alias = "IBV_GID_TYPE_ROCE_V1")]
    RoceV1,
    /// RoCE version 2: UDP over IP, which routers pass on.
    #[doc(alias = "IBV_GID_TYPE_ROCE_V2")]
    RoceV2,
    /// A number that this crate has no name for.
    Unknown(u32),
}

impl GidType {
    fn new(raw: u32) -> Self {
        match raw {
            rdma_sys::IBV_GID_TYPE_IB => Self::InfiniBand,
            rdma_sys::IBV_GID_TYPE_ROCE_V1 => Self::RoceV1,
            rdma_sys::IBV_GID_TYPE_ROCE_V2 => Self::RoceV2,
            number => Self::Unknown(number),
        }
    }
}

/// An entry of a port's table of addresses (`ibv_gid_entry`).
#[doc(alias = "ibv_gid_entry")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GidEntry {
    gid: Gid,
    index: u32,
    port: u32,
    gid_type: GidType,
    interface: u32,
}

impl GidEntry {
    fn new(raw: &ibv_gid_entry) -> Self {
        Self {
            gid: Gid::from_raw(raw.gid),
            index: raw.gid_index,
            port: raw.port_num,
            gid_type: GidType::new(raw.gid_type),
            interface: raw.ndev_ifindex,
        }
    }

    /// The address.
    #[must_use]
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Its place in the port's table, by which queue pairs and address handles name it.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The port whose table it is in.
    #[must_use]
    pub fn port_num(&self) -> u32 {
        self.port
    }

    /// What kind of address it is.
    #[must_use]
    pub fn gid_type(&self) -> GidType {
        self.gid_type
    }

    /// The network interface whose address it is, by its index in the system; `None` on InfiniBand.
    #[doc(alias = "ndev_ifindex")]
    #[must_use]
    pub fn interface_index(&self) -> Option<u32> {
        (self.interface != 0).then_some(self.interface)
    }
}

/// More entries than any device has: what a table may be asked for at most.
const MOST_ENTRIES: usize = 1 << 16;

impl Context {
    /// Asks for one entry of a port's table of addresses.
    ///
    /// Ports are numbered from 1, entries from 0.
    ///
    /// Calls `ibv_query_gid_ex` ([man 3](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)), which reads
    /// `/sys` on a kernel that is older than the call. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for a port or an index that does not exist;
    /// [`AddrNotAvailable`](ErrorKind::AddrNotAvailable) (`ENODATA`) for an entry without an address.
    #[doc(alias = "ibv_query_gid")]
    #[doc(alias = "ibv_query_gid_ex")]
    #[doc(alias = "ibv_query_gid_type")]
    pub fn gid(&self, port: u8, index: u32) -> Result<GidEntry> {
        const OP: &str = "ibv_query_gid_ex";
        let len = self.port(port)?.gid_table_len();
        if index >= len {
            return Err(Error::too_large(
                OP,
                "gid_index",
                index.into(),
                u64::from(len).saturating_sub(1),
                "`Context::gids` lists the entries that there are",
            ));
        }
        let mut entry = ibv_gid_entry::default();
        // SAFETY: `ibv_query_gid_ex` wants an open device and room for the answer.
        let returned = unsafe {
            rdma_sys::ibv_query_gid_ex(self.as_raw(), port.into(), index, &raw mut entry, 0)
        };
        match errno_of_verbs(returned) {
            Ok(()) => Ok(GidEntry::new(&entry)),
            Err(errno @ libc::ENODATA) => Err(Error::os_as(OP, errno, ErrorKind::AddrNotAvailable)),
            Err(errno) => Err(Error::os(OP, errno)),
        }
    }

    /// Lists the addresses of a port: the entries of its table that are in use.
    ///
    /// On a network with IPv4 and IPv6 there are several: the one to use is that whose [`Gid`] is the local IP address, of
    /// [`RoceV2`](GidType::RoceV2) where packets pass a router.
    ///
    /// Calls `ibv_query_gid_table` ([man 3](https://man7.org/linux/man-pages/man3/ibv_query_gid_table.3.html)), which reads
    /// `/sys` on a kernel that is older than the call. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`gid`](Self::gid) for a port that does not exist; what the device reports.
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>> {
        const OP: &str = "ibv_query_gid_table";
        // Without the port the error would be an empty list.
        self.port(port)?;
        let mut room = 0;
        for port in self.ports()? {
            room += usize::try_from(port.gid_table_len()).unwrap_or(MOST_ENTRIES);
        }
        let mut entries = vec![ibv_gid_entry::default(); room.min(MOST_ENTRIES)];
        // SAFETY: `ibv_query_gid_table` wants an open device and room for as many entries as it is told.
        let returned = unsafe {
            rdma_sys::ibv_query_gid_table(self.as_raw(), entries.as_mut_ptr(), entries.len(), 0)
        };
        let count = usize::try_from(returned).map_err(|_| {
            let errno = returned.saturating_neg().try_into().unwrap_or(i32::MAX);
            Error::os(OP, errno)
        })?;
        let mine = entries.iter().take(count).map(GidEntry::new);
        Ok(mine
            .filter(|entry| entry.port_num() == u32::from(port))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_the_mapped_one() {
        let gid = Gid::from(Ipv4Addr::new(10, 9, 0, 1));
        assert_eq!(gid.to_string(), "::ffff:10.9.0.1");
        assert_eq!(gid.to_ip(), IpAddr::from([10, 9, 0, 1]));
        assert_eq!(Gid::from_bytes(gid.to_bytes()), gid);
        assert!(!gid.is_unspecified());
        let v6: IpAddr = "fd09::1".parse().unwrap();
        assert_eq!(Gid::from(v6).to_ip(), v6);
        assert_eq!(IpAddr::from(Ipv6Addr::from(Gid::from(v6))), v6);
    }

    #[test]
    fn a_type_of_tomorrow_is_kept_as_a_number() {
        let types = [0, 1, 2, 3, u32::MAX].map(GidType::new);
        assert_eq!(
            types,
            [
                GidType::InfiniBand,
                GidType::RoceV1,
                GidType::RoceV2,
                GidType::Unknown(3),
                GidType::Unknown(u32::MAX)
            ]
        );
    }
}

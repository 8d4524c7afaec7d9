use std::fmt;

use rdma_sys::ibv_ah_attr;

/// The way to another machine's port, for datagrams (`ibv_ah_attr`): what an address handle is made of.
#[derive(Clone, Copy)]
pub struct AddressVector(ibv_ah_attr);

impl AddressVector {
    pub(crate) fn from_raw(raw: ibv_ah_attr) -> Self {
        Self(raw)
    }

    /// The global address (GID) of the destination; always there over RoCE.
    #[must_use]
    pub fn dgid(&self) -> Option<[u8; 16]> {
        (self.0.is_global != 0).then(|| gid_bytes(&self.0))
    }

    /// The index of this side's own address in its port's table.
    #[must_use]
    pub fn sgid_index(&self) -> u8 {
        self.0.grh.sgid_index
    }

    /// How many routers a packet may pass.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.0.grh.hop_limit
    }

    /// The traffic class of the packets.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.0.grh.traffic_class
    }

    /// The local address (LID) of the destination, in an InfiniBand subnet.
    #[must_use]
    pub fn dlid(&self) -> u16 {
        self.0.dlid
    }

    /// The service level.
    #[must_use]
    pub fn service_level(&self) -> u8 {
        self.0.sl
    }

    /// The port of this side's device that leads there.
    #[must_use]
    pub fn port_num(&self) -> u8 {
        self.0.port_num
    }

    /// The C structure.
    #[must_use]
    pub fn as_raw(&self) -> &ibv_ah_attr {
        &self.0
    }
}

#[expect(unsafe_code, reason = "reads a union of plain bytes")]
fn gid_bytes(attr: &ibv_ah_attr) -> [u8; 16] {
    // SAFETY: both members of the union are the same sixteen bytes.
    unsafe { attr.grh.dgid.raw }
}

impl fmt::Debug for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressVector")
            .field("dgid", &self.dgid().map(std::net::Ipv6Addr::from))
            .field("sgid_index", &self.sgid_index())
            .field("dlid", &self.dlid())
            .field("port_num", &self.port_num())
            .finish_non_exhaustive()
    }
}

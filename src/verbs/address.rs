use std::fmt;

use rdma_sys::{ibv_ah_attr, ibv_global_route};

use super::gid::Gid;

/// The way to another machine's port, for datagrams (`ibv_ah_attr`): what an address handle is made of.
///
/// The connection manager gives it ([`Destination::address`](crate::Destination::address)), and so does a datagram for its
/// sender. By hand:
///
/// ```
/// use rdmacm::AddressVector;
///
/// // RoCE v2 to 10.9.0.2 from the second address of port 1.
/// let dgid = std::net::Ipv4Addr::new(10, 9, 0, 2).into();
/// let there = AddressVector::global(1, dgid, 1).with_hop_limit(1);
/// assert_eq!(there.sgid_index(), 1);
/// ```
#[doc(alias = "ibv_ah_attr")]
#[doc(alias = "ibv_global_route")]
#[derive(Clone, Copy)]
pub struct AddressVector(ibv_ah_attr);

/// How many routers a packet may pass where nobody says otherwise: as many as with the connection manager over RoCE.
const HOP_LIMIT: u8 = 64;

impl AddressVector {
    pub(crate) fn from_raw(raw: ibv_ah_attr) -> Self {
        Self(raw)
    }

    /// To the global address `dgid`, from this side's own address with the index `sgid_index` in the table of port `port_num`
    /// ([`Context::gids`](super::Context::gids)).
    ///
    /// Over RoCE that is all; over InfiniBand [`with_dlid`](Self::with_dlid) names the destination, or the router, too.
    #[must_use]
    pub fn global(port_num: u8, dgid: Gid, sgid_index: u8) -> Self {
        Self(ibv_ah_attr {
            grh: ibv_global_route {
                dgid: dgid.to_raw(),
                sgid_index,
                hop_limit: HOP_LIMIT,
                ..ibv_global_route::default()
            },
            is_global: 1,
            port_num,
            ..ibv_ah_attr::default()
        })
    }

    /// To the local address `dlid` of the InfiniBand subnet that port `port_num` is in.
    #[must_use]
    pub fn local(port_num: u8, dlid: u16) -> Self {
        Self(ibv_ah_attr {
            dlid,
            port_num,
            ..ibv_ah_attr::default()
        })
    }

    /// The same, with the local address (LID) of the destination or of the router to it: InfiniBand.
    #[must_use]
    pub fn with_dlid(mut self, dlid: u16) -> Self {
        self.0.dlid = dlid;
        self
    }

    /// The same, with a limit on how many routers a packet may pass; 64 unless it is set.
    #[must_use]
    pub fn with_hop_limit(mut self, hop_limit: u8) -> Self {
        self.0.grh.hop_limit = hop_limit;
        self
    }

    /// The same, with a traffic class (over RoCE v2 the DSCP and ECN bits of IP).
    #[must_use]
    pub fn with_traffic_class(mut self, traffic_class: u8) -> Self {
        self.0.grh.traffic_class = traffic_class;
        self
    }

    /// The same, with a flow label, of which 20 bits count.
    #[must_use]
    pub fn with_flow_label(mut self, flow_label: u32) -> Self {
        self.0.grh.flow_label = flow_label & 0xf_ffff;
        self
    }

    /// The same, with a service level.
    #[must_use]
    pub fn with_service_level(mut self, service_level: u8) -> Self {
        self.0.sl = service_level;
        self
    }

    /// The global address (GID) of the destination; always there over RoCE.
    #[must_use]
    pub fn dgid(&self) -> Option<Gid> {
        (self.0.is_global != 0).then(|| Gid::from_raw(self.0.grh.dgid))
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

    /// The flow label of the packets.
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        self.0.grh.flow_label
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

impl fmt::Debug for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressVector")
            .field("dgid", &self.dgid())
            .field("sgid_index", &self.sgid_index())
            .field("dlid", &self.dlid())
            .field("port_num", &self.port_num())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_by_hand_says_what_it_was_given() {
        let dgid = Gid::from_bytes([7; 16]);
        let there = AddressVector::global(2, dgid, 3)
            .with_dlid(9)
            .with_hop_limit(5)
            .with_traffic_class(0x28)
            .with_flow_label(0xfff_1234)
            .with_service_level(4);
        assert_eq!(there.dgid(), Some(dgid));
        assert_eq!(
            (there.port_num(), there.sgid_index(), there.hop_limit()),
            (2, 3, 5)
        );
        assert_eq!((there.dlid(), there.service_level()), (9, 4));
        assert_eq!(there.traffic_class(), 0x28);
        assert_eq!(there.flow_label(), 0xf_1234);
        assert_eq!(AddressVector::global(1, dgid, 0).hop_limit(), 64);
        let near = AddressVector::local(1, 12);
        assert_eq!((near.dgid(), near.dlid()), (None, 12));
    }
}

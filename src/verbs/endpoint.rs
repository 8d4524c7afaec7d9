use std::time::Duration;

use super::address::AddressVector;
use super::gid::Gid;
use super::mtu::Mtu;
use super::retry::{RetryCount, RnrRetry};

/// One end of a connection of two queue pairs made by hand: what the other side has to know.
///
/// [`InitQp::endpoint`](super::InitQp::endpoint) gives this side's; the peer's comes over some other way, such as a TCP
/// connection, as [bytes](Self::to_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct QpEndpoint {
    /// The number of the queue pair.
    pub qp_num: u32,
    /// The number of the first packet that it sends, of 24 bits.
    pub psn: u32,
    /// The local address of its port in an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// The largest packet of its port.
    pub mtu: Mtu,
    /// How many RDMA reads and atomics of the peer it answers at a time; 0 for an unreliable connection.
    pub max_dest_rd_atomic: u8,
    /// The address of its port.
    pub gid: Gid,
}

impl QpEndpoint {
    /// The length of the byte form.
    pub const LEN: usize = 28;

    /// From the byte form. Every number is taken as it is; an invalid one fails where it is used.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [
            q0,
            q1,
            q2,
            q3,
            p0,
            p1,
            p2,
            p3,
            l0,
            l1,
            mtu,
            max_dest_rd_atomic,
            gid @ ..,
        ] = bytes;
        Self {
            qp_num: u32::from_be_bytes([q0, q1, q2, q3]),
            psn: u32::from_be_bytes([p0, p1, p2, p3]),
            lid: u16::from_be_bytes([l0, l1]),
            mtu: Mtu::from_raw(mtu.into()),
            max_dest_rd_atomic,
            gid: Gid::from_bytes(gid),
        }
    }

    /// The byte form, to be sent to the peer: the fields in the order of the type, numbers in network order, the packet size as
    /// its number in C in one byte.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.qp_num.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.psn.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_be_bytes());
        // A number above a byte's is no size, and neither is 0.
        bytes[10] = u8::try_from(self.mtu.as_raw()).unwrap_or(0);
        bytes[11] = self.max_dest_rd_atomic;
        bytes[12..].copy_from_slice(&self.gid.to_bytes());
        bytes
    }
}

/// The peer of a queue pair made by hand, and the way there: what [`InitQp::to_rtr`](super::InitQp::to_rtr) needs.
///
/// From the peer's [`QpEndpoint`], with what is to be different set by the methods.
#[derive(Clone, Debug)]
pub struct RemoteEnd {
    pub(super) end: QpEndpoint,
    pub(super) gid_index: u8,
    pub(super) address: Option<AddressVector>,
    pub(super) path_mtu: Option<Mtu>,
    pub(super) max_dest_rd_atomic: Option<u8>,
    pub(super) min_rnr_timer: Duration,
}

impl RemoteEnd {
    /// The peer `end`, reached from this side's own address with the index `gid_index`, which is the one that this side's
    /// [`endpoint`](super::InitQp::endpoint) was asked with.
    ///
    /// Packets are as large as both ports allow; the peer's reads are answered as many at a time as this side's endpoint says;
    /// a peer that finds no receive waits for 0.64 ms.
    #[must_use]
    pub fn new(end: &QpEndpoint, gid_index: u8) -> Self {
        Self {
            end: *end,
            gid_index,
            address: None,
            path_mtu: None,
            max_dest_rd_atomic: None,
            min_rnr_timer: Duration::from_micros(640),
        }
    }

    /// Sets the way to the peer, in place of the one that its endpoint and `gid_index` say: with a service level or a traffic
    /// class, for example.
    #[doc(alias = "IBV_QP_AV")]
    #[must_use]
    pub fn address(mut self, address: AddressVector) -> Self {
        self.address = Some(address);
        self
    }

    /// Sets the largest packet: the same on both sides, and at most what both ports allow.
    #[doc(alias = "IBV_QP_PATH_MTU")]
    #[must_use]
    pub fn path_mtu(mut self, mtu: Mtu) -> Self {
        self.path_mtu = Some(mtu);
        self
    }

    /// Sets how many RDMA reads and atomics of the peer are answered at a time: at most the device's `max_qp_rd_atom`, and at
    /// least what the peer has outstanding.
    #[doc(alias = "IBV_QP_MAX_DEST_RD_ATOMIC")]
    #[must_use]
    pub fn max_dest_rd_atomic(mut self, depth: u8) -> Self {
        self.max_dest_rd_atomic = Some(depth);
        self
    }

    /// Sets how long the peer is told to wait before it sends again, when this side has no receive posted: the next longer time
    /// that the field can say, at most 655.36 ms.
    #[doc(alias = "IBV_QP_MIN_RNR_TIMER")]
    #[must_use]
    pub fn min_rnr_timer(mut self, time: Duration) -> Self {
        self.min_rnr_timer = time;
        self
    }
}

/// How a queue pair made by hand sends: what [`RtrQp::to_rts`](super::RtrQp::to_rts) needs. For an unreliable connection only the
/// number of the first packet counts.
#[derive(Clone, Debug)]
pub struct RtsParam {
    pub(super) sq_psn: u32,
    pub(super) timeout: Duration,
    pub(super) retry_count: RetryCount,
    pub(super) rnr_retry: RnrRetry,
    pub(super) max_rd_atomic: Option<u8>,
}

impl RtsParam {
    /// With `psn` as the number of the first packet: the one in this side's [`QpEndpoint`].
    ///
    /// An answer is waited for at least 67 ms, seven times again; a peer without a receive is tried for ever; as many reads
    /// and atomics may be outstanding as the peer answers and the device can ask.
    #[must_use]
    pub fn new(psn: u32) -> Self {
        Self {
            sq_psn: psn,
            timeout: Duration::from_millis(67),
            retry_count: RetryCount::default(),
            rnr_retry: RnrRetry::FOREVER,
            max_rd_atomic: None,
        }
    }

    /// Sets how long an answer of the peer is waited for before a packet is sent again: the next longer time that the field can
    /// say, from 8 µs to 2.4 hours.
    #[doc(alias = "IBV_QP_TIMEOUT")]
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Sets how often a packet is sent again without an answer.
    #[doc(alias = "IBV_QP_RETRY_CNT")]
    #[must_use]
    pub fn retry_count(mut self, count: RetryCount) -> Self {
        self.retry_count = count;
        self
    }

    /// Sets how often a message is sent again to a peer without a receive.
    #[doc(alias = "IBV_QP_RNR_RETRY")]
    #[must_use]
    pub fn rnr_retry(mut self, retry: RnrRetry) -> Self {
        self.rnr_retry = retry;
        self
    }

    /// Sets how many RDMA reads and atomics may be outstanding: at most the device's `max_qp_init_rd_atom`, and what the peer
    /// answers at a time. With 0 they are refused.
    #[doc(alias = "IBV_QP_MAX_QP_RD_ATOMIC")]
    #[must_use]
    pub fn max_rd_atomic(mut self, depth: u8) -> Self {
        self.max_rd_atomic = Some(depth);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_form_is_in_network_order() {
        let end = QpEndpoint {
            qp_num: 0x01_0203,
            psn: 0x04_0506,
            lid: 0x0708,
            mtu: Mtu::B1024,
            max_dest_rd_atomic: 16,
            gid: Gid::from_bytes(*b"0123456789abcdef"),
        };
        let bytes = end.to_bytes();
        assert_eq!(bytes[..12], [0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 3, 16]);
        assert_eq!(bytes[12..], *b"0123456789abcdef");
        assert_eq!(QpEndpoint::from_bytes(bytes), end);
        let strange = [0xff; QpEndpoint::LEN];
        assert_eq!(QpEndpoint::from_bytes(strange).to_bytes(), strange);
    }
}

use std::fmt;
use std::time::Duration;

use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_CAP, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    ibv_qp_attr, ibv_qp_cap, ibv_qp_state,
};

use super::ack_timeout::ack_timeout;
use super::address::AddressVector;
use super::mtu::Mtu;
use super::qp::QueuePair;
use super::registration::Access;
use super::retry::{RetryCount, RnrRetry};
use super::rnr_timer::rnr_timer;
use crate::error::Result;

/// What is asked: all that a connected queue pair has.
const ALL: u32 = IBV_QP_STATE
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_RQ_PSN
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_CAP
    | IBV_QP_DEST_QPN;

/// What state a queue pair is in (`ibv_qp_state`).
#[doc(alias = "ibv_qp_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QpState {
    /// Just made, or set back.
    #[doc(alias = "IBV_QPS_RESET")]
    Reset,
    /// Bound to a port.
    #[doc(alias = "IBV_QPS_INIT")]
    Init,
    /// Ready to receive.
    #[doc(alias = "IBV_QPS_RTR")]
    ReadyToReceive,
    /// Ready to send, too: where a connection works.
    #[doc(alias = "IBV_QPS_RTS")]
    ReadyToSend,
    /// Sends are held back once those that were begun are done.
    #[doc(alias = "IBV_QPS_SQD")]
    SendQueueDrained,
    /// A send has failed, and receives go on.
    #[doc(alias = "IBV_QPS_SQE")]
    SendQueueError,
    /// Nothing works any more; what is posted is flushed.
    #[doc(alias = "IBV_QPS_ERR")]
    Error,
    /// A number that this crate has no name for.
    #[doc(alias = "IBV_QPS_UNKNOWN")]
    Unknown(u32),
}

impl QpState {
    fn new(raw: ibv_qp_state) -> Self {
        match raw {
            ibv_qp_state::IBV_QPS_RESET => Self::Reset,
            ibv_qp_state::IBV_QPS_INIT => Self::Init,
            ibv_qp_state::IBV_QPS_RTR => Self::ReadyToReceive,
            ibv_qp_state::IBV_QPS_RTS => Self::ReadyToSend,
            ibv_qp_state::IBV_QPS_SQD => Self::SendQueueDrained,
            ibv_qp_state::IBV_QPS_SQE => Self::SendQueueError,
            ibv_qp_state::IBV_QPS_ERR => Self::Error,
            ibv_qp_state(number) => Self::Unknown(number),
        }
    }
}

/// How much a queue pair holds (`ibv_qp_cap`): what was granted, which is at least what was asked.
///
/// This crate counts by what was asked.
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Capacities {
    /// How many sends may be outstanding.
    pub max_send_wr: u32,
    /// How many receives may be posted; 0 with a shared receive queue.
    pub max_recv_wr: u32,
    /// How many buffers a request of the send queue may have.
    pub max_send_sge: u32,
    /// How many buffers a receive may have.
    pub max_recv_sge: u32,
    /// How many bytes may be sent inline.
    pub max_inline_data: u32,
}

impl Capacities {
    pub(super) fn new(raw: ibv_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }
}

/// The attributes of a queue pair when it was asked (`ibv_qp_attr`). Those of the connection mean something from RTR on, those of
/// sending from RTS on; an unreliable connection has no depths, timeouts and retries.
#[doc(alias = "ibv_qp_attr")]
#[doc(alias = "ibv_qp_attr_mask")]
#[derive(Clone, Copy)]
pub struct QpAttributes(ibv_qp_attr);

impl QueuePair {
    /// Asks for the queue pair's state and attributes.
    ///
    /// Calls `ibv_query_qp` ([man 3](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)), which goes to the kernel, and
    /// on some devices to the hardware: not for every message. Blocks: while the connection manager works on the queue pair.
    ///
    /// # Errors
    ///
    /// What the device reports, such as `EIO` after its removal.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttributes> {
        self.inner().query(ALL).map(QpAttributes)
    }

    /// How much the queue pair holds, as it was granted when it was made.
    #[must_use]
    pub fn capacities(&self) -> Capacities {
        self.inner().capacities()
    }
}

impl QpAttributes {
    /// What state it is in.
    #[doc(alias = "IBV_QP_STATE")]
    #[must_use]
    pub fn state(&self) -> QpState {
        QpState::new(self.0.qp_state)
    }

    /// The size of packets.
    #[doc(alias = "IBV_QP_PATH_MTU")]
    #[must_use]
    pub fn path_mtu(&self) -> Mtu {
        Mtu::from_raw(self.0.path_mtu.0)
    }

    /// The number of the peer's queue pair.
    #[doc(alias = "IBV_QP_DEST_QPN")]
    #[must_use]
    pub fn dest_qp_num(&self) -> u32 {
        self.0.dest_qp_num
    }

    /// The way to the peer.
    #[doc(alias = "IBV_QP_AV")]
    #[doc(alias = "ah_attr")]
    #[must_use]
    pub fn address(&self) -> AddressVector {
        AddressVector::from_raw(self.0.ah_attr)
    }

    /// The number of the next packet that is received, or of the first, as the device has it.
    #[doc(alias = "IBV_QP_RQ_PSN")]
    #[must_use]
    pub fn rq_psn(&self) -> u32 {
        self.0.rq_psn
    }

    /// The number of the next packet that is sent, or of the first, as the device has it.
    #[doc(alias = "IBV_QP_SQ_PSN")]
    #[must_use]
    pub fn sq_psn(&self) -> u32 {
        self.0.sq_psn
    }

    /// What the peer may do with the memory that is open to it. Other flags are in [`as_raw`](Self::as_raw).
    #[doc(alias = "IBV_QP_ACCESS_FLAGS")]
    #[doc(alias = "qp_access_flags")]
    #[must_use]
    pub fn access(&self) -> Access {
        Access::from_bits_truncate(self.0.qp_access_flags)
    }

    /// How many RDMA reads and atomics may be outstanding.
    #[doc(alias = "IBV_QP_MAX_QP_RD_ATOMIC")]
    #[must_use]
    pub fn max_rd_atomic(&self) -> u8 {
        self.0.max_rd_atomic
    }

    /// How many RDMA reads and atomics of the peer are answered at a time.
    #[doc(alias = "IBV_QP_MAX_DEST_RD_ATOMIC")]
    #[must_use]
    pub fn max_dest_rd_atomic(&self) -> u8 {
        self.0.max_dest_rd_atomic
    }

    /// How long the peer is told to wait when there is no receive for it.
    #[doc(alias = "IBV_QP_MIN_RNR_TIMER")]
    #[must_use]
    pub fn min_rnr_timer(&self) -> Option<Duration> {
        rnr_timer(self.0.min_rnr_timer)
    }

    /// How long an answer of the peer is waited for; `None` is for ever.
    #[doc(alias = "IBV_QP_TIMEOUT")]
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        ack_timeout(self.0.timeout)
    }

    /// How often a packet is sent again without an answer.
    #[doc(alias = "IBV_QP_RETRY_CNT")]
    #[must_use]
    pub fn retry_count(&self) -> RetryCount {
        RetryCount::from_raw(self.0.retry_cnt)
    }

    /// How often a message is sent again to a peer without a receive.
    #[doc(alias = "IBV_QP_RNR_RETRY")]
    #[must_use]
    pub fn rnr_retry(&self) -> RnrRetry {
        RnrRetry::from_raw(self.0.rnr_retry)
    }

    /// The port that it is bound to.
    #[doc(alias = "IBV_QP_PORT")]
    #[must_use]
    pub fn port_num(&self) -> u8 {
        self.0.port_num
    }

    /// Which entry of the port's table of partition keys packets carry.
    #[doc(alias = "IBV_QP_PKEY_INDEX")]
    #[must_use]
    pub fn pkey_index(&self) -> u16 {
        self.0.pkey_index
    }

    /// How much it holds, as the device says now: soft-RoCE tells what was asked here, and what was granted when the queue pair
    /// was made ([`QueuePair::capacities`]).
    #[doc(alias = "IBV_QP_CAP")]
    #[must_use]
    pub fn capacities(&self) -> Capacities {
        Capacities::new(self.0.cap)
    }

    /// The C structure.
    #[must_use]
    pub fn as_raw(&self) -> &ibv_qp_attr {
        &self.0
    }
}

impl fmt::Debug for QpAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpAttributes")
            .field("state", &self.state())
            .field("path_mtu", &self.path_mtu())
            .field("dest_qp_num", &self.dest_qp_num())
            .field("address", &self.address())
            .field("rq_psn", &self.rq_psn())
            .field("sq_psn", &self.sq_psn())
            .field("access", &self.access())
            .field("max_rd_atomic", &self.max_rd_atomic())
            .field("max_dest_rd_atomic", &self.max_dest_rd_atomic())
            .field("min_rnr_timer", &self.min_rnr_timer())
            .field("timeout", &self.timeout())
            .field("retry_count", &self.retry_count())
            .field("rnr_retry", &self.rnr_retry())
            .field("port_num", &self.port_num())
            .field("pkey_index", &self.pkey_index())
            .field("capacities", &self.capacities())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_times_and_a_state_of_tomorrow_a_number() {
        let mut raw = ibv_qp_attr {
            qp_state: ibv_qp_state(42),
            timeout: 14,
            min_rnr_timer: 12,
            qp_access_flags: rdma_sys::IBV_ACCESS_REMOTE_WRITE | rdma_sys::IBV_ACCESS_LOCAL_WRITE,
            ..ibv_qp_attr::default()
        };
        let attributes = QpAttributes(raw);
        assert_eq!(attributes.state(), QpState::Unknown(42));
        assert_eq!(attributes.timeout(), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(attributes.min_rnr_timer(), Some(Duration::from_micros(640)));
        assert_eq!(attributes.access(), Access::WRITE);
        raw.timeout = 0;
        raw.min_rnr_timer = 200;
        let attributes = QpAttributes(raw);
        assert_eq!(attributes.timeout(), None);
        assert_eq!(attributes.min_rnr_timer(), None);
        raw.timeout = u8::MAX;
        assert!(QpAttributes(raw).timeout().is_some());
        assert!(format!("{attributes:?}").contains("Unknown(42)"));
    }
}

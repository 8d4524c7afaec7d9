#![expect(
    unsafe_code,
    reason = "makes queue pairs and moves them through their states"
)]
//! Queue pairs whose states the program moves, without the connection manager: RESET, INIT, RTR, RTS, each a type.

use std::sync::Arc;

use rdma_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    ibv_mtu, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
};

use super::ack_timeout::ack_timeout_code;
use super::address::AddressVector;
use super::context::Context;
use super::endpoint::{QpEndpoint, RemoteEnd, RtsParam};
use super::pd::ProtectionDomain;
use super::qp::{QueuePair, QueuePairInit, new_of_type};
use super::qp_ends::{ByHand, create_connected};
use super::recv_queue::ReceiveQueue;
use super::registration::Access;
use super::rnr_timer::rnr_timer_code;
use super::standing::Standing;
use super::wire::MAX_NUMBER;
use crate::error::{Error, ErrorKind, Result};

const CREATE: &str = "ibv_create_qp";
const MODIFY: &str = "ibv_modify_qp";

/// What a connection of two queue pairs made by hand promises.
#[doc(alias = "ibv_qp_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// Everything arrives, once and in order, or the connection fails (`IBV_QPT_RC`).
    #[doc(alias = "IBV_QPT_RC")]
    Reliable,
    /// What arrives is in order; messages may be lost, and nobody is told (`IBV_QPT_UC`). There are sends and RDMA writes, and
    /// neither reads nor atomics.
    #[doc(alias = "IBV_QPT_UC")]
    Unreliable,
}

/// A queue pair made by hand that was just made: in state RESET, where nothing can be posted.
#[doc(alias = "IBV_QPS_RESET")]
#[derive(Debug)]
pub struct ResetQp {
    parts: Parts,
    pkey_index: u16,
}

/// A queue pair made by hand that is bound to a port: in state INIT. Receives can be posted; what is sent to it is lost.
#[doc(alias = "IBV_QPS_INIT")]
#[derive(Debug)]
pub struct InitQp {
    parts: Parts,
    port: u8,
}

/// A queue pair made by hand that receives from its peer, and sends nothing yet: in state RTR.
#[doc(alias = "IBV_QPS_RTR")]
#[derive(Debug)]
pub struct RtrQp {
    parts: Parts,
    /// How many reads and atomics the peer answers at a time, as far as it has said.
    answered: u8,
}

/// What the three have in common.
#[derive(Debug)]
struct Parts {
    qp: QueuePair,
    transport: Transport,
}

impl ProtectionDomain {
    /// Makes a queue pair that the program connects by hand, without the connection manager.
    ///
    /// It goes through its states by [`to_init`](ResetQp::to_init), [`to_rtr`](InitQp::to_rtr) and [`to_rts`](RtrQp::to_rts);
    /// in between the two sides tell each other their [`QpEndpoint`]s in some other way. Dropped on the way, it is destroyed,
    /// and so it is when a step fails. Nobody watches a connection made so: when the peer goes away, a reliable one notices with
    /// the next request that it sends.
    ///
    /// Calls `ibv_create_qp_ex`, so that a [`Batch`](super::Batch) can be posted by calls, and where the provider cannot,
    /// `ibv_create_qp` ([man 3](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) over iWARP, where connections are the connection manager's, and for a transport
    /// that the device does not have (`EOPNOTSUPP`); [`DeviceMismatch`](ErrorKind::DeviceMismatch) for a completion queue of
    /// another device; [`TooLarge`](ErrorKind::TooLarge) for a depth above the device's or more than the completion queue has
    /// room for; `ENOMEM`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use rdmacm::{Error, ProtectionDomain, QueuePair, QueuePairInit, QpEndpoint};
    /// # fn connect(pd: &ProtectionDomain, init: &QueuePairInit, told: impl Fn([u8; 28]) -> [u8; 28])
    /// #     -> Result<QueuePair, Error> {
    /// use rdmacm::{Access, RemoteEnd, RtsParam, Transport};
    ///
    /// let qp = pd.create_qp(init, Transport::Reliable)?;
    /// let qp = qp.to_init(1, Access::WRITE)?;
    /// let here = qp.endpoint(1, 0x1234)?;
    /// let there = QpEndpoint::from_bytes(told(here.to_bytes()));
    /// let qp = qp.to_rtr(&RemoteEnd::new(&there, 1))?;
    /// let qp = qp.to_rts(&RtsParam::new(here.psn))?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_qp(&self, init: &QueuePairInit, transport: Transport) -> Result<ResetQp> {
        if self.context().is_iwarp() {
            return Err(Error::unsupported(
                CREATE,
                "queue pairs connected by hand; use `CmId`",
                "iWARP",
            ));
        }
        let owner = Arc::new(ByHand(Standing::default()));
        let qp_type = match transport {
            Transport::Reliable => ibv_qp_type::IBV_QPT_RC,
            Transport::Unreliable => ibv_qp_type::IBV_QPT_UC,
        };
        let create = |attr: &mut ibv_qp_init_attr| {
            // SAFETY: `new_of_type` has checked that the attributes have queues of the domain's device.
            unsafe { create_connected(CREATE, self, attr) }
        };
        // SAFETY: `create` makes the queue pair in this domain with the attributes that it is given, and only `ByHand` destroys
        // it.
        let qp = unsafe { new_of_type(CREATE, qp_type, self, init, None, owner, create) }?;
        Ok(ResetQp {
            parts: Parts { qp, transport },
            pkey_index: 0,
        })
    }
}

impl ResetQp {
    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.parts.qp.qp_num()
    }

    /// Sets which entry of the port's table of partition keys packets carry; the first unless it is set.
    #[doc(alias = "IBV_QP_PKEY_INDEX")]
    #[must_use]
    pub fn pkey_index(mut self, index: u16) -> Self {
        self.pkey_index = index;
        self
    }

    /// Binds the queue pair to a port, and says what the peer may do with the memory that is open to it.
    ///
    /// Calls `ibv_modify_qp` for INIT ([man 3](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for a port or a partition key that does not exist;
    /// [`Unsupported`](ErrorKind::Unsupported) for reads or atomics of the peer over an unreliable connection; what the device
    /// reports. The queue pair is destroyed then.
    #[doc(alias = "ibv_modify_qp")]
    #[doc(alias = "IBV_QP_ACCESS_FLAGS")]
    #[doc(alias = "IBV_QP_PORT")]
    pub fn to_init(mut self, port: u8, access: Access) -> Result<InitQp> {
        let there_is = self.parts.context().port(port)?;
        let keys = there_is.pkey_table_len();
        if self.pkey_index >= keys {
            return Err(Error::too_large(
                MODIFY,
                "pkey_index",
                self.pkey_index.into(),
                u64::from(keys).saturating_sub(1),
                "the port has no more partition keys",
            ));
        }
        if self.parts.transport == Transport::Unreliable
            && access.intersects(Access::READ | Access::ATOMIC)
        {
            return Err(Error::unsupported(
                MODIFY,
                "reads and atomics of the peer; give it `Access::WRITE` or none",
                "an unreliable connection",
            ));
        }
        let mut attr = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_INIT,
            qp_access_flags: access.remote(),
            pkey_index: self.pkey_index,
            port_num: port,
            ..ibv_qp_attr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.parts.modify(&mut attr, mask)?;
        Ok(InitQp {
            parts: self.parts,
            port,
        })
    }
}

impl InitQp {
    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.parts.qp.qp_num()
    }

    /// The receiving half: what is posted now takes the first messages of the peer.
    pub fn recv(&mut self) -> &mut ReceiveQueue {
        &mut self.parts.qp.recv
    }

    /// This side's end, for the peer. `gid_index` is the index of the address that the peer is to send to, among those of the
    /// port ([`Context::gids`]); `psn` is the number of the first packet, of 24 bits, best chosen at random.
    ///
    /// Calls `ibv_query_port` and `ibv_query_gid_ex`. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`Context::gid`], and [`TooLarge`](ErrorKind::TooLarge) for a number above 24 bits.
    pub fn endpoint(&self, gid_index: u8, psn: u32) -> Result<QpEndpoint> {
        check_number("psn", psn)?;
        let context = self.parts.context();
        let port = context.port(self.port)?;
        Ok(QpEndpoint {
            qp_num: self.qp_num(),
            psn,
            lid: port.lid(),
            mtu: port.active_mtu(),
            max_dest_rd_atomic: self.parts.most_answered(),
            gid: context.gid(self.port, gid_index.into())?.gid(),
        })
    }

    /// Tells the queue pair who its peer is: from now on it receives.
    ///
    /// Calls `ibv_modify_qp` for RTR ([man 3](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)). Blocks: no on
    /// soft-RoCE and InfiniBand; providers of RoCE hardware may ask the network for the peer's Ethernet address, for up to
    /// seconds.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for a packet size, a depth or a number above what the port, the device or the field can
    /// do; [`InvalidInput`](ErrorKind::InvalidInput) for a packet size that is none, or a way that does not start at this port;
    /// what the device reports. The queue pair is destroyed then.
    #[doc(alias = "ibv_modify_qp")]
    pub fn to_rtr(mut self, remote: &RemoteEnd) -> Result<RtrQp> {
        let end = &remote.end;
        check_number("dest_qp_num", end.qp_num)?;
        check_number("rq_psn", end.psn)?;
        let address = self.way_to(remote)?;
        let mut attr = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_RTR,
            path_mtu: self.path_mtu(remote)?,
            dest_qp_num: end.qp_num,
            rq_psn: end.psn,
            ah_attr: *address.as_raw(),
            ..ibv_qp_attr::default()
        };
        let mut mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if self.parts.transport == Transport::Reliable {
            let limit = self.parts.most_answered();
            let depth = remote.max_dest_rd_atomic.unwrap_or(limit);
            check_depth(
                "max_dest_rd_atomic",
                depth,
                limit,
                "the device's max_qp_rd_atom is the limit",
            )?;
            attr.max_dest_rd_atomic = depth;
            attr.min_rnr_timer = rnr_timer_code(remote.min_rnr_timer);
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        self.parts.modify(&mut attr, mask)?;
        Ok(RtrQp {
            parts: self.parts,
            answered: end.max_dest_rd_atomic,
        })
    }

    /// The way to the peer: the one that was given, or the one that its end says.
    fn way_to(&self, remote: &RemoteEnd) -> Result<AddressVector> {
        let port = self.parts.context().port(self.port)?;
        let (lid, gid) = (remote.end.lid, remote.end.gid);
        let address = match remote.address {
            Some(address) => address,
            None if port.needs_grh() || lid == 0 => {
                AddressVector::global(self.port, gid, remote.gid_index).with_dlid(lid)
            }
            None => AddressVector::local(self.port, lid),
        };
        let wrong = |message| Err(Error::plain(MODIFY, ErrorKind::InvalidInput, message));
        if address.port_num() != self.port {
            return wrong("the address leads from another port than the queue pair's");
        }
        match address.dgid() {
            None if port.needs_grh() => {
                wrong("the address has no GID; over this port packets find their way by GID only")
            }
            Some(gid) if gid.is_unspecified() => {
                wrong("the GID of the peer is all zeros, which is no address")
            }
            Some(_) => {
                // Some devices take an index without an address, and send nothing.
                let index = address.sgid_index().into();
                self.parts.context().gid(self.port, index)?;
                Ok(address)
            }
            None => Ok(address),
        }
    }

    /// The size of packets: the one that was given, or the smaller of both ports'.
    fn path_mtu(&self, remote: &RemoteEnd) -> Result<ibv_mtu> {
        let limit = self.parts.context().port(self.port)?.active_mtu();
        let mtu = remote.path_mtu.unwrap_or(remote.end.mtu.min(limit));
        match (mtu.bytes(), limit.bytes()) {
            (None, _) => Err(Error::plain(
                MODIFY,
                ErrorKind::InvalidInput,
                "path_mtu is no size that packets can have: 256 to 4096 bytes, by powers of two",
            )),
            (Some(bytes), Some(limit)) if bytes > limit => Err(Error::too_large(
                MODIFY,
                "path_mtu",
                bytes.into(),
                limit.into(),
                "the port's active_mtu is the limit",
            )),
            _ => Ok(ibv_mtu(mtu.as_raw())),
        }
    }
}

impl RtrQp {
    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.parts.qp.qp_num()
    }

    /// The receiving half.
    pub fn recv(&mut self) -> &mut ReceiveQueue {
        &mut self.parts.qp.recv
    }

    /// Lets the queue pair send: the last step. What reaches a peer before its own [`to_rtr`](InitQp::to_rtr) is sent again, or
    /// lost over an unreliable connection: the sides should agree that both are ready before the first message.
    ///
    /// Calls `ibv_modify_qp` for RTS ([man 3](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for a number or a depth above what the field, the device or the peer can do;
    /// what the device reports. The queue pair is destroyed then.
    #[doc(alias = "ibv_modify_qp")]
    #[doc(alias = "IBV_QPS_RTS")]
    pub fn to_rts(mut self, param: &RtsParam) -> Result<QueuePair> {
        check_number("sq_psn", param.sq_psn)?;
        let mut attr = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_RTS,
            sq_psn: param.sq_psn,
            ..ibv_qp_attr::default()
        };
        let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if self.parts.transport == Transport::Reliable {
            let can_ask = self.parts.context().limits().max_qp_init_rd_atom();
            let limit = in_a_byte(can_ask).min(self.answered);
            let depth = param.max_rd_atomic.unwrap_or(limit);
            check_depth(
                "max_rd_atomic",
                depth,
                limit,
                "the device's max_qp_init_rd_atom and the peer's max_dest_rd_atomic are the limits",
            )?;
            attr.timeout = ack_timeout_code(param.timeout);
            attr.retry_cnt = param.retry_count.as_raw();
            attr.rnr_retry = param.rnr_retry.as_raw();
            attr.max_rd_atomic = depth;
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        self.parts.modify(&mut attr, mask)?;
        let standing = self.parts.qp.inner().standing();
        standing.connect(attr.max_rd_atomic);
        Ok(self.parts.qp)
    }
}

impl Parts {
    fn context(&self) -> &Context {
        self.qp.protection_domain().context()
    }

    /// How many reads and atomics of the peer the queue pair can answer at a time.
    fn most_answered(&self) -> u8 {
        match self.transport {
            Transport::Reliable => in_a_byte(self.context().limits().max_qp_rd_atom()),
            Transport::Unreliable => 0,
        }
    }

    fn modify(&mut self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        self.qp.check_halves(MODIFY)?;
        self.qp.modify(attr, mask)
    }
}

/// The largest depth that a device's limit allows in a field of one byte.
fn in_a_byte(limit: u32) -> u8 {
    u8::try_from(limit).unwrap_or(u8::MAX)
}

/// That a number fits into its 24 bits.
fn check_number(field: &'static str, number: u32) -> Result<()> {
    if number > MAX_NUMBER {
        let (number, limit) = (number.into(), MAX_NUMBER.into());
        return Err(Error::too_large(
            MODIFY,
            field,
            number,
            limit,
            "it has 24 bits",
        ));
    }
    Ok(())
}

fn check_depth(field: &'static str, depth: u8, limit: u8, advice: &'static str) -> Result<()> {
    if depth > limit {
        let (depth, limit) = (depth.into(), limit.into());
        return Err(Error::too_large(MODIFY, field, depth, limit, advice));
    }
    Ok(())
}

#![expect(unsafe_code, reason = "makes queue pairs")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type};

use super::arrivals::Arrivals;
use super::attachment::Attachment;
use super::cq::CompletionQueue;
use super::datagram_recv::DatagramReceiveQueue;
use super::datagram_send::DatagramSendQueue;
use super::gid::Gid;
use super::pd::ProtectionDomain;
use super::qp::{QueuePair, QueuePairInit, error_state, new_of_type};
use super::qp_ends::{ByHand, create_qp, destroy_qp, modify_qp};
use super::qp_inner::{QpInner, QpOwner};
use super::ring::Extra;
use super::standing::Standing;
use super::wr_post::Made;
use crate::error::{Error, Result, errno_of_verbs};

/// A queue pair for datagrams (`IBV_QPT_UD`): messages of one packet, to anybody, which may be lost.
///
/// It is made on a datagram id ([`CmId::create_datagram_qp`](crate::CmId::create_datagram_qp)) or by hand
/// ([`ProtectionDomain::create_datagram_qp`]), and can send at once. Its halves may live on two threads; it is destroyed when both
/// are dropped.
///
/// ```no_run
/// # use rdmacm::{Completion, CompletionQueue, DatagramPair, Error, Peer};
/// /// Sends every message back, in the very buffer that it came in.
/// fn echo(pair: &mut DatagramPair, cq: &mut CompletionQueue, qkey: u32) -> Result<(), Error> {
///     match cq.poll()? {
///         Some(Completion::Datagram(message)) => {
///             let ah = pair.protection_domain().create_ah(&message.sender()?)?;
///             let peer = pair.send.add_peer(&ah, message.src_qp(), qkey)?;
///             pair.send.post(rdmacm::DatagramWork::send(peer), message.into_buf(), 0)?;
///             pair.send.remove_peer(peer)?; // gone when the send has completed
///         }
///         Some(Completion::Sent(sent)) => pair.recv.post(sent.into_buf(), 0)?,
///         _ => {}
///     }
///     Ok(())
/// }
/// ```
#[doc(alias = "IBV_QPT_UD")]
#[derive(Debug)]
pub struct DatagramPair {
    /// Posts sends.
    pub send: DatagramSendQueue,
    /// Posts receives.
    pub recv: DatagramReceiveQueue,
}

/// What a datagram queue pair that is made by hand must know, and the connection manager knows otherwise.
#[derive(Clone, Copy, Debug)]
pub struct DatagramInit {
    port_num: u8,
    pkey_index: u16,
    qkey: u32,
}

impl DatagramInit {
    /// On a port of the device, with the key that messages to the pair must have.
    #[doc(alias = "IBV_QP_QKEY")]
    #[doc(alias = "IBV_QP_PORT")]
    #[must_use]
    pub fn new(port_num: u8, qkey: u32) -> Self {
        Self {
            port_num,
            pkey_index: 0,
            qkey,
        }
    }

    /// The partition, by its index in the port's table; the first unless it is set.
    #[doc(alias = "IBV_QP_PKEY_INDEX")]
    #[must_use]
    pub fn pkey_index(mut self, index: u16) -> Self {
        self.pkey_index = index;
        self
    }
}

impl ProtectionDomain {
    /// Makes a datagram queue pair by hand, with a key of the program's own, ready to send and receive.
    ///
    /// Calls `ibv_create_qp` ([man 3](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)) and `ibv_modify_qp` for INIT,
    /// RTR and RTS. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) when a completion queue is of another device;
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for a depth above the device's or more than the completion queue has room for, or
    /// a port that does not exist; [`Unsupported`](crate::ErrorKind::Unsupported) over iWARP, and with a shared receive queue;
    /// `ENOMEM`; `EPERM` for a key with its highest bit set, which is for privileged programs.
    #[doc(alias = "ibv_create_qp")]
    pub fn create_datagram_qp(
        &self,
        init: &QueuePairInit,
        own: DatagramInit,
    ) -> Result<DatagramPair> {
        const OP: &str = "ibv_create_qp";
        let create = |attr: &mut ibv_qp_init_attr| {
            // SAFETY: `new_datagram` has checked that the queues are of the domain's device.
            let qp = unsafe { create_qp(OP, self, attr) }?;
            bring_up(qp, own).inspect_err(|_| {
                // SAFETY: the queue pair was just made, and is known to nobody else. If this fails too, it is leaked.
                let _ = unsafe { destroy_qp(self.context(), qp) };
            })?;
            Ok(qp)
        };
        let standing = Standing::default();
        // It may send from the start, and has no reads.
        standing.connect(0);
        let owner = Arc::new(ByHand(standing));
        // SAFETY: `create` makes the queue pair in this domain with the attributes that it is given, and only `ByHand` destroys
        // it.
        unsafe { new_datagram(OP, self, init, own.port_num, owner, create) }
    }
}

/// Moves a new datagram queue pair to RTS.
fn bring_up(qp: NonNull<ibv_qp>, own: DatagramInit) -> Result<()> {
    let init = ibv_qp_attr {
        qp_state: ibv_qp_state::IBV_QPS_INIT,
        port_num: own.port_num,
        pkey_index: own.pkey_index,
        qkey: own.qkey,
        ..ibv_qp_attr::default()
    };
    let init_mask = rdma_sys::IBV_QP_STATE
        | rdma_sys::IBV_QP_PORT
        | rdma_sys::IBV_QP_PKEY_INDEX
        | rdma_sys::IBV_QP_QKEY;
    let to = |qp_state| ibv_qp_attr {
        qp_state,
        ..ibv_qp_attr::default()
    };
    for (mut attr, mask) in [
        (init, init_mask),
        (to(ibv_qp_state::IBV_QPS_RTR), rdma_sys::IBV_QP_STATE),
        (
            to(ibv_qp_state::IBV_QPS_RTS),
            rdma_sys::IBV_QP_STATE | rdma_sys::IBV_QP_SQ_PSN,
        ),
    ] {
        // SAFETY: the caller has the queue pair, and each mask names what its attributes set.
        let returned = unsafe { modify_qp(qp, &mut attr, mask) };
        errno_of_verbs(returned).map_err(|errno| Error::os("ibv_modify_qp", errno))?;
    }
    Ok(())
}

/// Makes a datagram queue pair in `pd`, on the port `port_num`: as [`new_on`](super::new_on).
///
/// # Safety
///
/// As for `new_on`; the queue pair is ready to send.
pub(crate) unsafe fn new_datagram(
    op: &'static str,
    pd: &ProtectionDomain,
    init: &QueuePairInit,
    port_num: u8,
    owner: Arc<dyn QpOwner>,
    create: impl FnOnce(&mut ibv_qp_init_attr) -> Result<NonNull<ibv_qp>>,
) -> Result<DatagramPair> {
    let context = pd.context();
    if context.is_iwarp() {
        return Err(Error::unsupported(op, "datagrams", "iWARP"));
    }
    if init.has_srq() {
        return Err(Error::unsupported(
            op,
            "receives through a shared receive queue",
            "a datagram queue pair of this crate",
        ));
    }
    let mtu = context.port(port_num)?.active_mtu().bytes();
    // Of an MTU that is new to this crate nothing is known: then the device has the last word.
    let max_message_len = mtu.unwrap_or(u32::MAX);
    let ud = ibv_qp_type::IBV_QPT_UD;
    let create = |attr: &mut ibv_qp_init_attr| create(attr).map(Made::from);
    let arrivals = Extra::Arrivals(Arrivals {
        context: context.clone(),
        port_num,
    });
    // SAFETY: the caller's own obligation.
    let QueuePair { send, recv } =
        unsafe { new_of_type(op, ud, pd, init, Some(arrivals), owner, create) }?;
    Ok(DatagramPair {
        send: DatagramSendQueue::new(send, max_message_len),
        recv: DatagramReceiveQueue::new(recv),
    })
}

impl DatagramPair {
    /// The queue pair's number, as peers and completions name it.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.inner().qp_num()
    }

    /// The domain that the queue pair was made in.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner().pd
    }

    /// Moves the queue pair to its error state: what is posted completes as [`FLUSHED`](crate::Status::FLUSHED).
    ///
    /// Calls `ibv_modify_qp` ([man 3](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// What the device reports, such as `EIO` after its removal.
    #[doc(alias = "ibv_modify_qp")]
    #[doc(alias = "IBV_QPS_ERR")]
    pub fn to_error(&mut self) -> Result<()> {
        let (mut attr, mask) = error_state();
        self.inner().modify(&mut attr, mask)
    }

    /// Has the queue pair receive what is sent to a multicast group, by hand: until the result is dropped, or the pair ends.
    ///
    /// This tells the device, and nobody else. A [`Membership`](crate::Membership) of the pair's id attaches the pair by itself, and
    /// tells the network: over InfiniBand the group exists only by such a join, and over RoCE routers and switches may pass
    /// nothing on without one. `mlid` is the group's LID over InfiniBand, and 0 over RoCE.
    ///
    /// Calls `ibv_attach_mcast` ([man 3](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an address that is no group's; [`State`](crate::ErrorKind::State) when
    /// the pair is attached to the group; `ENOMEM`.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&self, group: Gid, mlid: u16) -> Result<Attachment> {
        self.inner().attach(group, mlid)
    }

    /// Ends the queue pair in order: moves it to its error state, polls `cq` until nothing is posted any more, and destroys it.
    ///
    /// As for [`QueuePair::close`].
    ///
    /// # Errors
    ///
    /// As for [`destroy`](Self::destroy), and what `ibv_poll_cq` reports.
    pub fn close(mut self, cq: &mut CompletionQueue, patience: Duration) -> Result<()> {
        // After the device's removal it fails: then the destruction is all there is.
        let drained = match self.to_error() {
            Ok(()) => {
                let Self { send, recv } = &mut self;
                recv.queue().inner().drain(cq, patience, || send.signal())
            }
            Err(_) => Ok(()),
        };
        self.destroy()?;
        drained
    }

    /// Destroys the queue pair at once and says whether that worked.
    ///
    /// As for [`QueuePair::destroy`].
    ///
    /// # Errors
    ///
    /// As for [`QueuePair::destroy`].
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<()> {
        let Self { send, recv } = self;
        let pair = QueuePair {
            send: send.into_queue(),
            recv: recv.into_queue(),
        };
        pair.destroy()
    }

    /// The raw queue pair, valid while this value is.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_qp {
        self.inner().raw().as_ptr()
    }

    fn inner(&self) -> &QpInner {
        self.recv.queue().inner()
    }
}

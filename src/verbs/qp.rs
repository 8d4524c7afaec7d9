#![expect(unsafe_code, reason = "owns a pointer to an ibv_qp")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type};

use super::attached::Attached;
use super::cq::CqHandle;
use super::pd::ProtectionDomain;
use super::qp_inner::{QpInner, QpOwner};
use super::recv_queue::ReceiveQueue;
use super::rnr_timer::rnr_timer_code;
use super::send_queue::SendQueue;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs};

/// A queue pair (`ibv_qp`): a send queue and a receive queue, each of which may live on its own thread.
///
/// It is destroyed when both halves are dropped. What was posted and has not completed comes back to its pools after that, once
/// the completion queue was polled and found empty, or is gone. See [`close`](Self::close) for an end that reports errors.
#[doc(alias = "ibv_qp")]
#[derive(Debug)]
pub struct QueuePair {
    /// Posts sends.
    pub send: SendQueue,
    /// Posts receives.
    pub recv: ReceiveQueue,
}

/// What a queue pair is made of: its completion queues and how much it holds (`ibv_qp_init_attr`).
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Clone, Debug)]
pub struct QueuePairInit {
    send_cq: CqHandle,
    recv_cq: CqHandle,
    max_send_wr: u32,
    max_recv_wr: u32,
}

impl QueuePairInit {
    /// Depths of 16 for each queue, both completing to `cq`.
    #[must_use]
    pub fn new(cq: &CqHandle) -> Self {
        Self {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            max_send_wr: 16,
            max_recv_wr: 16,
        }
    }

    /// Has receives complete to another queue than sends.
    #[must_use]
    pub fn recv_cq(mut self, cq: &CqHandle) -> Self {
        self.recv_cq = cq.clone();
        self
    }

    /// How many sends may be outstanding: at most the device's `max_qp_wr`.
    #[must_use]
    pub fn max_send_wr(mut self, depth: u32) -> Self {
        self.max_send_wr = depth;
        self
    }

    /// How many receives may be posted: at most the device's `max_qp_wr`.
    #[must_use]
    pub fn max_recv_wr(mut self, depth: u32) -> Self {
        self.max_recv_wr = depth;
        self
    }

    fn check(&self, op: &'static str, pd: &ProtectionDomain) -> Result<()> {
        let context = pd.context();
        for cq in [&self.send_cq, &self.recv_cq] {
            if cq.context() != context {
                return Err(Error::new(
                    op,
                    crate::error::Cause::DeviceMismatch {
                        what: "the completion queue",
                        found: cq.context().name().to_owned(),
                        wanted: context.name().to_owned(),
                    },
                ));
            }
        }
        let limit = context.limits().max_qp_wr();
        for (field, value) in [
            ("max_send_wr", self.max_send_wr),
            ("max_recv_wr", self.max_recv_wr),
        ] {
            if value == 0 {
                return Err(Error::plain(
                    op,
                    ErrorKind::InvalidInput,
                    "a depth of 0 leaves nothing to post; both queues hold at least one request",
                ));
            }
            if value > limit {
                return Err(Error::too_large(
                    op,
                    field,
                    u64::from(value),
                    u64::from(limit),
                    "the device's max_qp_wr is the limit",
                ));
            }
        }
        Ok(())
    }
}

/// Makes a queue pair in `pd`: checks `init`, attaches the rings, lets `create` make it in C, and gives its end to `owner`.
///
/// # Safety
///
/// What `create` returns is a queue pair made with the attributes that it was given, in `pd`, which `owner` alone destroys.
pub(crate) unsafe fn new_on(
    op: &'static str,
    pd: &ProtectionDomain,
    init: &QueuePairInit,
    owner: Box<dyn QpOwner>,
    create: impl FnOnce(&mut ibv_qp_init_attr) -> Result<NonNull<ibv_qp>>,
) -> Result<QueuePair> {
    init.check(op, pd)?;
    let (send, send_producer) = Attached::new(&init.send_cq, init.max_send_wr)?;
    let (recv, recv_producer) = Attached::new(&init.recv_cq, init.max_recv_wr)?;
    let mut attr = ibv_qp_init_attr {
        send_cq: init.send_cq.as_raw(),
        recv_cq: init.recv_cq.as_raw(),
        cap: ibv_qp_cap {
            max_send_wr: init.max_send_wr,
            max_recv_wr: init.max_recv_wr,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        qp_type: ibv_qp_type::IBV_QPT_RC,
        ..ibv_qp_init_attr::default()
    };
    let raw = create(&mut attr)?;
    let standing = owner.standing();
    // INVARIANT: the caller vouches for what `create` made; the rings were attached to its two queues above.
    let inner = Arc::new(QpInner {
        raw,
        owner: Some(owner),
        send,
        recv,
        pd: pd.clone(),
    });
    Ok(QueuePair {
        send: SendQueue::new(send_producer, standing, Arc::clone(&inner)),
        recv: ReceiveQueue::new(recv_producer, inner),
    })
}

/// The attributes, and their mask, that move a queue pair to its error state.
pub(crate) fn error_state() -> (ibv_qp_attr, u32) {
    let attr = ibv_qp_attr {
        qp_state: ibv_qp_state::IBV_QPS_ERR,
        ..ibv_qp_attr::default()
    };
    (attr, rdma_sys::IBV_QP_STATE)
}

impl QueuePair {
    /// The queue pair's number, as peers and completions name it.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        // SAFETY: the queue pair is alive while a half of it is, and its number never changes.
        unsafe { (*self.inner().raw.as_ptr()).qp_num }
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
    pub fn to_error(&mut self) -> Result<()> {
        let (mut attr, mask) = error_state();
        self.modify(&mut attr, mask)
    }

    /// Sets how long the peer is told to wait before it sends again, when this side has no receive posted: the next longer
    /// time that the field can say, at most 655.36 ms, which is also what a connection starts with.
    ///
    /// For a connected queue pair.
    ///
    /// Calls `ibv_modify_qp` with `IBV_QP_MIN_RNR_TIMER`. Blocks: no.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the queue pair is not connected, or the device cannot.
    #[doc(alias = "min_rnr_timer")]
    pub fn set_min_rnr_timer(&mut self, time: Duration) -> Result<()> {
        let mut attr = ibv_qp_attr {
            min_rnr_timer: rnr_timer_code(time),
            ..ibv_qp_attr::default()
        };
        self.modify(&mut attr, rdma_sys::IBV_QP_MIN_RNR_TIMER)
    }

    fn modify(&mut self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        let inner = self.inner();
        let Some(owner) = &inner.owner else {
            return Ok(());
        };
        errno_of_verbs(owner.modify(inner.raw, attr, mask))
            .map_err(|errno| Error::os("ibv_modify_qp", errno))
    }

    /// Destroys the queue pair and says whether that worked. What was posted and has not completed comes back to its pools, as
    /// after a drop.
    ///
    /// Calls `ibv_destroy_qp` ([man 3](https://man7.org/linux/man-pages/man3/ibv_destroy_qp.3.html)). Blocks: for as long as
    /// the device takes.
    ///
    /// # Errors
    ///
    /// `EBUSY` and what else the device reports; the queue pair and everything posted to it is leaked then, since the device
    /// may still use it. [`State`](ErrorKind::State) when the halves were exchanged with another pair's.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<()> {
        let Self { send, recv } = self;
        if !send.is_of_the_pair_of(&recv) {
            return Err(Error::state(
                "ibv_destroy_qp",
                "the two halves of one queue pair",
                "these are of two, each of which ends with its other half",
            ));
        }
        drop(send);
        let Some(mut inner) = Arc::into_inner(recv.into_inner()) else {
            return Ok(());
        };
        inner.end()
    }

    /// The raw queue pair, valid while this value is.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_qp {
        self.inner().as_raw()
    }

    fn inner(&self) -> &QpInner {
        self.recv.inner()
    }
}

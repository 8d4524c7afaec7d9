#![expect(unsafe_code, reason = "owns a pointer to an ibv_qp")]

use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type};

use super::attached::Attached;
use super::cq::{CompletionQueue, CqHandle};
use super::pd::ProtectionDomain;
use super::producer::Producer;
use super::qp_inner::{QpInner, QpOwner, Receives};
use super::recv_queue::ReceiveQueue;
use super::ring::{Extra, MAX_DEPTH, Ring};
use super::ring_arc::RingArc;
use super::rnr_timer::rnr_timer_code;
use super::send_limits::SendLimits;
use super::send_queue::SendQueue;
use super::slot::Slot;
use super::srq::{SharedQueue, SharedReceiveQueue};
use super::stage::{Inline, MAX_PIECES};
use super::work::Work;
use super::wr_post::Made;
use crate::error::{Error, ErrorKind, Result};
use crate::os::deadline_after;

/// A queue pair (`ibv_qp`): a send queue and a receive queue, each of which may live on its own thread.
///
/// It is destroyed when both halves are dropped. What was posted and has not completed comes back to its pools after that, once
/// the completion queue was polled and found empty, or is gone. See [`close`](Self::close) for an end in order.
#[doc(alias = "ibv_qp")]
#[derive(Debug)]
// So that a pointer to the pair is one to its sending half, which a scope posts to.
#[repr(C)]
pub struct QueuePair {
    /// Posts sends.
    pub send: SendQueue,
    /// Posts receives.
    pub recv: ReceiveQueue,
}

/// What a queue pair is made of: its completion queues and how much it holds (`ibv_qp_init_attr`).
#[doc(alias = "ibv_qp_init_attr")]
#[doc(alias = "ibv_qp_init_attr_ex")]
#[derive(Debug)]
pub struct QueuePairInit {
    send_cq: CqHandle,
    recv_cq: CqHandle,
    srq: Option<SharedQueue>,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline_data: u32,
}

impl Clone for QueuePairInit {
    fn clone(&self) -> Self {
        Self {
            send_cq: self.send_cq.clone(),
            recv_cq: self.recv_cq.clone(),
            srq: self.srq.clone(),
            ..*self
        }
    }
}

impl QueuePairInit {
    /// Depths of 16 for each queue, both completing to `cq`, one buffer for each request, and no inline data.
    #[must_use]
    pub fn new(cq: &CqHandle) -> Self {
        Self {
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        }
    }

    /// Has receives complete to another queue than sends.
    #[must_use]
    pub fn recv_cq(mut self, cq: &CqHandle) -> Self {
        self.recv_cq = cq.clone();
        self
    }

    /// How many sends may be outstanding: at most the device's `max_qp_wr`, and 2<sup>20</sup>.
    #[must_use]
    pub fn max_send_wr(mut self, depth: u32) -> Self {
        self.max_send_wr = depth;
        self
    }

    /// How many receives may be posted: at most the device's `max_qp_wr`, and 2<sup>20</sup>.
    #[must_use]
    pub fn max_recv_wr(mut self, depth: u32) -> Self {
        self.max_recv_wr = depth;
        self
    }

    /// How many buffers, or scatter/gather elements (SGEs), a request of the send queue may have: at most the device's `max_sge`,
    /// and 255.
    #[must_use]
    pub fn max_send_sge(mut self, pieces: u32) -> Self {
        self.max_send_sge = pieces;
        self
    }

    /// How many buffers, or scatter/gather elements (SGEs), a receive may have: at most the device's `max_sge`, and 255.
    #[must_use]
    pub fn max_recv_sge(mut self, pieces: u32) -> Self {
        self.max_recv_sge = pieces;
        self
    }

    /// How many bytes may be sent [`Inline`](super::Inline). Devices do not tell their limit, and refuse to make a queue pair
    /// above it.
    #[must_use]
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline_data = bytes;
        self
    }

    /// Has the pair receive through `srq`, in place of a queue of its own: its `max_recv_wr` and `max_recv_sge` mean nothing
    /// then.
    #[must_use]
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.share());
        self
    }

    pub(super) fn has_srq(&self) -> bool {
        self.srq.is_some()
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
                        other: "the protection domain",
                        wanted: context.name().to_owned(),
                    },
                ));
            }
        }
        if let Some(srq) = &self.srq {
            if srq.protection_domain() != pd {
                return Err(Error::plain(
                    op,
                    ErrorKind::InvalidInput,
                    "the shared receive queue is of another protection domain; make both in one",
                ));
            }
        }
        let limit = context.limits().max_sge().min(MAX_PIECES);
        for (field, value) in [
            ("max_send_sge", self.max_send_sge),
            ("max_recv_sge", self.max_recv_sge),
        ] {
            if value > limit {
                return Err(Error::too_large(
                    op,
                    field,
                    u64::from(value),
                    u64::from(limit),
                    "the limit is the device's max_sge, and never above 255",
                ));
            }
        }
        let limit = context.limits().max_qp_wr().min(MAX_DEPTH);
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
                    "the limit is the device's max_qp_wr, and never above 1048576",
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
    owner: Arc<dyn QpOwner>,
    create: impl FnOnce(&mut ibv_qp_init_attr) -> Result<Made>,
) -> Result<QueuePair> {
    // SAFETY: the caller's own obligation.
    unsafe { new_of_type(op, ibv_qp_type::IBV_QPT_RC, pd, init, None, owner, create) }
}

/// As [`new_on`], of another type. `extra` is what the ring of its receives has beside.
///
/// # Safety
///
/// As for [`new_on`].
pub(super) unsafe fn new_of_type(
    op: &'static str,
    qp_type: ibv_qp_type,
    pd: &ProtectionDomain,
    init: &QueuePairInit,
    extra: Option<Extra>,
    owner: Arc<dyn QpOwner>,
    create: impl FnOnce(&mut ibv_qp_init_attr) -> Result<Made>,
) -> Result<QueuePair> {
    init.check(op, pd)?;
    let (max_send_sge, max_recv_sge) = (init.max_send_sge.max(1), init.max_recv_sge.max(1));
    let (send, send_producer) =
        Attached::new(op, &init.send_cq, init.max_send_wr, max_send_sge, None)?;
    let recv = match &init.srq {
        None => Attached::new(op, &init.recv_cq, init.max_recv_wr, max_recv_sge, extra)
            .map(|(recv, producer)| (Receives::Own(recv), producer)),
        Some(srq) => srq.attach(op, &init.recv_cq).map(|()| {
            let recv = Receives::Shared(srq.clone(), init.recv_cq.clone());
            // Never opened.
            (recv, Producer::shut(RingArc::new(1, max_recv_sge, 0)))
        }),
    };
    let (recv, recv_producer) = match recv {
        Ok(made) => made,
        Err(error) => {
            send.abandon();
            return Err(error);
        }
    };
    let mut attr = ibv_qp_init_attr {
        send_cq: init.send_cq.as_raw(),
        recv_cq: init.recv_cq.as_raw(),
        srq: init
            .srq
            .as_ref()
            .map_or(ptr::null_mut(), SharedQueue::as_raw),
        cap: ibv_qp_cap {
            max_send_wr: init.max_send_wr,
            max_recv_wr: match recv {
                Receives::Own(_) => init.max_recv_wr,
                Receives::Shared(..) => 0,
            },
            max_send_sge,
            max_recv_sge,
            max_inline_data: init.max_inline_data,
        },
        qp_type,
        ..ibv_qp_init_attr::default()
    };
    let Made { raw, calls } = match create(&mut attr) {
        Ok(made) => made,
        Err(error) => {
            send.abandon();
            if let Receives::Own(recv) = recv {
                recv.abandon();
            }
            return Err(error);
        }
    };
    // SAFETY: the caller vouches for what `create` made; the rings were attached to its two queues above.
    let inner = unsafe { QpInner::new(raw, owner, send, recv, pd.clone(), attr.cap) };
    let inner = Arc::new(inner);
    let limits = SendLimits {
        max_sge: max_send_sge,
        max_inline_data: init.max_inline_data,
        iwarp: pd.context().is_iwarp(),
        reads: qp_type == ibv_qp_type::IBV_QPT_RC,
        atomics: pd.context().limits().atomics().is_supported(),
    };
    Ok(QueuePair {
        send: SendQueue::new(send_producer, Arc::clone(&inner), limits, calls),
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
    #[doc(alias = "IBV_QP_MIN_RNR_TIMER")]
    pub fn set_min_rnr_timer(&mut self, time: Duration) -> Result<()> {
        let mut attr = ibv_qp_attr {
            min_rnr_timer: rnr_timer_code(time),
            ..ibv_qp_attr::default()
        };
        self.modify(&mut attr, rdma_sys::IBV_QP_MIN_RNR_TIMER)
    }

    pub(super) fn modify(&mut self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        self.inner().modify(attr, mask)
    }

    /// Ends the queue pair in order: moves it to its error state, polls `cq` until nothing is posted any more, and destroys it.
    ///
    /// What was posted goes back to its pools. Completions of other queue pairs that are met are kept for the next
    /// [`poll`](CompletionQueue::poll). When the pair completes to a second queue, whoever owns that must poll it meanwhile. A
    /// device that does not flush everything within `patience` is left to the destruction. Receives of a shared queue stay
    /// there.
    ///
    /// Calls `ibv_modify_qp`, `ibv_poll_cq` and `ibv_destroy_qp`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_destroy_qp.3.html)). Blocks: for up to `patience`.
    ///
    /// # Errors
    ///
    /// As for [`destroy`](Self::destroy), and what `ibv_poll_cq` reports.
    pub fn close(mut self, cq: &mut CompletionQueue, patience: Duration) -> Result<()> {
        // After the device's removal it fails: then the destruction is all there is.
        let drained = match self.to_error() {
            Ok(()) => self.drain(cq, patience),
            Err(_) => Ok(()),
        };
        self.destroy()?;
        drained
    }

    /// Polls until nothing is posted, or patience ends. The queue pair is in its error state.
    fn drain(&mut self, cq: &mut CompletionQueue, patience: Duration) -> Result<()> {
        let Self { send, recv } = self;
        // Unsignalled requests that have ended well complete with the next one that is signalled.
        let mark = || match send.post(Work::send(), Inline(&[]), 0) {
            Ok(()) => true,
            Err(refused) => refused.is_kept(),
        };
        recv.inner().drain(cq, patience, mark)
    }

    /// Destroys the queue pair at once and says whether that worked. What was posted and has not completed comes back to its
    /// pools, as after a drop. See [`close`](Self::close) for an end in order.
    ///
    /// Of a [shared receive queue](super::SharedReceiveQueue), the receives whose completions were not polled may be lost until
    /// the end of that queue: some providers throw them away with the queue pair, mlx4 and mlx5 among them. `close` polls before.
    ///
    /// Calls `ibv_destroy_qp` ([man 3](https://man7.org/linux/man-pages/man3/ibv_destroy_qp.3.html)). Blocks: for as long as
    /// the device takes.
    ///
    /// # Errors
    ///
    /// `EBUSY` and what else the device reports; the queue pair and everything posted to it is leaked then, since the device
    /// may still use it. [`State`](ErrorKind::State) when the halves were exchanged with another pair's.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<()> {
        self.check_halves("ibv_destroy_qp")?;
        let Self { send, recv } = self;
        drop(send);
        let Some(inner) = Arc::into_inner(recv.into_inner()) else {
            return Ok(());
        };
        inner.end()
    }

    /// That the halves are those of one queue pair: they can be exchanged.
    pub(super) fn check_halves(&self, op: &'static str) -> Result<()> {
        if self.send.is_of_the_pair_of(&self.recv) {
            return Ok(());
        }
        Err(Error::state(
            op,
            "the two halves of one queue pair",
            "these are of two, each of which ends with its other half",
        ))
    }

    /// The raw queue pair, valid while this value is.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_qp {
        self.inner().raw().as_ptr()
    }

    pub(super) fn inner(&self) -> &QpInner {
        self.recv.inner()
    }
}

impl QpInner {
    /// Polls until nothing is posted, or patience ends. The queue pair is in its error state. `mark` posts a signalled send
    /// behind the unsignalled ones; it is called until it gives true, since there may be no room at first. Where all sends have
    /// completed there is none to mark, and soft-iWARP would never flush the mark.
    ///
    /// What is there of a shared receive queue is kept for the next poll: some providers throw the completions of a queue pair
    /// away when it is destroyed, and the queue would never learn of its receives.
    pub(super) fn drain(
        &self,
        cq: &mut CompletionQueue,
        patience: Duration,
        mut mark: impl FnMut() -> bool,
    ) -> Result<()> {
        let mut is_marked = false;
        let deadline = deadline_after(Some(patience));
        let send = self.send.ring().clone();
        let recv = match &self.recv {
            Receives::Own(attached) => Some(attached.ring().clone()),
            Receives::Shared(..) => None,
        };
        let mut is_swept = recv.is_some();
        while !(is_swept && send.is_empty() && recv.as_ref().is_none_or(|recv| recv.is_empty())) {
            let of_this_pair = |ring: &Ring, slot: &Slot| {
                let own = ptr::eq(ring, &*send)
                    || recv.as_ref().is_some_and(|recv| ptr::eq(ring, &**recv));
                if own {
                    // SAFETY: `sweep` calls this as the consumer of a request that has completed.
                    unsafe { ring.clear(slot) };
                }
                own
            };
            // SAFETY: a slot is cleared, or left alone.
            let any = unsafe { cq.sweep(of_this_pair) }?;
            is_swept = true;
            is_marked = is_marked || send.is_empty() || mark();
            if !any {
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    break;
                }
                thread::yield_now();
            }
        }
        Ok(())
    }
}

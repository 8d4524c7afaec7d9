#![expect(unsafe_code, reason = "posts work requests")]

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_qp, ibv_recv_wr};

use super::op::Op;
use super::prepared::Prepared;
use super::producer::Producer;
use super::qp_inner::{QpInner, Receives};
use super::refused::{Refused, full};
use super::send_limits::{post_error, too_many};
use super::slot::{Held, Kind};
use super::stage::{Sink, Stage};
use crate::error::{Error, Result};

const OP: &str = "ibv_post_recv";

/// The receiving half of a queue pair. It may live on another thread than the sending half.
///
/// A pair that was made with a [shared receive queue](super::SharedReceiveQueue) receives from that one, and nothing can be
/// posted here.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// Shut for a pair with a shared receive queue.
    producer: Producer,
    request: Prepared<ibv_recv_wr>,
    raw: NonNull<ibv_qp>,
    max_sge: u32,
    qp: Arc<QpInner>,
}

// SAFETY: the pointer is the queue pair of `qp`, and only handed to the provider, which takes the queue's lock.
unsafe impl Send for ReceiveQueue {}
// SAFETY: through `&ReceiveQueue` nothing is posted.
unsafe impl Sync for ReceiveQueue {}

impl ReceiveQueue {
    pub(super) fn new(producer: Producer, qp: Arc<QpInner>, max_sge: u32) -> Self {
        Self {
            producer,
            request: Prepared::new(max_sge),
            raw: qp.raw(),
            max_sge,
            qp,
        }
    }

    /// Hands `sink`, a buffer or an array of several, to the device for the next message. `user` comes back with the
    /// completion, a [`Received`](super::Received) for one buffer.
    ///
    /// May be called from the making of the queue pair on, and should be before accept or connect: the peer may send as soon
    /// as the connection stands.
    ///
    /// Calls `ibv_post_recv` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`QueueFull`](crate::ErrorKind::QueueFull) when as many receives as the queue holds are posted;
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for more buffers than [`max_recv_sge`](super::QueuePairInit::max_recv_sge).
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post<P: Sink>(&mut self, sink: P, user: u64) -> Result<(), Refused<P::Back>> {
        self.post_staged(sink, user)
    }

    /// Posts any sink, owned or lent.
    #[inline(always)]
    pub(super) fn post_staged<S: Stage>(
        &mut self,
        sink: S,
        user: u64,
    ) -> Result<(), Refused<S::Back>> {
        let pieces = sink.pieces();
        if pieces > 1 && pieces > self.max_sge as usize {
            let error = too_many(OP, "max_recv_sge", pieces, self.max_sge);
            return Err(Refused::with(error, sink.back()));
        }
        let producer = &mut self.producer;
        let ready = match producer.ready() {
            Some(ready) => ready,
            None => match producer.skip() {
                Some(ready) => ready,
                None => return Err(Refused::with(none_free(&self.qp), sink.back())),
            },
        };
        let kind = match S::KIND {
            Kind::Sent => Kind::Received,
            kind => kind,
        };
        let mut held = Held::new(kind, Op::Receive, user);
        let (wr, bad, sges) = (self.request.wr(), self.request.bad(), self.request.list());
        // SAFETY: the request is this queue's own, and `&mut self` is the only access.
        let wr = unsafe { &mut *wr };
        // CAST: at most `MAX_PIECES`.
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_PIECES")]
        #[expect(clippy::cast_possible_wrap, reason = "at most MAX_PIECES")]
        let pieces = pieces as i32;
        let one = pieces == 1;
        if !one {
            wr.num_sge = pieces;
        }
        let further = || producer.further();
        // SAFETY: the elements have room for as many pieces as the queue takes, which was checked; the further cells are of the
        // free slot, which is the producer's.
        unsafe { sink.stage(true, &mut held, further, sges) };
        // SAFETY: the slot is free.
        let id = unsafe { producer.put_receive(ready, held) };
        wr.wr_id = id;
        // SAFETY: `ibv_post_recv` wants
        // - a queue pair with a receive queue of its own: `qp` keeps it, and the producer of another one is shut;
        // - a list of requests that is readable during the call: the prepared one, with `next` null;
        // - memory that nobody else touches until the completion: the buffers were moved into the ring, which outlives the
        //   queue pair;
        // - no more requests than the queue holds: the slot was free.
        let returned = unsafe { rdma_sys::ibv_post_recv(self.raw.as_ptr(), wr, bad) };
        if !one {
            // SAFETY: the request is this queue's own, and the post is over.
            unsafe { (*self.request.wr()).num_sge = 1 };
        }
        if returned == 0 {
            return Ok(());
        }
        let named = self.request.take_name();
        // SAFETY: the request is the last one of this ring, and the provider has named it or not.
        Err(unsafe { refused::<S>(OP, returned, named, producer, id) })
    }

    #[inline]
    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    pub(super) fn inner(&self) -> &QpInner {
        &self.qp
    }

    pub(super) fn into_inner(self) -> Arc<QpInner> {
        self.qp
    }

    /// Ends posting.
    pub(super) fn shut(&mut self) {
        self.producer.close();
    }

    /// How many receives may be posted; 0 for a pair with a shared receive queue.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self.qp.recv {
            Receives::Own(_) => self.producer.ring().depth(),
            Receives::Shared(..) => 0,
        }
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.producer.ring().is_empty()
    }
}

/// The error of a post to a receive queue that failed. Only a request that the provider names comes back.
///
/// # Safety
///
/// `id` is the last request of `producer`, of a payload `S`; if it is `named`, the device does not have it.
#[cold]
pub(super) unsafe fn refused<S: Stage>(
    op: &'static str,
    returned: i32,
    named: bool,
    producer: &mut Producer,
    id: u64,
) -> Refused<S::Back> {
    let error = post_error(op, returned);
    if !named {
        return Refused::kept(error);
    }
    let slot = producer.slot_of(id);
    // SAFETY: no completion of the request comes, so this call acts in the consumer's place.
    let held = unsafe { slot.held() };
    // SAFETY: `stage` has filled them for this slot.
    let back = unsafe { S::unstage(held, producer.ring().further(slot)) };
    // SAFETY: the caller's own obligation.
    unsafe { producer.take_back(id, true) };
    Refused::with(error, back)
}

#[cold]
fn none_free(qp: &QpInner) -> Error {
    if qp.is_ended() {
        return Error::state(
            OP,
            "a queue pair",
            "this one was destroyed at the end of a scope",
        );
    }
    if matches!(qp.recv, Receives::Shared(..)) {
        return Error::state(
            OP,
            "a receive queue of the queue pair's own",
            "this pair receives through a shared receive queue; post there",
        );
    }
    full(OP)
}

#![expect(unsafe_code, reason = "posts work requests")]

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_qp, ibv_recv_wr};

use super::producer::{Producer, Ready};
use super::qp_inner::{QpInner, Receives, ended};
use super::receiver::{Receiver, Target};
use super::refused::{Refused, full};
use super::slot::Held;
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
    receiver: Receiver,
    own: Own,
}

/// The queue of a queue pair.
#[derive(Debug)]
struct Own {
    raw: NonNull<ibv_qp>,
    qp: Arc<QpInner>,
}

// SAFETY: the pointer is the queue pair of `qp`, and only handed to the provider, which takes the queue's lock.
unsafe impl Send for Own {}
// SAFETY: through `&Own` alone nothing is posted: whoever calls has the receiver.
unsafe impl Sync for Own {}

impl ReceiveQueue {
    pub(super) fn new(producer: Producer, qp: Arc<QpInner>) -> Self {
        Self {
            receiver: Receiver::new(producer),
            own: Own { raw: qp.raw(), qp },
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
    #[doc(alias("ibv_recv_wr", "rdma_post_recv", "rdma_post_recvv", "wr_id"))]
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
        // SAFETY: the receiver is this queue's. That of a pair with a shared receive queue is shut, and posts nothing.
        unsafe { self.receiver.post(&self.own, sink, user) }
    }

    #[inline]
    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.own.raw.as_ptr()
    }

    pub(super) fn inner(&self) -> &QpInner {
        &self.own.qp
    }

    pub(super) fn into_inner(self) -> Arc<QpInner> {
        self.own.qp
    }

    /// Ends posting.
    pub(super) fn shut(&mut self) {
        self.receiver.producer.close();
    }

    /// How many receives may be posted; 0 for a pair with a shared receive queue.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self.own.qp.recv {
            Receives::Own(_) => self.receiver.producer.ring().depth(),
            Receives::Shared(..) => 0,
        }
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.receiver.producer.ring().is_empty()
    }
}

impl Target for Own {
    const OP: &'static str = OP;
    const MAX_SGE: &'static str = "max_recv_sge";
    const IN_ORDER: bool = true;

    fn is_open(&self) -> bool {
        !self.qp.is_ended() && matches!(self.qp.recv, Receives::Own(_))
    }

    #[cold]
    fn none_free(&self) -> Error {
        if self.qp.is_ended() {
            return ended(OP);
        }
        if matches!(self.qp.recv, Receives::Shared(..)) {
            return Error::state(
                OP,
                "a receive queue of the queue pair's own",
                "this pair receives through a shared receive queue; post there",
            );
        }
        full(OP)
    }

    #[inline]
    unsafe fn put(&self, producer: &mut Producer, ready: Ready, held: Held) -> u64 {
        // SAFETY: the caller's own obligation.
        unsafe { producer.put_receive(ready, held) }
    }

    #[inline]
    unsafe fn call(&self, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
        // SAFETY: `ibv_post_recv` wants a queue pair, which `qp` keeps, and what the caller provides.
        unsafe { rdma_sys::ibv_post_recv(self.raw.as_ptr(), wr, bad) }
    }
}

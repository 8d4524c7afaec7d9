#![expect(unsafe_code, reason = "posts work requests")]

use std::ptr;
use std::sync::Arc;

use rdma_sys::ibv_recv_wr;

use super::completion::Op;
use super::pool::Buf;
use super::qp_inner::QpInner;
use super::refused::{Refused, refused};
use super::ring::Producer;
use crate::error::errno_of_verbs;

const OP: &str = "ibv_post_recv";

/// The receiving half of a queue pair. It may live on another thread than the sending half.
#[derive(Debug)]
pub struct ReceiveQueue {
    producer: Producer,
    qp: Arc<QpInner>,
}

impl ReceiveQueue {
    pub(super) fn new(producer: Producer, qp: Arc<QpInner>) -> Self {
        Self { producer, qp }
    }

    /// Hands `buf` to the device for the next message. `user` comes back with the completion, a
    /// [`Received`](super::Received).
    ///
    /// May be called from the making of the queue pair on, and should be before accept or connect: the peer may send as soon
    /// as the connection stands.
    ///
    /// Calls `ibv_post_recv` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`QueueFull`](crate::ErrorKind::QueueFull) when as many receives as the queue holds are posted.
    #[doc(alias = "ibv_post_recv")]
    pub fn post(&mut self, buf: Buf, user: u64) -> Result<(), Refused> {
        let mut sge = buf.whole();
        let wr_id = self
            .producer
            .put(buf, user, Op::Receive)
            .map_err(|buf| Refused::full(OP, buf))?;
        let mut wr = ibv_recv_wr {
            wr_id,
            sg_list: &raw mut sge,
            num_sge: 1,
            ..ibv_recv_wr::default()
        };
        let mut bad = ptr::null_mut();
        // SAFETY: `ibv_post_recv` wants
        // - a queue pair: `qp` keeps it;
        // - a list of requests that is readable during the call: `wr`, and `sge` behind it;
        // - memory that nobody else touches until the completion: the buffer was moved into the ring, which outlives the
        //   queue pair;
        // - no more requests than the queue holds: `put` has counted.
        let returned =
            unsafe { rdma_sys::ibv_post_recv(self.qp.as_raw(), &raw mut wr, &raw mut bad) };
        let Err(errno) = errno_of_verbs(returned) else {
            return Ok(());
        };
        let named = ptr::eq(bad, &raw const wr);
        Err(refused(OP, errno, named, &mut self.producer, wr_id))
    }

    pub(super) fn inner(&self) -> &QpInner {
        &self.qp
    }

    pub(super) fn into_inner(self) -> Arc<QpInner> {
        self.qp
    }

    /// How many receives may be posted.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.producer.ring().depth()
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.producer.ring().is_empty()
    }
}

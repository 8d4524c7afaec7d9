#![expect(unsafe_code, reason = "posts work requests")]

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_wr_opcode};

use super::completion::Op;
use super::pool::Buf;
use super::qp_inner::QpInner;
use super::ring::Producer;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs};

/// The sending half of a queue pair. It may live on another thread than the receiving half.
#[derive(Debug)]
pub struct SendQueue {
    producer: Producer,
    /// Set once by the owner of the queue pair.
    connected: Arc<AtomicBool>,
    qp: Arc<QpInner>,
}

/// The receiving half of a queue pair. It may live on another thread than the sending half.
#[derive(Debug)]
pub struct ReceiveQueue {
    producer: Producer,
    qp: Arc<QpInner>,
}

/// A post that failed, with the buffer if it came back.
///
/// Without one, the device may hold the request all the same, and its completion brings the buffer: an error from a post is
/// no refusal, unless the provider names the request that it refused.
pub struct Refused {
    error: Error,
    buf: Option<Buf>,
}

impl SendQueue {
    pub(super) fn new(producer: Producer, connected: Arc<AtomicBool>, qp: Arc<QpInner>) -> Self {
        Self {
            producer,
            connected,
            qp,
        }
    }

    /// Sends what is in `buf`. `user` comes back with the completion, a [`Sent`](super::Sent).
    ///
    /// For a connected queue pair: on the accepting side once accept has returned, on the connecting side after
    /// [`Established`](crate::EventKind::Established).
    ///
    /// Calls `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`QueueFull`](ErrorKind::QueueFull) when as many requests as the queue holds have not completed: poll the completion
    /// queue. [`State`](ErrorKind::State) before the queue pair is connected. After its end a request completes as
    /// [`FLUSHED`](crate::Status::FLUSHED).
    #[doc(alias = "ibv_post_send")]
    pub fn send(&mut self, buf: Buf, user: u64) -> Result<(), Refused> {
        if !self.connected.load(Ordering::Relaxed) {
            return Err(Refused::early(buf));
        }
        let mut sge = buf.filled();
        let wr_id = self
            .producer
            .put(buf, user, Op::Send)
            .map_err(|buf| Refused::full("ibv_post_send", buf))?;
        let mut wr = ibv_send_wr {
            wr_id,
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: ibv_wr_opcode::IBV_WR_SEND,
            send_flags: rdma_sys::IBV_SEND_SIGNALED,
            ..ibv_send_wr::default()
        };
        let mut bad = ptr::null_mut();
        // SAFETY: `ibv_post_send` wants
        // - a queue pair: `qp` keeps it;
        // - a list of requests that is readable during the call: `wr`, and `sge` behind it;
        // - memory that stays valid until the completion: the buffer is in the ring, which outlives the queue pair;
        // - no more requests than the queue holds: `put` has counted.
        let returned =
            unsafe { rdma_sys::ibv_post_send(self.qp.as_raw(), &raw mut wr, &raw mut bad) };
        let Err(errno) = errno_of_verbs(returned) else {
            return Ok(());
        };
        let named = ptr::eq(bad, &raw const wr);
        Err(refused(
            "ibv_post_send",
            errno,
            named,
            &mut self.producer,
            wr_id,
        ))
    }

    pub(super) fn is_of_the_pair_of(&self, other: &ReceiveQueue) -> bool {
        Arc::ptr_eq(&self.qp, &other.qp)
    }

    /// How many requests may be outstanding.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.producer.ring().depth()
    }

    /// Whether nothing is posted: every request has completed and was polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.producer.ring().is_empty()
    }
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
    /// [`QueueFull`](ErrorKind::QueueFull) when as many receives as the queue holds are posted.
    #[doc(alias = "ibv_post_recv")]
    pub fn post(&mut self, buf: Buf, user: u64) -> Result<(), Refused> {
        let mut sge = buf.whole();
        let wr_id = self
            .producer
            .put(buf, user, Op::Receive)
            .map_err(|buf| Refused::full("ibv_post_recv", buf))?;
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
        Err(refused(
            "ibv_post_recv",
            errno,
            named,
            &mut self.producer,
            wr_id,
        ))
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

/// The error of a failed post of the request `wr_id`, which the provider did or did not name as the one refused.
#[cold]
fn refused(
    op: &'static str,
    errno: i32,
    named: bool,
    producer: &mut Producer,
    wr_id: u64,
) -> Refused {
    let buf = if named {
        // SAFETY: `wr_id` is what `put` just gave. The provider names the request as the first that it did not take, so the
        // device does not have it. (In INIT, rxe fails without a name and sends the request later: then it stays posted.)
        unsafe { producer.take_back(wr_id) }
    } else {
        None
    };
    let kind = match errno {
        libc::ENOMEM => ErrorKind::QueueFull,
        errno => ErrorKind::of_errno(errno),
    };
    Refused {
        error: Error::os_as(op, errno, kind),
        buf,
    }
}

impl Refused {
    #[cold]
    fn full(op: &'static str, buf: Buf) -> Self {
        Self {
            error: Error::plain(
                op,
                ErrorKind::QueueFull,
                "every slot of the queue is in use; poll the completion queue, or make the queue deeper",
            ),
            buf: Some(buf),
        }
    }

    /// Soft-RoCE takes a send before the connection stands, reports an error, and sends it later all the same.
    #[cold]
    fn early(buf: Buf) -> Self {
        Self {
            error: Error::state(
                "ibv_post_send",
                "a connected queue pair",
                "this one is not connected yet",
            ),
            buf: Some(buf),
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The buffer, if the device does not have the request.
    #[must_use]
    pub fn into_buf(self) -> Option<Buf> {
        self.buf
    }

    /// Both at once.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<Buf>) {
        (self.error, self.buf)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .field("buf", &self.buf)
            .finish()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {}

#![expect(unsafe_code, reason = "posts what the caller has filled in")]

use std::fmt;
use std::ptr;

use rdma_sys::{ibv_recv_wr, ibv_send_wr};

use super::recv_queue::ReceiveQueue;
use super::send_limits::{OP, post_error};
use super::send_queue::SendQueue;
use crate::error::Error;

/// A raw post that failed.
pub struct RawRefused<W> {
    error: Error,
    bad: *mut W,
}

// SAFETY: the pointer is only given back to the caller, whose requests it leads to, and never followed here.
unsafe impl<W> Send for RawRefused<W> {}
// SAFETY: as for `Send`.
unsafe impl<W> Sync for RawRefused<W> {}

impl SendQueue {
    /// Posts a list of requests past the books of this crate: the caller keeps the memory, counts the requests and finds what
    /// completes, as in C.
    ///
    /// Its completions come as [`Foreign`](super::Foreign), or from [`poll_raw`](super::CompletionQueue::poll_raw).
    ///
    /// Calls `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)). Blocks: no.
    ///
    /// # Safety
    ///
    /// - `wr` is the head of a list of initialised requests that ends with a null `next`, each with `num_sge` elements at
    ///   `sg_list`, of kinds that the queue pair and its state suit: for a datagram pair with an address handle that lives until
    ///   the completion.
    /// - The memory that the requests name stays valid, and unused where the device writes, until they have completed or the
    ///   queue pair's destruction has succeeded.
    /// - The queue pair was not destroyed by a [`Scope`](super::Scope).
    /// - Requests of both kinds together never exceed the depths of the queue and of the completion queue.
    /// - The low four bits of every `wr_id` are all 1: ids of other forms are this crate's own. Or every completion of the queue
    ///   is polled raw.
    ///
    /// # Errors
    ///
    /// What the provider reports, with the request that it names as the first not taken.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub unsafe fn post_raw(&mut self, wr: *mut ibv_send_wr) -> Result<(), RawRefused<ibv_send_wr>> {
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's own obligations; `qp` keeps the queue pair.
        let returned = unsafe { rdma_sys::ibv_post_send(self.raw(), wr, &raw mut bad) };
        if returned == 0 {
            return Ok(());
        }
        Err(RawRefused::new(OP, returned, bad))
    }
}

impl ReceiveQueue {
    /// Posts a list of receives past the books of this crate: as [`SendQueue::post_raw`].
    ///
    /// Calls `ibv_post_recv` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)). Blocks: no.
    ///
    /// # Safety
    ///
    /// As for [`SendQueue::post_raw`]; and the pair has a receive queue of its own.
    ///
    /// # Errors
    ///
    /// What the provider reports, with the request that it names as the first not taken.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub unsafe fn post_raw(&mut self, wr: *mut ibv_recv_wr) -> Result<(), RawRefused<ibv_recv_wr>> {
        let mut bad = ptr::null_mut();
        // SAFETY: the caller's own obligations; `qp` keeps the queue pair.
        let returned = unsafe { rdma_sys::ibv_post_recv(self.raw(), wr, &raw mut bad) };
        if returned == 0 {
            return Ok(());
        }
        Err(RawRefused::new("ibv_post_recv", returned, bad))
    }
}

impl<W> RawRefused<W> {
    #[cold]
    #[inline(never)]
    fn new(op: &'static str, returned: i32, bad: *mut W) -> Self {
        Self {
            error: post_error(op, returned),
            bad,
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The request that the provider names as the first not taken; null when it names none, and then any may be posted.
    #[must_use]
    pub fn bad_wr(&self) -> *mut W {
        self.bad
    }
}

impl<W> From<RawRefused<W>> for Error {
    fn from(refused: RawRefused<W>) -> Self {
        refused.error
    }
}

impl<W> fmt::Debug for RawRefused<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRefused")
            .field("error", &self.error)
            .field("bad_wr", &self.bad)
            .finish()
    }
}

impl<W> fmt::Display for RawRefused<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<W> std::error::Error for RawRefused<W> {}

use super::buf::Buf;
use super::datagram_buf::Arriving;
use super::grh::Grh;
use super::recv_queue::ReceiveQueue;
use super::refused::Refused;
use crate::error::{Error, ErrorKind, Result};

/// The receiving half of a [`DatagramPair`](super::DatagramPair). It may live on another thread than the sending half.
#[derive(Debug)]
pub struct DatagramReceiveQueue {
    queue: ReceiveQueue,
}

impl DatagramReceiveQueue {
    pub(super) fn new(queue: ReceiveQueue) -> Self {
        Self { queue }
    }

    /// Hands a buffer to the device for the next message. `user` comes back with the completion, a
    /// [`Datagram`](super::Datagram).
    ///
    /// The device puts a header of forty bytes in front of the message, so the buffer must have room for it and the message. One
    /// that is longer fails the receive (as [`LOCAL_LENGTH`](crate::Status::LOCAL_LENGTH), on soft-RoCE as
    /// [`LOCAL_QP_OPERATION`](crate::Status::LOCAL_QP_OPERATION)), and the queue pair is in its error state then: with forty bytes
    /// more than [`max_message_len`](super::DatagramSendQueue::max_message_len) no peer can do that. A message that finds no receive
    /// is lost.
    ///
    /// Calls `ibv_post_recv` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`QueueFull`](ErrorKind::QueueFull) when as many receives as the queue holds are posted;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a buffer with a capacity of forty bytes or fewer.
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "ibv_recv_wr")]
    #[doc(alias = "wr_id")]
    #[inline]
    pub fn post(&mut self, buf: Buf, user: u64) -> Result<(), Refused> {
        if buf.capacity() <= Grh::LEN {
            return Err(Refused::with(too_small(), buf));
        }
        self.queue.post_staged(Arriving(buf), user)
    }

    /// How many receives may be posted.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.queue.depth()
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    pub(super) fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }

    pub(super) fn into_queue(self) -> ReceiveQueue {
        self.queue
    }
}

#[cold]
fn too_small() -> Error {
    Error::plain(
        "ibv_post_recv",
        ErrorKind::InvalidInput,
        "the buffer has a capacity of 40 bytes or fewer, and the header in front of a datagram takes 40",
    )
}

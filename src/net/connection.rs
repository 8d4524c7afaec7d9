use std::net::SocketAddr;
use std::time::Duration;

use super::closer::Closer;
use super::parts::Parts;
use super::prepared::Prepared;
use super::traffic::{SEND, Traffic};
use crate::cm::{CmId, EventChannel, Negotiated};
use crate::error::{Error, ErrorKind, Result};
use crate::os::{self, Deadline};
use crate::verbs::Buf;

/// How long [`Connection::close`] waits for the peer to take what was sent.
const FLUSH: Duration = Duration::from_secs(30);
/// How long [`Connection::close`] waits for what is posted to be flushed.
const DRAIN: Duration = Duration::from_secs(1);

/// A reliable connection that carries whole messages.
///
/// Dropped, it disconnects, and what is on its way to either side may be lost; [`close`](Self::close) ends it in order and
/// reports errors.
///
/// That the peer has ended the connection looks the same whether its program closed it or died: where it matters, end with a
/// message of your own. A peer whose machine has died, or is cut off, ends nothing, and no event tells of it while nothing is on
/// its way there: where that matters, have the peers send something at intervals, and wait with
/// [`recv_timeout`](Self::recv_timeout). One thread owns a connection; [`send`](Self::send) waits for a peer that takes nothing.
///
/// When a message fails, such as one that is longer than the peer's buffers, the connection fails with it: every later send,
/// receive and flush gives the same error, and the peer sees the end.
///
/// It is neither [`Read`](std::io::Read) nor [`Write`](std::io::Write), since bytes would lose the bounds of the messages, and
/// cannot be closed for one direction, since RDMA ends both at once.
#[derive(Debug)]
pub struct Connection {
    traffic: Traffic,
    private_data: Box<[u8]>,
}

impl Connection {
    /// What `prepared` and `id` have become, now that the connection stands.
    pub(super) fn new(
        prepared: Prepared,
        id: CmId,
        channel: EventChannel,
        private_data: Box<[u8]>,
    ) -> Self {
        Self {
            traffic: Traffic::new(prepared, id, channel),
            private_data,
        }
    }

    /// Sends `data` as one message. It is copied, and on its way when this returns; [`flush`](Self::flush) waits until the
    /// peer's device has it.
    ///
    /// Calls `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)). Blocks: while
    /// [`queue_depth`](crate::Options::queue_depth) messages are on their way, for as long as the peer takes none. What arrives
    /// meanwhile is kept for `recv`, up to twice that many messages: two ends that send more and receive nothing wait for each
    /// other, as with TCP.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for more than [`message_size`](crate::Options::message_size) bytes;
    /// [`Disconnected`](ErrorKind::Disconnected); [`WorkFailed`](ErrorKind::WorkFailed) with the status of the message that
    /// the connection failed with; [`BuffersHeld`](ErrorKind::BuffersHeld) when the program holds every buffer that there is
    /// for sends, of which messages that wait to be received take none.
    #[doc(alias = "ibv_post_send")]
    pub fn send(&mut self, data: &[u8]) -> Result<()> {
        self.send_until(data, None)
    }

    /// Sends `data` as one message, as [`send`](Self::send) does, but waits at most for `patience` when there is no room.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send), and [`TimedOut`](ErrorKind::TimedOut): the message is not sent, and the connection is as it
    /// was.
    pub fn send_timeout(&mut self, data: &[u8], patience: Duration) -> Result<()> {
        self.send_until(data, os::deadline_after(Some(patience)))
    }

    fn send_until(&mut self, data: &[u8], deadline: Deadline) -> Result<()> {
        let size = self.message_size();
        if data.len() > size {
            return Err(Error::too_large(
                SEND,
                "length of the message",
                data.len() as u64,
                size as u64,
                "make both ends with a larger `Options::message_size`",
            ));
        }
        let mut buf = self.traffic.buffer(deadline)?;
        buf.fill_from(data);
        self.traffic.send(buf, deadline)
    }

    /// Sends what is in `buf`, one of this connection's buffers, without copying it: from [`buffer`](Self::buffer) or as it
    /// was received.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send), and [`InvalidInput`](ErrorKind::InvalidInput) for a buffer of another connection.
    pub fn send_buf(&mut self, buf: Buf) -> Result<()> {
        self.traffic.send(buf, None)
    }

    /// A buffer to fill and send, as long as the longest message. What it holds is what its last use left.
    ///
    /// At least [`queue_depth`](crate::Options::queue_depth) buffers are for sends, those on their way included; waits for one
    /// of them to come back.
    ///
    /// # Errors
    ///
    /// [`BuffersHeld`](ErrorKind::BuffersHeld) when the program holds all of them, and none is on its way: send or drop some.
    /// Otherwise as for [`send`](Self::send).
    pub fn buffer(&mut self) -> Result<Buf> {
        self.traffic.buffer(None)
    }

    /// Waits until the peer's device has every message that was sent.
    ///
    /// Blocks: for as long as the peer takes none; two ends that flush without receiving wait for each other.
    ///
    /// # Errors
    ///
    /// [`Disconnected`](ErrorKind::Disconnected) when the connection ended first, and it is not known which messages the peer
    /// has; otherwise as for [`send`](Self::send).
    pub fn flush(&mut self) -> Result<()> {
        self.traffic.flush(None, false)
    }

    /// Waits until the peer's device has every message that was sent, at most for `patience`.
    ///
    /// # Errors
    ///
    /// As for [`flush`](Self::flush), and [`TimedOut`](ErrorKind::TimedOut).
    pub fn flush_timeout(&mut self, patience: Duration) -> Result<()> {
        self.traffic
            .flush(os::deadline_after(Some(patience)), false)
    }

    /// Waits for the next message; `None` when the peer has ended the connection.
    ///
    /// The buffer is the one that the device wrote into; drop it to give it back.
    ///
    /// Calls `ibv_poll_cq`. Blocks: yes.
    ///
    /// # Errors
    ///
    /// [`WorkFailed`](ErrorKind::WorkFailed) with the status of the message that the connection failed with, such as one from
    /// the peer that is longer than [`message_size`](crate::Options::message_size);
    /// [`DeviceRemoved`](ErrorKind::DeviceRemoved); [`BuffersHeld`](ErrorKind::BuffersHeld) when the program holds every buffer
    /// that is not for sends, twice [`queue_depth`](crate::Options::queue_depth).
    #[doc(alias = "ibv_poll_cq")]
    pub fn recv(&mut self) -> Result<Option<Buf>> {
        self.traffic.receive(None)
    }

    /// Waits for the next message, at most for `patience`.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv), and [`TimedOut`](ErrorKind::TimedOut).
    pub fn recv_timeout(&mut self, patience: Duration) -> Result<Option<Buf>> {
        self.traffic.receive(os::deadline_after(Some(patience)))
    }

    /// Ends the connection at once: the peer's `recv` gives `None`, and so does this side's once all that has arrived is
    /// received. What is still on its way may be lost.
    ///
    /// # Errors
    ///
    /// As for [`CmId::disconnect`].
    pub fn disconnect(&mut self) -> Result<()> {
        self.traffic.disconnect()
    }

    /// Ends the connection in order: waits until the peer's device has every message, disconnects, waits until the device has
    /// let go of every buffer, and says whether all of that worked.
    ///
    /// What arrives meanwhile is thrown away. When the peer has ended the connection already, messages that it did not wait
    /// for are no error: [`flush`](Self::flush) first to know.
    ///
    /// Blocks: for a peer that takes no messages, 30 seconds at most.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](ErrorKind::TimedOut) when the peer did not take everything; otherwise what the device or the connection
    /// manager reports. The connection has ended all the same.
    pub fn close(mut self) -> Result<()> {
        let sent = match self.traffic.flush(os::deadline_after(Some(FLUSH)), true) {
            Err(error) if matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Closed) => {
                Ok(())
            }
            other => other,
        };
        let disconnected = self.traffic.disconnect();
        let drained = self.traffic.drain(os::deadline_after(Some(DRAIN)));
        let destroyed = self.traffic.qp.destroy();
        sent.and(disconnected).and(drained).and(destroyed)
    }

    /// What ends this connection from another thread, while this one waits in it.
    #[must_use]
    pub fn closer(&self) -> Closer {
        self.traffic.closer()
    }

    /// The id of the connection, for what is not wrapped here. Its events belong to this connection: an id that is moved to
    /// another channel tells it no more of its end.
    #[must_use]
    pub fn id(&self) -> &CmId {
        &self.traffic.id
    }

    /// The parts of the connection, which stands and goes on: for what this layer does not do. A [`Closer`] still disconnects.
    #[must_use]
    pub fn into_parts(self) -> Parts {
        self.traffic.into_parts()
    }

    /// The connection's own address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.traffic.id.local_addr()
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.traffic.id.peer_addr()
    }

    /// What the server sent when it accepted: over InfiniBand and RoCE always 196 bytes, padded with zeros. Empty on the
    /// server, where [`Request::private_data`](super::Request::private_data) has the client's.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The depths of RDMA reads and atomics that both sides have agreed on.
    #[must_use]
    pub fn negotiated(&self) -> Option<Negotiated> {
        self.traffic.id.negotiated()
    }

    /// How many bytes the longest message has.
    #[must_use]
    pub fn message_size(&self) -> usize {
        self.traffic.pool.buffer_size()
    }
}

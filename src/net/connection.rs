use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use super::prepared::Prepared;
use super::steps;
use crate::cm::{CmId, EventChannel, EventKind, Negotiated};
use crate::error::{Error, ErrorKind, Result};
use crate::os::{self, Deadline};
use crate::status::Status;
use crate::verbs::{Buf, Completion, CompletionQueue, Pool, QueuePair};

const SEND: &str = "ibv_post_send";
const RECV: &str = "ibv_post_recv";

/// How long [`Connection::close`] waits for what is posted to be flushed.
const DRAIN: Duration = Duration::from_secs(1);

/// A reliable connection that carries whole messages.
///
/// Dropped, it disconnects, and what is on its way to either side may be lost; [`close`](Self::close) ends it in order and
/// reports errors.
#[derive(Debug)]
pub struct Connection {
    qp: QueuePair,
    cq: CompletionQueue,
    pool: Pool,
    /// Received, and not asked for yet.
    inbox: VecDeque<Buf>,
    /// How many receives are posted.
    posted: u32,
    /// How many sends have not completed.
    sending: u32,
    /// Whether a send did not complete well.
    lost: bool,
    /// Why nothing more arrives, once nothing more does.
    ended: Option<Ended>,
    id: CmId,
    channel: EventChannel,
    private_data: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The peer, or this side, has disconnected.
    Disconnected,
    /// The device is gone.
    DeviceRemoved,
}

/// What one turn of waiting brought.
enum Turn {
    Sent,
    Received,
    Ended(Ended),
    TimedOut,
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
            qp: prepared.qp,
            cq: prepared.cq,
            pool: prepared.pool,
            inbox: VecDeque::new(),
            posted: prepared.posted,
            sending: 0,
            lost: false,
            ended: None,
            id,
            channel,
            private_data,
        }
    }

    /// Sends `data` as one message. It is copied, and on its way when this returns; [`flush`](Self::flush) waits until the
    /// peer's device has it.
    ///
    /// Calls `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)). Blocks: while
    /// [`queue_depth`](crate::Options::queue_depth) messages are on their way.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for more than [`message_size`](crate::Options::message_size) bytes;
    /// [`Disconnected`](ErrorKind::Disconnected); [`WorkFailed`](ErrorKind::WorkFailed) with the status of an earlier send
    /// that the peer did not take; [`QueueFull`](ErrorKind::QueueFull) when the program holds every buffer.
    #[doc(alias = "ibv_post_send")]
    pub fn send(&mut self, data: &[u8]) -> Result<()> {
        if data.len() > self.pool.buffer_size() {
            return Err(Error::too_large(
                SEND,
                "length of the message",
                data.len() as u64,
                self.pool.buffer_size() as u64,
                "make both ends with a larger `Options::message_size`",
            ));
        }
        let mut buf = self.buffer()?;
        buf.fill_from(data);
        self.send_buf(buf)
    }

    /// Sends what is in `buf`, one of this connection's buffers, without copying it: from [`buffer`](Self::buffer) or as it
    /// was received.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn send_buf(&mut self, buf: Buf) -> Result<()> {
        while self.sending == self.qp.send.depth() {
            self.await_send()?;
        }
        if let Some(ended) = self.ended {
            return Err(self.error_of(ended, SEND));
        }
        self.qp.send.send(buf, 0)?;
        self.sending += 1;
        Ok(())
    }

    /// An empty buffer to fill and send, as long as the longest message.
    ///
    /// # Errors
    ///
    /// [`QueueFull`](ErrorKind::QueueFull) when the program holds every buffer: drop some. Otherwise as for
    /// [`send`](Self::send).
    pub fn buffer(&mut self) -> Result<Buf> {
        loop {
            if let Some(buf) = self.pool.take() {
                return Ok(buf);
            }
            if self.sending == 0 {
                return Err(Error::plain(
                    SEND,
                    ErrorKind::QueueFull,
                    "the program holds every buffer of the connection; drop some that were received",
                ));
            }
            self.await_send()?;
        }
    }

    /// Waits until the peer's device has every message that was sent.
    ///
    /// # Errors
    ///
    /// [`Disconnected`](ErrorKind::Disconnected) when the connection ended first, and it is not known which messages the peer
    /// has; otherwise as for [`send`](Self::send).
    pub fn flush(&mut self) -> Result<()> {
        while self.sending > 0 {
            self.await_send()?;
        }
        match self.ended {
            Some(ended) if self.lost => Err(self.error_of(ended, SEND)),
            _ => Ok(()),
        }
    }

    /// Waits until one send has completed, or the connection has ended.
    fn await_send(&mut self) -> Result<()> {
        let before = self.sending;
        while self.sending == before {
            match self.turn(None)? {
                Turn::Ended(ended) => return Err(self.error_of(ended, SEND)),
                Turn::Sent | Turn::Received | Turn::TimedOut => {}
            }
        }
        Ok(())
    }

    /// Waits for the next message; `None` when the connection has ended.
    ///
    /// The buffer is the one that the device wrote into; drop it to give it back.
    ///
    /// Calls `ibv_poll_cq`. Blocks: yes.
    ///
    /// # Errors
    ///
    /// [`WorkFailed`](ErrorKind::WorkFailed) with the status of a receive that failed, such as for a message longer than
    /// [`message_size`](crate::Options::message_size), or of an earlier send that did; [`DeviceRemoved`](ErrorKind::DeviceRemoved);
    /// [`QueueFull`](ErrorKind::QueueFull) when the program holds every buffer.
    #[doc(alias = "ibv_poll_cq")]
    pub fn recv(&mut self) -> Result<Option<Buf>> {
        self.recv_until(None)
    }

    /// Waits for the next message, at most for `patience`.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv), and [`TimedOut`](ErrorKind::TimedOut).
    pub fn recv_timeout(&mut self, patience: Duration) -> Result<Option<Buf>> {
        self.recv_until(os::deadline_after(Some(patience)))
    }

    fn recv_until(&mut self, deadline: Deadline) -> Result<Option<Buf>> {
        loop {
            if let Some(buf) = self.inbox.pop_front() {
                return Ok(Some(buf));
            }
            if self.ended.is_none() {
                self.replenish()?;
            }
            match self.turn(deadline)? {
                Turn::Sent | Turn::Received => {}
                Turn::Ended(Ended::Disconnected) => return Ok(None),
                Turn::Ended(ended) => return Err(self.error_of(ended, RECV)),
                Turn::TimedOut => {
                    return Err(Error::plain(
                        RECV,
                        ErrorKind::TimedOut,
                        "no message came in the time that was given",
                    )
                    .at(self.id.local_addr(), self.id.peer_addr()));
                }
            }
        }
    }

    /// Posts as many receives as there are buffers for.
    fn replenish(&mut self) -> Result<()> {
        while self.posted < self.qp.recv.depth() {
            let Some(buf) = self.pool.take() else { break };
            self.qp.recv.post(buf, 0)?;
            self.posted += 1;
        }
        if self.posted == 0 {
            return Err(Error::plain(
                RECV,
                ErrorKind::QueueFull,
                "the program holds every buffer of the connection; drop some that were received",
            ));
        }
        Ok(())
    }

    /// Waits for one completion, or the end of the connection.
    fn turn(&mut self, deadline: Deadline) -> Result<Turn> {
        loop {
            if let Some(turn) = self.completion()? {
                return Ok(turn);
            }
            // Only when the queue is empty: what has arrived before the end is to be received.
            if let Some(ended) = self.ended {
                return Ok(Turn::Ended(ended));
            }
            if self.read_events()? || self.cq.arm()? {
                continue;
            }
            let Some(completions) = self.cq.channel_fd() else {
                continue;
            };
            let ready = os::wait_readable([completions, self.channel.as_fd()], deadline)?;
            if ready == [false, false] {
                return Ok(Turn::TimedOut);
            }
            self.cq.clear_events()?;
        }
    }

    /// Takes one completion, if there is one, and keeps the books.
    fn completion(&mut self) -> Result<Option<Turn>> {
        while let Some(completion) = self.cq.poll()? {
            let status = completion.status();
            let (turn, op) = match completion {
                Completion::Received(received) => {
                    self.posted -= 1;
                    if status.is_success() {
                        self.inbox.push_back(received.into_buf());
                    }
                    (Turn::Received, RECV)
                }
                Completion::Sent(_) => {
                    self.sending -= 1;
                    self.lost |= !status.is_success();
                    (Turn::Sent, SEND)
                }
                // Nothing of this connection.
                Completion::Foreign(_) => continue,
            };
            if status == Status::FLUSHED {
                self.ended.get_or_insert(Ended::Disconnected);
            } else if !status.is_success() {
                return Err(self.failed(status, op));
            }
            return Ok(Some(turn));
        }
        Ok(None)
    }

    /// Reads what the connection manager has to say; true when the connection has ended.
    fn read_events(&mut self) -> Result<bool> {
        while let Some(event) = self.channel.try_event()? {
            match event.kind {
                EventKind::Disconnected(_) => self.ended = Some(Ended::Disconnected),
                EventKind::DeviceRemoval => self.ended = Some(Ended::DeviceRemoved),
                _ => {}
            }
        }
        Ok(self.ended.is_some())
    }

    fn error_of(&self, ended: Ended, op: &'static str) -> Error {
        let error = match ended {
            Ended::Disconnected => {
                Error::plain(op, ErrorKind::Disconnected, "the connection has ended")
            }
            Ended::DeviceRemoved => {
                Error::plain(op, ErrorKind::DeviceRemoved, "the RDMA device was removed")
            }
        };
        error.at(self.id.local_addr(), self.id.peer_addr())
    }

    fn failed(&self, status: Status, op: &'static str) -> Error {
        Error::new(op, crate::error::Cause::Completion { status })
            .at(self.id.local_addr(), self.id.peer_addr())
    }

    /// Ends the connection at once: the peer's `recv` gives `None`, and so does this side's once all that has arrived is
    /// received. What is still on its way may be lost.
    ///
    /// # Errors
    ///
    /// As for [`CmId::disconnect`].
    pub fn disconnect(&mut self) -> Result<()> {
        self.ended.get_or_insert(Ended::Disconnected);
        self.id.disconnect()
    }

    /// Ends the connection in order: waits until the peer's device has every message, disconnects, waits until the device has
    /// let go of every buffer, and says whether all of that worked.
    ///
    /// When the peer has ended the connection already, messages that it did not wait for are no error: [`flush`](Self::flush)
    /// first to know.
    ///
    /// # Errors
    ///
    /// What the device or the connection manager reports; see [`flush`](Self::flush) and [`QueuePair::close`].
    pub fn close(mut self) -> Result<()> {
        let sent = match self.flush() {
            Err(error) if error.kind() == ErrorKind::Disconnected => Ok(()),
            other => other,
        };
        let disconnected = self.disconnect();
        let drained = self.drain();
        let destroyed = self.qp.close();
        sent.and(disconnected).and(drained).and(destroyed)
    }

    /// Polls until nothing is posted any more. A device that does not flush in time is left to the queue pair's destruction.
    fn drain(&mut self) -> Result<()> {
        let deadline = os::deadline_after(Some(DRAIN));
        while !(self.qp.send.is_idle() && self.qp.recv.is_idle()) {
            if self.cq.poll()?.is_none() && !self.cq.wait(Some(steps::time_left(deadline)))? {
                break;
            }
        }
        Ok(())
    }

    /// The connection's own address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// What the server sent when it accepted: over InfiniBand and RoCE always 196 bytes, padded with zeros. Empty at the
    /// server's own end, where the request had the client's.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The depths of RDMA reads and atomics that both sides have agreed on.
    #[must_use]
    pub fn negotiated(&self) -> Option<Negotiated> {
        self.id.negotiated()
    }

    /// How many bytes the longest message has.
    #[must_use]
    pub fn message_size(&self) -> usize {
        self.pool.buffer_size()
    }
}

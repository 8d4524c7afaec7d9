use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::closer::Closer;
use super::parts::Parts;
use super::prepared::Prepared;
use crate::cm::{CmId, EventChannel, EventKind};
use crate::error::{Cause, Error, ErrorKind, Result};
use crate::os::{self, Deadline};
use crate::status::Status;
use crate::verbs::{Buf, Completion, CompletionQueue, Pool, QueuePair};

pub(super) const SEND: &str = "ibv_post_send";
pub(super) const RECV: &str = "ibv_post_recv";

/// What moves the messages of a connection, and keeps the books about them. The order is the order of dropping.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) qp: QueuePair,
    cq: CompletionQueue,
    pub(super) pool: Pool,
    /// Received, and not asked for yet.
    inbox: VecDeque<Buf>,
    /// How many receives are posted.
    posted: u32,
    /// How many sends have not completed.
    sending: u32,
    /// Whether a send did not complete well.
    lost: bool,
    /// Why nothing more can be sent, and nothing more arrives. Once set, it stays.
    ended: Option<Ended>,
    /// Whether a [`Closer`] has ended the connection.
    closed: Arc<AtomicBool>,
    pub(super) id: CmId,
    channel: EventChannel,
}

/// Why a connection is of no more use.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// The peer, or this side, has disconnected.
    Disconnected,
    /// The device is gone.
    DeviceRemoved,
    /// A [`Closer`] has disconnected.
    Closed,
    /// A work request failed, and the queue pair with it.
    Failed { op: &'static str, status: Status },
}

/// What one turn of waiting brought.
pub(super) enum Turn {
    /// Something was sent or received.
    Moved,
    /// The connection has ended, and all that had arrived before is in the inbox.
    Ended(Ended),
    TimedOut,
}

impl Traffic {
    pub(super) fn new(prepared: Prepared, id: CmId, channel: EventChannel) -> Self {
        Self {
            qp: prepared.qp,
            cq: prepared.cq,
            pool: prepared.pool,
            inbox: VecDeque::new(),
            posted: prepared.posted,
            sending: 0,
            lost: false,
            ended: None,
            closed: Arc::default(),
            id,
            channel,
        }
    }

    pub(super) fn closer(&self) -> Closer {
        Closer::new(&self.closed, &self.id, &self.channel)
    }

    pub(super) fn into_parts(self) -> Parts {
        Parts {
            ended: self.ended.map(|ended| self.error_of(ended, RECV)),
            qp: self.qp,
            cq: self.cq,
            received: self.inbox.into(),
            pool: self.pool,
            id: self.id,
            channel: self.channel,
        }
    }

    /// Posts `buf` for sending, when there is room for it.
    pub(super) fn send(&mut self, buf: Buf, deadline: Deadline) -> Result<()> {
        if !buf.is_of(&self.pool) {
            return Err(Error::plain(
                SEND,
                ErrorKind::InvalidInput,
                "the buffer is not one of this connection's; send a copy",
            ));
        }
        while self.sending == self.qp.send.depth() {
            self.await_send(deadline, false)?;
        }
        self.heed_closer();
        if let Some(ended) = self.ended {
            return Err(self.error_of(ended, SEND));
        }
        match self.qp.send.send(buf, 0) {
            Ok(()) => self.sending += 1,
            Err(refused) => {
                // Without the buffer, the request is posted all the same, and will complete.
                let (error, buf) = refused.into_parts();
                self.sending += u32::from(buf.is_none());
                return Err(error);
            }
        }
        Ok(())
    }

    /// A buffer that nobody uses; waits for sends to give theirs back.
    pub(super) fn buffer(&mut self, deadline: Deadline) -> Result<Buf> {
        loop {
            self.heed_closer();
            if let Some(ended) = self.ended {
                return Err(self.error_of(ended, SEND));
            }
            if let Some(buf) = self.pool.take() {
                return Ok(buf);
            }
            if self.sending == 0 {
                return Err(Error::plain(
                    SEND,
                    ErrorKind::BuffersHeld,
                    "the program holds every buffer that the connection has for sends; send or drop some",
                ));
            }
            self.await_send(deadline, false)?;
        }
    }

    /// Waits until every send has completed. With `discard`, what arrives meanwhile is thrown away: the peer may be waiting for
    /// receives before it takes more itself.
    pub(super) fn flush(&mut self, deadline: Deadline, discard: bool) -> Result<()> {
        while self.sending > 0 {
            self.await_send(deadline, discard)?;
        }
        match self.ended {
            Some(ended @ Ended::Failed { .. }) => Err(self.error_of(ended, SEND)),
            ended if self.lost => Err(self.error_of(ended.unwrap_or(Ended::Disconnected), SEND)),
            _ => Ok(()),
        }
    }

    /// Waits until one send has completed. An error when the connection has ended, or time has.
    fn await_send(&mut self, deadline: Deadline, discard: bool) -> Result<()> {
        let before = self.sending;
        while self.sending == before {
            if discard {
                self.inbox.clear();
            }
            self.replenish()?;
            match self.turn(deadline)? {
                // A peer that never stops sending keeps the queue from being empty, where time is looked at.
                Turn::Moved if !discard || deadline.is_none_or(|end| Instant::now() < end) => {}
                Turn::Ended(ended) => {
                    // It is not known what became of those that are left.
                    self.lost = true;
                    return Err(self.error_of(ended, SEND));
                }
                Turn::Moved | Turn::TimedOut => {
                    return Err(
                        self.timed_out(SEND, "the peer took no message in the time that was given")
                    );
                }
            }
        }
        Ok(())
    }

    /// Takes the next message out of the inbox, and waits until there is one; `None` when the peer has disconnected.
    pub(super) fn receive(&mut self, deadline: Deadline) -> Result<Option<Buf>> {
        loop {
            if let Some(buf) = self.inbox.pop_front() {
                return Ok(Some(buf));
            }
            self.replenish()?;
            // A send that completes does not help: its buffer stays with those for sends.
            if self.posted == 0 && self.ended.is_none() {
                return Err(Error::plain(
                    RECV,
                    ErrorKind::BuffersHeld,
                    "the program holds every buffer that the connection has for receives; drop some that were received",
                ));
            }
            match self.turn(deadline)? {
                Turn::Moved => {}
                Turn::Ended(Ended::Disconnected) if self.inbox.is_empty() => return Ok(None),
                Turn::Ended(ended) if self.inbox.is_empty() => {
                    return Err(self.error_of(ended, RECV));
                }
                Turn::Ended(_) => {}
                Turn::TimedOut => {
                    return Err(self.timed_out(RECV, "no message came in the time that was given"));
                }
            }
        }
    }

    /// Posts as many receives as there are buffers for, unless the connection has ended. One set of buffers is kept for sends,
    /// those that are on their way included.
    fn replenish(&mut self) -> Result<()> {
        while self.ended.is_none() && self.posted < self.qp.recv.depth() {
            let kept = self.qp.send.depth().saturating_sub(self.sending) as usize;
            if self.pool.available() <= kept {
                break;
            }
            let Some(buf) = self.pool.take() else { break };
            match self.qp.recv.post(buf, 0) {
                Ok(()) => self.posted += 1,
                Err(refused) => {
                    let (error, buf) = refused.into_parts();
                    self.posted += u32::from(buf.is_none());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Waits for one completion, or the end of the connection.
    fn turn(&mut self, deadline: Deadline) -> Result<Turn> {
        loop {
            if self.completion()? {
                return Ok(Turn::Moved);
            }
            // Only when the queue is empty: what has arrived before the end is to be received.
            if let Some(ended) = self.ended {
                return Ok(Turn::Ended(ended));
            }
            // Reading events may take the wake of a closer, so it is looked for afterwards.
            if self.read_events()? || self.heed_closer() || self.cq.arm()? {
                continue;
            }
            let Some(completions) = self.cq.event_fd() else {
                continue;
            };
            let ready = os::wait_readable([completions, self.channel.as_fd()], deadline)?;
            if ready == [false, false] {
                return Ok(Turn::TimedOut);
            }
        }
    }

    /// Takes one completion, if there is one, and keeps the books.
    fn completion(&mut self) -> Result<bool> {
        loop {
            let (op, status) = match self.cq.poll()? {
                None => return Ok(false),
                Some(Completion::Received(received)) => {
                    self.posted -= 1;
                    let status = received.status();
                    let buf = received.into_buf();
                    if status.is_success() {
                        self.inbox.push_back(buf);
                    }
                    (RECV, status)
                }
                Some(Completion::Sent(sent)) => {
                    self.sending -= 1;
                    self.lost |= !sent.status().is_success();
                    (SEND, sent.status())
                }
                // Nothing of this connection.
                Some(_) => continue,
            };
            if !status.is_success() {
                self.failed(op, status)?;
            }
            return Ok(true);
        }
    }

    /// A work request failed, and with it the queue pair: the connection has ended.
    fn failed(&mut self, op: &'static str, status: Status) -> Result<()> {
        if names_its_message(op, status) {
            // Whatever else ends the connection is a consequence of this.
            self.fail(Ended::Failed { op, status });
            return Ok(());
        }
        // Otherwise an event, or this program, may know better why.
        self.read_events()?;
        self.heed_closer();
        if self.ended.is_some() {
            return Ok(());
        }
        if status == Status::FLUSHED && self.pool.protection_domain().context().is_iwarp() {
            // There the queue pair ends with TCP, before the event says so.
            self.ended = Some(Ended::Disconnected);
            return Ok(());
        }
        self.fail(Ended::Failed { op, status });
        Ok(())
    }

    fn fail(&mut self, ended: Ended) {
        if self.ended.replace(ended).is_none() {
            // The peer does not know yet. That it cannot be told any more is no news.
            drop(self.id.disconnect());
        }
    }

    /// Takes note that a [`Closer`] has ended the connection; true when that is news.
    fn heed_closer(&mut self) -> bool {
        let news = self.ended.is_none() && self.closed.load(Ordering::Acquire);
        if news {
            self.ended = Some(Ended::Closed);
        }
        news
    }

    /// Reads what the connection manager has to say; true when it says that the connection has ended.
    fn read_events(&mut self) -> Result<bool> {
        let mut over = false;
        while let Some(event) = self.channel.try_event()? {
            let why = match event.kind {
                EventKind::Disconnected(_) if self.closed.load(Ordering::Acquire) => Ended::Closed,
                EventKind::Disconnected(_) => Ended::Disconnected,
                EventKind::DeviceRemoval => Ended::DeviceRemoved,
                _ => continue,
            };
            over = true;
            match self.ended {
                // A flush says that the end has come, and not why.
                None
                | Some(Ended::Failed {
                    status: Status::FLUSHED,
                    ..
                }) => self.ended = Some(why),
                Some(_) => {}
            }
        }
        Ok(over)
    }

    /// Disconnects; what has arrived can still be received.
    pub(super) fn disconnect(&mut self) -> Result<()> {
        self.ended.get_or_insert(Ended::Disconnected);
        self.id.disconnect()
    }

    /// Polls until nothing is posted any more, or `deadline`: a device that does not flush in time is left to the queue pair's
    /// destruction.
    pub(super) fn drain(&mut self, deadline: Deadline) -> Result<()> {
        while !(self.qp.send.is_idle() && self.qp.recv.is_idle()) {
            let left = super::steps::time_left(deadline);
            if self.cq.poll()?.is_none() && !self.cq.wait(Some(left))? {
                break;
            }
        }
        Ok(())
    }

    fn error_of(&self, ended: Ended, op: &'static str) -> Error {
        let error = match ended {
            Ended::Disconnected => {
                Error::plain(op, ErrorKind::Disconnected, "the connection has ended")
            }
            Ended::Closed => Error::plain(
                op,
                ErrorKind::Closed,
                "the connection was closed by another part of this program",
            ),
            Ended::DeviceRemoved => {
                Error::plain(op, ErrorKind::DeviceRemoved, "the RDMA device was removed")
            }
            Ended::Failed { op, status } => Error::new(op, Cause::Completion { status }),
        };
        error.at(self.id.local_addr(), self.id.peer_addr())
    }

    fn timed_out(&self, op: &'static str, message: &'static str) -> Error {
        Error::plain(op, ErrorKind::TimedOut, message).at(self.id.local_addr(), self.id.peer_addr())
    }
}

/// Whether a status says that the request's own message was bad, and not that the connection ended for another reason.
fn names_its_message(op: &'static str, status: Status) -> bool {
    match status {
        Status::SUCCESS | Status::FLUSHED => false,
        Status::RETRY_EXCEEDED | Status::RNR_RETRY_EXCEEDED => op == RECV,
        _ => true,
    }
}

//! Connections step by step, for the examples that make their own queue pairs.

#![allow(dead_code, reason = "each example uses a part of it")]

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rdmacm::{
    Answer, Buf, CmId, Completion, CompletionQueue, ConnRequest, Context, Error, EventChannel,
    EventKind, Pool, ProtectionDomain, QueuePair, QueuePairInit, RemoteMemory,
};
use rustix::event::{PollFd, PollFlags, poll};

/// How long a step may take, and the end of a queue pair.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What one end of a connection needs beside its id. The order is the order of dropping.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    /// Of its buffers one is left: the others are posted for receives, which are as many as the queue holds with that one.
    pub(crate) pool: Pool,
    pub(crate) pd: ProtectionDomain,
}

impl End {
    /// Two queues of `depth` requests, and receives of `size` bytes posted before the peer can send.
    pub(crate) fn new(
        context: &Context,
        depth: u32,
        size: usize,
        create_qp: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair, Error>,
    ) -> Result<Self, Error> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_with_channel(2 * depth)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(depth)
            .max_recv_wr(depth);
        let mut qp = create_qp(&pd, &init)?;
        let pool = pd.pool(depth as usize, size)?;
        while let (Some(buf), 1..) = (pool.take(), pool.available()) {
            qp.recv.post(buf, 0)?;
        }
        Ok(Self { qp, cq, pool, pd })
    }

    /// Waits for the next completion: a message and its immediate value, or `None` for a request of the send queue, whose
    /// buffer goes back to its pool. The end of the connection is an error.
    pub(crate) fn next(
        &mut self,
        channel: &EventChannel,
    ) -> Result<Option<(Option<u32>, Buf)>, Error> {
        loop {
            match self.cq.poll()? {
                Some(Completion::Received(received)) => {
                    received.check()?;
                    return Ok(Some((received.imm(), received.into_buf())));
                }
                Some(Completion::Sent(sent)) => return sent.check().map(|()| None),
                Some(Completion::Bare(bare)) => return bare.check().map(|()| None),
                Some(_) => continue,
                None => {}
            }
            completion(&mut self.cq, channel)?;
        }
    }

    /// Ends the queue pair in order.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        self.qp.close(&mut self.cq, PATIENCE)
    }
}

/// Listens at an address of one device, and says so.
pub(crate) fn listen(addr: SocketAddr) -> Result<(CmId, EventChannel), Error> {
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel)?;
    listener.bind_addr(addr)?;
    listener.listen(0)?;
    println!("listening on {}", listener.local_addr().unwrap_or(addr));
    Ok((listener, channel))
}

/// Finds the way to `addr`: the id has its device then.
pub(crate) fn resolve(addr: SocketAddr) -> Result<(CmId, EventChannel), Error> {
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel)?;
    find(&id, &channel, addr)?;
    Ok((id, channel))
}

/// Finds the way from an id to `addr`.
pub(crate) fn find(id: &CmId, channel: &EventChannel, addr: SocketAddr) -> Result<(), Error> {
    id.resolve_addr(None, addr, PATIENCE)?;
    answer(channel)?;
    id.resolve_route(PATIENCE)?;
    answer(channel)?;
    Ok(())
}

/// The next event, or the error that it stands for.
pub(crate) fn answer(channel: &EventChannel) -> Result<EventKind, Error> {
    loop {
        if let Some(event) = channel.wait(None)? {
            return event.failure().map_or(Ok(event.kind), Err);
        }
    }
}

/// Waits until the connection stands, and gives what the server said.
pub(crate) fn established(channel: &EventChannel) -> Result<Answer, Error> {
    loop {
        if let EventKind::Established(answer) = answer(channel)? {
            return Ok(answer);
        }
    }
}

/// Where the server's memory is, which it tells by the private data of its accept.
pub(crate) fn memory_told(accepted: &Answer) -> RemoteMemory {
    let told = accepted.private_data().first_chunk();
    RemoteMemory::from_bytes(*told.expect("the server is of the same example"))
}

/// The next request. What else comes is about connections that have gone.
pub(crate) fn request(channel: &EventChannel) -> Result<ConnRequest, Error> {
    loop {
        let event = channel.wait(None)?;
        if let Some(EventKind::ConnectRequest(request)) = event.map(|event| event.kind) {
            return Ok(request);
        }
    }
}

/// Waits until the connection of `id` has ended, and no longer if it has already.
pub(crate) fn ended(channel: &EventChannel, id: &CmId) -> Result<(), Error> {
    loop {
        let event = channel.wait(None)?;
        if event.is_some_and(|event| event.token == id.token() && event.failure().is_some()) {
            return Ok(());
        }
    }
}

/// Waits until a completion can be polled. The end of the connection is an error.
pub(crate) fn completion(cq: &mut CompletionQueue, channel: &EventChannel) -> Result<(), Error> {
    while !cq.arm()? {
        if let Some(event) = channel.try_event()? {
            match event.failure() {
                Some(error) => return Err(error),
                None => continue,
            }
        }
        something(cq, channel);
    }
    Ok(())
}

/// Waits until an event or, on a queue that is armed, a completion comes. A signal ends the wait, too.
pub(crate) fn something(cq: &CompletionQueue, channel: &EventChannel) {
    let completions = cq.event_fd().expect("made with a channel");
    let mut fds =
        [channel.as_fd(), completions].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let _ = poll(&mut fds, None);
}

/// The number that starts `bytes`, such as private data, in network order.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

//! One side of the connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rdmacm::{
    Access, Buf, CmId, Completion, CompletionQueue, ConnParam, Event, EventChannel, EventKind,
    Exposed, ProtectionDomain, QueuePair, QueuePairInit, RemoteMemory,
};

use crate::{Args, Outcome, Test};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// For what was posted to come back.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// As many receives as perftest posts, unless there are fewer messages.
const RX_DEPTH: usize = 512;

/// A connected queue pair and what it moves. The fields are in the order in which they end.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) qp: QueuePair,
    pub(crate) send_cq: CompletionQueue,
    /// None on a side that receives nothing.
    pub(crate) recv_cq: Option<CompletionQueue>,
    /// A message, for whoever sends one at a time.
    pub(crate) buf: Option<Buf>,
    /// What the peer reads, or writes to.
    pub(crate) exposed: Exposed,
    /// The same of the peer.
    pub(crate) peer: RemoteMemory,
    pub(crate) pd: ProtectionDomain,
    id: CmId,
    channel: EventChannel,
}

/// What is there before the connection.
struct Parts {
    qp: QueuePair,
    send_cq: CompletionQueue,
    recv_cq: Option<CompletionQueue>,
    buf: Option<Buf>,
    exposed: Exposed,
}

impl Parts {
    /// Makes them in `pd`, with receives posted when this side needs some.
    fn new(
        args: &Args,
        is_server: bool,
        pd: &ProtectionDomain,
        create: impl FnOnce(&QueuePairInit) -> rdmacm::Result<QueuePair>,
    ) -> Outcome<Self> {
        let receives = match args.test {
            Test::SendLat => RX_DEPTH.min(args.iters),
            Test::SendBw if is_server => RX_DEPTH.min(args.iters),
            // The client says when it is done.
            test if test.is_the_clients() && is_server => 1,
            _ => 0,
        };
        let depth = u32::try_from(receives)?.max(1);
        // One more for the receive queue of a side that receives nothing.
        let send_cq = pd.context().create_cq(args.tx_depth + 1)?;
        let mut init = QueuePairInit::new(&send_cq.handle())
            .max_send_wr(args.tx_depth)
            .max_recv_wr(depth);
        let mut recv_cq = None;
        if receives > 0 {
            let cq = recv_cq.insert(pd.context().create_cq(depth)?);
            init = init.recv_cq(&cq.handle());
        }
        let mut qp = create(&init)?;
        if receives > 0 {
            let pool = pd.pool(receives, args.size)?;
            while let Some(buf) = pool.take() {
                qp.recv.post(buf, 0)?;
            }
        }
        Ok(Self {
            qp,
            send_cq,
            recv_cq,
            buf: pd.pool(1, args.size)?.take(),
            exposed: pd.expose(args.size, Access::all())?,
        })
    }

    /// Tells the peer where its memory is.
    fn param(&self) -> ConnParam<'static> {
        ConnParam::new().private_data(self.exposed.remote().to_bytes().to_vec())
    }

    fn connected(
        self,
        pd: ProtectionDomain,
        id: CmId,
        channel: EventChannel,
        peer: RemoteMemory,
    ) -> Side {
        Side {
            qp: self.qp,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            buf: self.buf,
            exposed: self.exposed,
            peer,
            pd,
            id,
            channel,
        }
    }
}

impl Side {
    /// The client's side.
    pub(crate) fn connect(args: &Args, to: SocketAddr) -> Outcome<Self> {
        let channel = EventChannel::new()?;
        let id = CmId::new(&channel)?;
        id.resolve_addr(None, to, PATIENCE)?;
        next(&channel)?;
        id.resolve_route(PATIENCE)?;
        next(&channel)?;
        let pd = id.context()?.alloc_pd()?;
        let parts = Parts::new(args, false, &pd, |init| id.create_qp(&pd, init))?;
        id.connect(parts.param())?;
        let EventKind::Established(accepted) = next(&channel)?.kind else {
            return Err("the server has not accepted".into());
        };
        let peer = memory(accepted.private_data())?;
        Ok(parts.connected(pd, id, channel, peer))
    }

    /// The server's side: waits for one client.
    pub(crate) fn accept(args: &Args) -> Outcome<Self> {
        let channel = EventChannel::new()?;
        let listener = CmId::new(&channel)?;
        listener.bind_addr(SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port)))?;
        listener.listen(1)?;
        let EventKind::ConnectRequest(request) = next(&channel)?.kind else {
            return Err("no request has come".into());
        };
        let pd = request.context()?.alloc_pd()?;
        let parts = Parts::new(args, true, &pd, |init| request.create_qp(&pd, init))?;
        let peer = memory(request.private_data())?;
        let id = request.accept_with(&parts.param())?;
        let EventKind::Established(_) = next(&channel)?.kind else {
            return Err("the connection was not established".into());
        };
        Ok(parts.connected(pd, id, channel, peer))
    }

    /// Polls until a message has come, and gives its buffer.
    #[inline]
    pub(crate) fn received(&mut self) -> Outcome<Buf> {
        let cq = self.recv_cq.as_mut().ok_or("this side receives nothing")?;
        loop {
            match cq.poll()? {
                Some(Completion::Received(received)) => {
                    received.check()?;
                    return Ok(received.into_buf());
                }
                None => {}
                Some(_) => return Err("a completion of something else".into()),
            }
        }
    }

    /// Tells the server, which has nothing to do, that the client is done.
    pub(crate) fn say_done(&mut self) -> Outcome {
        let mut message = self.buf.take().ok_or("the buffer is posted")?;
        message.set_len(0);
        self.qp.send.send(message, 0)?;
        drop(sent(&mut self.send_cq)?);
        Ok(())
    }

    /// Ends the connection.
    pub(crate) fn leave(self) -> Outcome {
        self.id.disconnect()?;
        self.end()
    }

    /// Waits until the peer ends it.
    pub(crate) fn wait_for_the_end(self) -> Outcome {
        while !matches!(next(&self.channel)?.kind, EventKind::Disconnected(..)) {}
        self.end()
    }

    /// Nothing is left on the send queue; the receives are.
    fn end(mut self) -> Outcome {
        let cq = self.recv_cq.as_mut().unwrap_or(&mut self.send_cq);
        Ok(self.qp.close(cq, CLOSE_PATIENCE)?)
    }
}

/// The next event, unless it says that something failed.
fn next(channel: &EventChannel) -> Outcome<Event> {
    let event = channel.wait(Some(PATIENCE))?;
    Ok(event.ok_or("the peer does nothing")?)
}

fn memory(told: &[u8]) -> Outcome<RemoteMemory> {
    let bytes = told
        .first_chunk()
        .ok_or("the peer has not told where its memory is")?;
    Ok(RemoteMemory::from_bytes(*bytes))
}

/// Polls until a request of the send queue has completed, and gives its buffer.
#[inline]
pub(crate) fn sent(cq: &mut CompletionQueue) -> Outcome<Buf> {
    loop {
        match cq.poll()? {
            Some(Completion::Sent(sent)) => {
                sent.check()?;
                return Ok(sent.into_buf());
            }
            None => {}
            Some(_) => return Err("a completion of something else".into()),
        }
    }
}

//! Connected queue pairs, made in the ordinary way and then put before the provider that does nothing.
#![expect(unsafe_code, reason = "replaces the provider")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use rdma_sys::ibv_qp;
use rdmacm::{
    CmId, CompletionQueue, ConnParam, Context, Event, EventChannel, EventKind, Pool,
    ProtectionDomain, QueuePair, QueuePairInit, SharedReceiveQueue,
};

use crate::c::{self, Work};

/// How many queue pairs share the completion queue.
pub(crate) const PAIRS: usize = 8;
/// How many requests a queue holds.
const DEPTH: u32 = 64;
/// How long a buffer is.
pub(crate) const BUFFER_SIZE: usize = 64;
/// How many buffers there are.
pub(crate) const BUFFERS: usize = 64;
/// How long a message is that is posted inline.
pub(crate) const INLINE_SIZE: usize = 32;

const PATIENCE: Duration = Duration::from_secs(10);

/// The clients' ends of as many connections as there are pairs, and one whose receives come from a shared queue.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) qps: [QueuePair; PAIRS],
    pub(crate) cq: CompletionQueue,
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) pool: Pool,
    raw_qps: [*mut ibv_qp; PAIRS],
    /// What has to live beside them.
    _sharing: QueuePair,
    _others: Connecting,
}

/// The ids of the clients, and the servers' ends.
#[derive(Debug)]
struct Connecting {
    ids: Vec<CmId>,
    accepted: Vec<(QueuePair, CompletionQueue, CmId)>,
    listener: CmId,
    server: EventChannel,
    client: EventChannel,
}

impl Connecting {
    fn new() -> Result<Self, Box<dyn Error>> {
        let server = EventChannel::new()?;
        let listener = CmId::new(&server)?;
        listener.bind_addr(SocketAddr::from(([10, 9, 0, 1], 0)))?;
        listener.listen(0)?;
        Ok(Self {
            ids: Vec::new(),
            accepted: Vec::new(),
            listener,
            server,
            client: EventChannel::new()?,
        })
    }

    fn context(&self) -> Result<Context, Box<dyn Error>> {
        Ok(self.listener.context()?)
    }

    /// Makes a connection, and gives the client's end of it.
    fn connect(
        &mut self,
        pd: &ProtectionDomain,
        init: &QueuePairInit,
    ) -> Result<QueuePair, Box<dyn Error>> {
        let to = self.listener.local_addr().ok_or("it has no address")?;
        let id = CmId::new(&self.client)?;
        id.resolve_addr(None, to, PATIENCE)?;
        next(&self.client)?;
        id.resolve_route(PATIENCE)?;
        next(&self.client)?;
        let qp = id.create_qp(pd, init)?;
        id.connect(ConnParam::new())?;
        let EventKind::ConnectRequest(request) = next(&self.server)?.kind else {
            return Err("no request came".into());
        };
        let their_cq = pd.context().create_cq(32)?;
        let their_qp = request.create_qp(pd, &QueuePairInit::new(&their_cq.handle()))?;
        self.accepted.push((their_qp, their_cq, request.accept()?));
        let EventKind::Established(_) = next(&self.client)?.kind else {
            return Err("the connection was not established".into());
        };
        next(&self.server)?;
        self.ids.push(id);
        Ok(qp)
    }
}

impl Ends {
    /// Connects the pairs with themselves over the stand-in's first device.
    ///
    /// `by_calls`: they are made so that batches are posted by calls.
    pub(crate) fn connect(by_calls: bool) -> Result<Self, Box<dyn Error>> {
        if by_calls {
            c::allow_calls()?;
        }
        let mut connecting = Connecting::new()?;
        let context = connecting.context()?;
        let pd = context.alloc_pd()?;
        let pairs = u32::try_from(PAIRS)?;
        let cq = context.create_cq(2 * DEPTH * (pairs + 1))?;
        let srq = pd.create_srq(DEPTH, 1)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH)
            .max_send_sge(2)
            .max_inline_data(u32::try_from(INLINE_SIZE)?);
        let mut qps = Vec::new();
        for _ in 0..PAIRS {
            qps.push(connecting.connect(&pd, &init)?);
        }
        let sharing = connecting.connect(&pd, &init.clone().srq(&srq))?;
        let raw_qps: Vec<_> = qps.iter().map(QueuePair::as_raw).collect();
        // SAFETY: the device is open, and this is the only thread that uses it.
        unsafe { c::replace_provider(context.as_raw(), raw_qps[0]) };
        if by_calls {
            // SAFETY: the pair was made for calls, as was just allowed, and this is the only thread that uses it.
            unsafe { c::replace_calls(raw_qps[0]) };
        }
        Ok(Self {
            qps: array(qps)?,
            cq,
            srq,
            pool: pd.pool(BUFFERS, BUFFER_SIZE)?,
            raw_qps: array(raw_qps)?,
            _sharing: sharing,
            _others: connecting,
        })
    }

    /// The same for a C loop.
    pub(crate) fn work(&self) -> Work {
        Work {
            qps: self.raw_qps,
            cq: self.cq.handle().as_raw(),
            srq: self.srq.as_raw(),
        }
    }
}

fn next(channel: &EventChannel) -> Result<Event, Box<dyn Error>> {
    Ok(channel.wait(Some(PATIENCE))?.ok_or("no event came")?)
}

fn array<T>(all: Vec<T>) -> Result<[T; PAIRS], Box<dyn Error>> {
    all.try_into().map_err(|_| "a pair is missing".into())
}

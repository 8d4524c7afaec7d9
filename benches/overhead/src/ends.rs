//! Connected queue pairs, made in the ordinary way, and what is behind them: the provider that does nothing, or a device.
#![expect(
    unsafe_code,
    reason = "replaces the provider, and calls the loops in C"
)]

use std::error::Error;
use std::ffi::c_long;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rdma_sys::ibv_qp;
use rdmacm::{
    CmId, CompletionQueue, ConnParam, Context, Event, EventChannel, EventKind, Pool,
    ProtectionDomain, QueuePair, QueuePairInit, SharedReceiveQueue,
};

use crate::c::{self, CLoop, Work};
use crate::device;
use crate::sizes::{BUFFER_SIZE, BUFFERS, INLINE_SIZE, PAIRS};

/// How many requests a queue holds.
const DEPTH: u32 = 64;

/// For an event to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// The address of the stand-in's first device.
const STANDIN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));

/// What is behind the pairs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Behind {
    /// The provider that does nothing, on the stand-in.
    Nothing {
        /// The pairs are made so that batches are posted by calls.
        by_calls: bool,
    },
    /// The provider of the device with this address. Each post to the first pair is a batch, and waits until it is done.
    Device(IpAddr),
}

/// The clients' ends of as many connections as there are pairs, and one whose receives come from a shared queue.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) qps: [QueuePair; PAIRS],
    pub(crate) cq: CompletionQueue,
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) pool: Pool,
    raw_qps: [*mut ibv_qp; PAIRS],
    lkey: u32,
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
    fn new(address: IpAddr) -> Result<Self, Box<dyn Error>> {
        let server = EventChannel::new()?;
        let listener = CmId::new(&server)?;
        listener.bind_addr(SocketAddr::new(address, 0))?;
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
        let their_cq = pd.context().create_cq(2 * DEPTH)?;
        let their_init = QueuePairInit::new(&their_cq.handle()).max_recv_wr(DEPTH);
        let their_qp = request.create_qp(pd, &their_init)?;
        self.accepted.push((their_qp, their_cq, request.accept()?));
        let EventKind::Established(_) = next(&self.client)?.kind else {
            return Err("the connection was not established".into());
        };
        next(&self.server)?;
        self.ids.push(id);
        Ok(qp)
    }
}

impl Behind {
    fn address(self) -> IpAddr {
        match self {
            Self::Nothing { .. } => STANDIN,
            Self::Device(address) => address,
        }
    }
}

impl Ends {
    /// Connects the pairs with themselves over a device.
    pub(crate) fn connect(behind: Behind) -> Result<Self, Box<dyn Error>> {
        if let Behind::Nothing { by_calls: true } = behind {
            c::allow_calls()?;
        }
        let mut connecting = Connecting::new(behind.address())?;
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
        let mut lkey = 0;
        match behind {
            Behind::Nothing { by_calls } => {
                // SAFETY: the device is open, and this is the only thread that uses it.
                unsafe { c::replace_provider(context.as_raw(), raw_qps[0]) };
                if by_calls {
                    // SAFETY: the pair was made for calls, as was just allowed, and this is the only thread that uses it.
                    unsafe { c::replace_calls(raw_qps[0]) };
                }
            }
            Behind::Device(_) => {
                lkey = c::register(&pd)?;
                let pool = pd.pool(BUFFERS, BUFFER_SIZE)?;
                device::start(connecting.accepted.swap_remove(0), &pool)?;
                // SAFETY: the pair is alive, and the loops post to no other.
                unsafe { c::wait_for_posts(raw_qps[0]) };
            }
        }
        Ok(Self {
            qps: array(qps)?,
            cq,
            srq,
            pool: pd.pool(BUFFERS, BUFFER_SIZE)?,
            raw_qps: array(raw_qps)?,
            lkey,
            _sharing: sharing,
            _others: connecting,
        })
    }

    /// Runs a C loop for `count` requests.
    pub(crate) fn run(&self, c_loop: CLoop, count: u64) -> Result<(), Box<dyn Error>> {
        let mut work = Work {
            qps: self.raw_qps,
            cq: self.cq.handle().as_raw(),
            srq: self.srq.as_raw(),
            lkey: self.lkey,
        };
        // SAFETY: the loops want live objects, which this value keeps. Those for a device want the key of their memory, which is
        // there then.
        let returned = unsafe { c_loop(&raw mut work, c_long::try_from(count)?) };
        if returned != 0 {
            return Err("a post or a completion failed".into());
        }
        Ok(())
    }
}

fn next(channel: &EventChannel) -> Result<Event, Box<dyn Error>> {
    Ok(channel.wait(Some(PATIENCE))?.ok_or("no event came")?)
}

fn array<T>(all: Vec<T>) -> Result<[T; PAIRS], Box<dyn Error>> {
    all.try_into().map_err(|_| "a pair is missing".into())
}

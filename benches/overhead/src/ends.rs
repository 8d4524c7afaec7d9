//! Connected queue pairs, made in the ordinary way and then put before the provider that does nothing.
#![expect(unsafe_code, reason = "replaces the provider")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use rdma_sys::{ibv_qp, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use rdmacm::{
    CmId, CompletionQueue, Event, EventChannel, EventKind, Pool, QueuePair, QueuePairInit,
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

const PATIENCE: Duration = Duration::from_secs(10);

/// The clients' ends of as many connections as there are pairs.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) qps: [QueuePair; PAIRS],
    pub(crate) cq: CompletionQueue,
    pub(crate) pool: Pool,
    raw_qps: [*mut ibv_qp; PAIRS],
    raw_srq: *mut ibv_srq,
    /// What has to live beside them.
    _others: Others,
}

/// The ids of the clients, and the servers' ends.
#[derive(Debug)]
struct Others {
    _ids: Vec<CmId>,
    _accepted: Vec<(QueuePair, CompletionQueue, CmId)>,
    _listener: CmId,
    _channels: [EventChannel; 2],
}

impl Ends {
    /// Connects the pairs with themselves over the stand-in's first device.
    pub(crate) fn connect() -> Result<Self, Box<dyn Error>> {
        let server = EventChannel::new()?;
        let listener = CmId::new(&server)?;
        listener.bind_addr(SocketAddr::from(([10, 9, 0, 1], 0)))?;
        listener.listen(0)?;
        let to = listener.local_addr().ok_or("the listener has no address")?;
        let context = listener.context()?;

        let client = EventChannel::new()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(2 * DEPTH * u32::try_from(PAIRS)?)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH);
        let pool = pd.pool(BUFFERS, BUFFER_SIZE)?;
        let (mut ids, mut qps, mut raw_qps, mut accepted) = (vec![], vec![], vec![], vec![]);
        for _ in 0..PAIRS {
            let id = CmId::new(&client)?;
            id.resolve_addr(None, to, PATIENCE)?;
            next(&client)?;
            id.resolve_route(PATIENCE)?;
            next(&client)?;
            qps.push(id.create_qp(&pd, &init)?);
            // SAFETY: the id is alive, and has a queue pair, which stays as long as the half pushed above.
            raw_qps.push(unsafe { (*id.as_raw()).qp });
            id.connect(rdmacm::ConnParam::new())?;
            let EventKind::ConnectRequest(request) = next(&server)?.kind else {
                return Err("no request came".into());
            };
            let their_cq = context.create_cq(32)?;
            let their_qp = request.create_qp(&pd, &QueuePairInit::new(&their_cq.handle()))?;
            accepted.push((their_qp, their_cq, request.accept()?));
            let EventKind::Established(_) = next(&client)?.kind else {
                return Err("the connection was not established".into());
            };
            next(&server)?;
            ids.push(id);
        }
        let mut attr = ibv_srq_init_attr {
            attr: ibv_srq_attr {
                max_wr: DEPTH,
                max_sge: 1,
                srq_limit: 0,
            },
            ..ibv_srq_init_attr::default()
        };
        // SAFETY: `ibv_create_srq` wants a domain, which `pd` is, and the attributes.
        let raw_srq = unsafe { rdma_sys::ibv_create_srq(pd.as_raw(), &raw mut attr) };
        if raw_srq.is_null() {
            return Err("there is no shared receive queue".into());
        }
        // SAFETY: the device is open, and this is the only thread that uses it.
        unsafe { c::replace_provider(context.as_raw(), raw_qps[0]) };
        Ok(Self {
            qps: array(qps)?,
            cq,
            pool,
            raw_qps: array(raw_qps)?,
            raw_srq,
            _others: Others {
                _ids: ids,
                _accepted: accepted,
                _listener: listener,
                _channels: [server, client],
            },
        })
    }

    /// The same for a C loop.
    pub(crate) fn work(&self) -> Work {
        Work {
            qps: self.raw_qps,
            cq: self.cq.handle().as_raw(),
            srq: self.raw_srq,
        }
    }
}

fn next(channel: &EventChannel) -> Result<Event, Box<dyn Error>> {
    Ok(channel.wait(Some(PATIENCE))?.ok_or("no event came")?)
}

fn array<T>(all: Vec<T>) -> Result<[T; PAIRS], Box<dyn Error>> {
    all.try_into().map_err(|_| "a pair is missing".into())
}

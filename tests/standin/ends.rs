//! The two ends of a connection, made step by step with the crate.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::{
    CmId, CompletionQueue, ConnRequest, ConnectParam, Context, Event, EventChannel, EventKind,
    ProtectionDomain, QueuePair, QueuePairInit,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// The address of the first device.
pub(crate) fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, 1], port))
}

/// The next event of a channel.
pub(crate) fn next_event(channel: &EventChannel) -> Event {
    channel.wait(Some(PATIENCE)).unwrap().expect("an event")
}

/// A domain, a completion queue and what makes a queue pair complete to it.
pub(crate) fn small_qp(
    context: &Context,
    create: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> rdmacm::Result<QueuePair>,
) -> rdmacm::Result<(ProtectionDomain, CompletionQueue, QueuePair)> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(8)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(4)
        .max_recv_wr(4);
    let qp = create(&pd, &init)?;
    Ok((pd, cq, qp))
}

/// A listening end.
pub(crate) struct Server {
    pub(crate) id: CmId,
    pub(crate) channel: EventChannel,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::at(addr(0))
    }

    pub(crate) fn at(local: SocketAddr) -> Self {
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        id.bind_addr(local).unwrap();
        id.listen(0).unwrap();
        Self { id, channel }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.id.local_addr().unwrap()
    }

    /// The next event, which must be a request.
    pub(crate) fn request(&self) -> ConnRequest {
        match next_event(&self.channel).kind {
            EventKind::ConnectRequest(request) => request,
            other => panic!("not a request: {other:?}"),
        }
    }

    /// Accepts the next event, which must be a request, with what it needs.
    pub(crate) fn accept(&self) -> ((ProtectionDomain, CompletionQueue, QueuePair), CmId) {
        let request = self.request();
        let context = request.context().unwrap();
        let made = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
        (made, request.accept().unwrap())
    }
}

/// A connecting end. The queue pair goes first, the id before the channel.
pub(crate) struct Client {
    pub(crate) qp: Option<QueuePair>,
    pub(crate) cq: Option<CompletionQueue>,
    pub(crate) id: CmId,
    pub(crate) channel: EventChannel,
}

impl Client {
    pub(crate) fn new() -> Self {
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        Self {
            qp: None,
            cq: None,
            id,
            channel,
        }
    }

    /// An end that knows its route to `to`.
    pub(crate) fn resolved(to: SocketAddr) -> Self {
        let client = Self::new();
        client.id.resolve_addr(None, to, PATIENCE).unwrap();
        assert!(matches!(client.event().kind, EventKind::AddrResolved));
        client.id.resolve_route(PATIENCE).unwrap();
        assert!(matches!(client.event().kind, EventKind::RouteResolved));
        client
    }

    /// The same with a queue pair.
    pub(crate) fn ready(to: SocketAddr) -> Self {
        let mut client = Self::resolved(to);
        let context = client.id.context().unwrap();
        let (_, cq, qp) = small_qp(&context, |pd, init| client.id.create_qp(pd, init)).unwrap();
        client.qp = Some(qp);
        client.cq = Some(cq);
        client
    }

    /// An end that has asked for a connection.
    pub(crate) fn asking<'a>(to: SocketAddr, param: impl Into<ConnectParam<'a>>) -> Self {
        let client = Self::ready(to);
        client.id.connect(param).unwrap();
        client
    }

    pub(crate) fn event(&self) -> Event {
        next_event(&self.channel)
    }
}

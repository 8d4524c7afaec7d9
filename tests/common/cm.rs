//! Both ends of a connection, step by step, for tests that look at the steps.

use std::net::SocketAddr;
use std::time::Duration;

use rdmacm::{
    Answer, CmId, Completion, CompletionQueue, ConnParam, ConnRequest, Context, Error, ErrorKind,
    Event, EventChannel, EventKind, Pool, ProtectionDomain, QueuePair, QueuePairInit, Rejection,
    Result, Status,
};

use super::any_port;

/// How long an event may take that must come.
const SOON: Duration = Duration::from_secs(12);
/// How long nothing must come where nothing may.
pub(crate) const QUIET: Duration = Duration::from_millis(700);
/// Requests in each queue of an end's queue pair.
pub(crate) const DEPTH: u32 = 4;
/// Bytes in each buffer.
pub(crate) const SIZE: usize = 256;
/// What each resolution is given.
pub(crate) const RESOLVE: Duration = Duration::from_secs(3);

/// The next event of a channel, which must come.
pub(crate) fn event(channel: &EventChannel) -> Event {
    let event = channel.wait(Some(SOON)).expect("reading an event");
    event.unwrap_or_else(|| panic!("no event within {SOON:?}"))
}

/// Fails if a channel has an event, now or soon.
pub(crate) fn quiet(channel: &EventChannel) {
    let event = channel.wait(Some(QUIET)).expect("reading an event");
    assert!(event.is_none(), "there should be no event: {event:?}");
}

pub(crate) fn established(channel: &EventChannel) -> Answer {
    match event(channel).kind {
        EventKind::Established(answer) => answer,
        other => panic!("not ESTABLISHED: {other:?}"),
    }
}

pub(crate) fn disconnected(channel: &EventChannel) {
    match event(channel).kind {
        EventKind::Disconnected(status) => assert_eq!(status.as_raw(), 0),
        other => panic!("not DISCONNECTED: {other:?}"),
    }
}

pub(crate) fn rejected(channel: &EventChannel) -> Rejection {
    match event(channel).kind {
        EventKind::Rejected(rejection) => rejection,
        other => panic!("not REJECTED: {other:?}"),
    }
}

/// Checks an error about a value above its limit: kind, field, value and limit.
pub(crate) fn assert_too_large(error: &Error, op: &str, field: &str, value: u64, limit: u64) {
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(error.op(), op, "{error}");
    assert_eq!(error.raw_os_error(), None, "no call was made: {error}");
    let wanted = format!("{field} is {value}, the limit is {limit};");
    assert!(
        error.to_string().contains(&wanted),
        "{error}: not {wanted:?}"
    );
}

/// Checks an error about a call in the wrong phase: kind, call and what was found.
pub(crate) fn assert_state(error: &Error, op: &str, found: &str) {
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    assert_eq!(error.op(), op, "{error}");
    assert_eq!(error.raw_os_error(), None, "no call was made: {error}");
    assert!(error.to_string().contains(found), "{error}: not {found:?}");
}

/// A listening id with a channel of its own.
pub(crate) struct Listening {
    pub(crate) id: CmId,
    pub(crate) channel: EventChannel,
}

impl Listening {
    /// On the first device, with a port of the kernel's choice.
    pub(crate) fn new() -> Self {
        Self::at(any_port(), 0)
    }

    pub(crate) fn at(addr: SocketAddr, backlog: u32) -> Self {
        let channel = EventChannel::new().expect("a channel");
        let id = CmId::new(&channel).expect("an id");
        id.bind_addr(addr).expect("bind");
        id.listen(backlog).expect("listen");
        Self { id, channel }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.id.local_addr().expect("a bound id has an address")
    }

    /// The next request, which must come.
    pub(crate) fn request(&self) -> ConnRequest {
        request(&self.channel)
    }
}

/// The next event, which must be a request.
pub(crate) fn request(channel: &EventChannel) -> ConnRequest {
    match event(channel).kind {
        EventKind::ConnectRequest(request) => request,
        other => panic!("not CONNECT_REQUEST: {other:?}"),
    }
}

/// A client's id with its route to `peer` resolved.
pub(crate) fn routed(peer: SocketAddr) -> (CmId, EventChannel) {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new(&channel).expect("an id");
    route(&id, &channel, None, peer);
    (id, channel)
}

/// Resolves address and route.
pub(crate) fn route(
    id: &CmId,
    channel: &EventChannel,
    local: Option<SocketAddr>,
    peer: SocketAddr,
) {
    id.resolve_addr(local, peer, RESOLVE).expect("resolve_addr");
    let resolved = event(channel);
    assert!(
        matches!(resolved.kind, EventKind::AddrResolved),
        "{resolved:?}"
    );
    assert_eq!(resolved.token, id.token());
    id.resolve_route(RESOLVE).expect("resolve_route");
    let resolved = event(channel);
    assert!(
        matches!(resolved.kind, EventKind::RouteResolved),
        "{resolved:?}"
    );
}

/// What an end needs beside its id. The order is the order of dropping.
pub(crate) struct Parts {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pool: Pool,
    pub(crate) pd: ProtectionDomain,
}

/// A completion, copied out of its queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Sent(Status, u64),
    Received(Status, u64, Vec<u8>),
    Foreign(Status),
}

impl Parts {
    pub(crate) fn try_new(
        context: &Context,
        create_qp: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> Result<QueuePair>,
    ) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq_with_channel(DEPTH * 2)?;
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH);
        let qp = create_qp(&pd, &init)?;
        let pool = pd.pool(DEPTH as usize * 3, SIZE)?;
        Ok(Self { qp, cq, pool, pd })
    }

    pub(crate) fn of_id(id: &CmId) -> Self {
        let context = id.context().expect("a device");
        Self::try_new(&context, |pd, init| id.create_qp(pd, init)).expect("an end's parts")
    }

    pub(crate) fn of_request(request: &ConnRequest) -> Self {
        Self::try_of_request(request).expect("an end's parts")
    }

    pub(crate) fn try_of_request(request: &ConnRequest) -> Result<Self> {
        Self::try_new(&request.context()?, |pd, init| request.create_qp(pd, init))
    }

    pub(crate) fn post_recv(&mut self, user: u64) {
        let buf = self.pool.take().expect("a free buffer");
        self.qp.recv.post(buf, user).expect("post_recv");
    }

    pub(crate) fn send(&mut self, data: &[u8], user: u64) {
        let mut buf = self.pool.take().expect("a free buffer");
        buf.fill_from(data);
        self.qp.send.send(buf, user).expect("post_send");
    }

    /// The next completion, which must come.
    pub(crate) fn completion(&mut self) -> Done {
        let ready = self.cq.wait(Some(SOON)).expect("waiting");
        assert!(ready, "no completion within {SOON:?}");
        let completion = self.cq.poll().expect("polling").expect("was promised");
        copy_of(completion)
    }

    /// Fails if a completion comes.
    pub(crate) fn no_completion(&mut self) {
        let ready = self.cq.wait(Some(QUIET)).expect("waiting");
        assert!(
            !ready,
            "there should be no completion: {:?}",
            self.cq.poll()
        );
    }
}

fn copy_of(completion: Completion<'_>) -> Done {
    let status = completion.status();
    match completion {
        Completion::Sent(sent) => Done::Sent(status, sent.user()),
        Completion::Received(received) => {
            let user = received.user();
            Done::Received(status, user, received.into_buf().to_vec())
        }
        Completion::Foreign(_) => Done::Foreign(status),
        other => panic!("a completion that this test does not know: {other:?}"),
    }
}

/// One end of a connection. The order is the order of dropping.
pub(crate) struct End {
    pub(crate) parts: Parts,
    pub(crate) id: CmId,
    pub(crate) channel: EventChannel,
}

impl End {
    /// A client with its queue pair, ready to connect to `peer`.
    pub(crate) fn client(peer: SocketAddr) -> Self {
        let (id, channel) = routed(peer);
        let parts = Parts::of_id(&id);
        Self { parts, id, channel }
    }

    /// A client that has asked for a connection and has read nothing since.
    pub(crate) fn connecting(peer: SocketAddr) -> Self {
        let client = Self::client(peer);
        client.id.connect(ConnParam::new()).expect("connect");
        client
    }

    /// Accepts a request, on a channel of its own.
    pub(crate) fn accept(request: ConnRequest, param: &ConnParam<'_>) -> Self {
        let parts = Parts::of_request(&request);
        let channel = EventChannel::new().expect("a channel");
        request.migrate(&channel).expect("migrate");
        let id = request.accept_with(param).expect("accept");
        Self { parts, id, channel }
    }
}

/// Two ends of a connection that stands, the client's first, each with a channel of its own.
pub(crate) fn pair(listening: &Listening) -> (End, End) {
    let client = End::connecting(listening.addr());
    let server = End::accept(listening.request(), &ConnParam::new());
    established(&client.channel);
    established(&server.channel);
    (client, server)
}

/// Sends a message from one end to the other, and checks that it came.
pub(crate) fn message(from: &mut End, to: &mut End, text: &[u8]) {
    to.parts.post_recv(1);
    from.parts.send(text, 2);
    assert_eq!(
        to.parts.completion(),
        Done::Received(Status::SUCCESS, 1, text.to_vec())
    );
    assert_eq!(from.parts.completion(), Done::Sent(Status::SUCCESS, 2));
}

/// Waits until it is known here that clients which gave up before have gone: another one does so, and the kernel handles
/// their last messages one after the other.
pub(crate) fn until_clients_are_gone(listening: &Listening) {
    let last = End::connecting(listening.addr());
    let request = listening.request();
    drop(last);
    super::eventually("a client that gave up is known to be gone", || {
        Parts::try_of_request(&request).is_err_and(|error| error.kind() == ErrorKind::PeerGone)
    });
}

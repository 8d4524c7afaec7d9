//! Connected queue pairs of any size on one device, and what their completion queues report.

use std::cell::RefCell;

use rdmacm::{
    Access, Buf, CmId, Completion, CompletionQueue, ConnParam, Context, ErrorKind, EventKind,
    Exposed, Pool, ProtectionDomain, QueuePair, QueuePairInit, Refused, Status, Work,
};

use super::Standin;
use super::ends::{Client, Server, next_event};
use super::provider::{Side, at};

/// Where connections are made: both ends are in one domain.
pub(crate) struct Fabric {
    links: RefCell<Vec<(CmId, Client)>>,
    peers: RefCell<Vec<Peer>>,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
    server: Server,
}

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Sent(u64, Status),
    Received(u64, Status),
    /// With how many buffers.
    Pieces(u64, Status, usize),
    Bare(u64, Status),
    /// With its `wr_id`.
    Foreign(u64),
}

/// A request that was carried out.
pub(crate) fn sent(user: u64) -> Seen {
    Seen::Sent(user, Status::SUCCESS)
}

/// A send that was flushed.
pub(crate) fn flushed(user: u64) -> Seen {
    Seen::Sent(user, Status::FLUSHED)
}

/// A receive that was carried out.
pub(crate) fn received(user: u64) -> Seen {
    Seen::Received(user, Status::SUCCESS)
}

/// A request without a buffer that was carried out.
pub(crate) fn bare(user: u64) -> Seen {
    Seen::Bare(user, Status::SUCCESS)
}

impl Seen {
    pub(crate) fn of(completion: &Completion<'_>) -> Self {
        match completion {
            Completion::Sent(sent) => Self::Sent(sent.user(), sent.status()),
            Completion::Received(received) => Self::Received(received.user(), received.status()),
            Completion::Pieces(pieces) => {
                Self::Pieces(pieces.user(), pieces.status(), pieces.len())
            }
            Completion::Bare(bare) => Self::Bare(bare.user(), bare.status()),
            Completion::Foreign(foreign) => Self::Foreign(foreign.wr_id()),
            other => panic!("a completion of a new kind: {other:?}"),
        }
    }
}

/// The next completion, which is dropped.
pub(crate) fn next(cq: &mut CompletionQueue) -> Option<Seen> {
    cq.poll().unwrap().map(|completion| Seen::of(&completion))
}

/// Everything that is complete, which is dropped.
pub(crate) fn drain(cq: &mut CompletionQueue) -> Vec<Seen> {
    std::iter::from_fn(|| next(cq)).collect()
}

/// The buffer of the next completion, which must have one, and its number.
pub(crate) fn next_buf(cq: &mut CompletionQueue) -> (u64, Buf) {
    match cq.poll().unwrap() {
        Some(Completion::Sent(sent)) => (sent.user(), sent.into_buf()),
        Some(Completion::Received(received)) => (received.user(), received.into_buf()),
        other => panic!("no completion with a buffer: {other:?}"),
    }
}

impl Fabric {
    pub(crate) fn new() -> Self {
        let server = Server::start();
        let context = Client::resolved(server.addr()).id.context().unwrap();
        Self {
            links: RefCell::default(),
            peers: RefCell::default(),
            pd: context.alloc_pd().unwrap(),
            context,
            server,
        }
    }

    pub(crate) fn cq(&self, cqe: u32) -> CompletionQueue {
        self.context.create_cq(cqe).unwrap()
    }

    /// Two queue pairs, each of which is connected to the other.
    pub(crate) fn link(&self, near: &QueuePairInit, far: &QueuePairInit) -> (QueuePair, QueuePair) {
        self.try_link(near, far).unwrap()
    }

    /// The same, if the first can be made.
    pub(crate) fn try_link(
        &self,
        near: &QueuePairInit,
        far: &QueuePairInit,
    ) -> rdmacm::Result<(QueuePair, QueuePair)> {
        let client = Client::resolved(self.server.addr());
        let near = client.id.create_qp(&self.pd, near)?;
        client.id.connect(ConnParam::new()).unwrap();
        // What is said about older connections is of no interest.
        let request = loop {
            if let EventKind::ConnectRequest(request) = next_event(&self.server.channel).kind {
                break request;
            }
        };
        let far = request.create_qp(&self.pd, far).unwrap();
        let accepted = request.accept().unwrap();
        assert!(matches!(client.event().kind, EventKind::Established(_)));
        self.links.borrow_mut().push((accepted, client));
        Ok((near, far))
    }

    /// A queue pair made by `near`, connected to one that nobody polls: to write to [`target`](Self::target).
    pub(crate) fn one_way(&self, near: &QueuePairInit) -> (QueuePair, Peer) {
        self.try_one_way(near).unwrap()
    }

    /// The same, if it can be made.
    pub(crate) fn try_one_way(&self, near: &QueuePairInit) -> rdmacm::Result<(QueuePair, Peer)> {
        let cq = self.cq(2);
        let init = QueuePairInit::new(&cq.handle());
        let (near, far) = self.try_link(near, &init.max_send_wr(1).max_recv_wr(1))?;
        Ok((near, Peer { _qp: far, _cq: cq }))
    }

    /// Lets a far end live as long as this.
    pub(crate) fn keep(&self, peer: Peer) {
        self.peers.borrow_mut().push(peer);
    }

    /// A queue pair that is connected to nobody.
    pub(crate) fn unconnected(&self, init: &QueuePairInit) -> rdmacm::Result<QueuePair> {
        let client = Client::resolved(self.server.addr());
        client.id.create_qp(&self.pd, init)
    }

    /// Memory at the peers' that is open to everything.
    pub(crate) fn target(&self, len: usize) -> Exposed {
        let access = Access::WRITE | Access::READ | Access::ATOMIC;
        self.pd.expose(len, access).unwrap()
    }
}

/// The far end of a connection that is used from one side.
pub(crate) struct Peer {
    _qp: QueuePair,
    _cq: CompletionQueue,
}

/// How long the buffers of an [`End`] are.
pub(crate) const SIZE: usize = 16;

/// A queue pair under test, which writes to `target`.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pool: Pool,
    pub(crate) target: Exposed,
    peer: Peer,
    pub(crate) fabric: Fabric,
    /// How many buffers there are.
    all: usize,
}

impl End {
    /// With queues of `depth`, for requests of up to three buffers or 32 bytes inline.
    pub(crate) fn deep(depth: u32) -> Self {
        let fabric = Fabric::new();
        let cq = fabric.cq(4 * depth);
        let init = init(&cq, depth);
        let (qp, peer) = fabric.one_way(&init);
        let all = 2 * depth as usize + 4;
        Self {
            qp,
            cq,
            pool: fabric.pd.pool(all, SIZE).unwrap(),
            target: fabric.target(4 * SIZE),
            peer,
            fabric,
            all,
        }
    }

    pub(crate) fn raw(&self) -> usize {
        at(self.qp.as_raw())
    }

    pub(crate) fn work(&self) -> Work {
        Work::write(self.target.remote())
    }

    /// A buffer with `value` in it.
    pub(crate) fn buf(&self, value: u8) -> Buf {
        let mut buf = self.pool.take().unwrap();
        buf.fill(value);
        buf
    }

    pub(crate) fn post(&mut self, user: u64) -> Result<(), Refused> {
        let buf = self.pool.take().unwrap();
        self.qp.send.post(self.work(), buf, user)
    }

    pub(crate) fn post_unsignaled(&mut self, user: u64) {
        let buf = self.pool.take().unwrap();
        self.qp
            .send
            .post(self.work().unsignaled(), buf, user)
            .unwrap();
    }

    pub(crate) fn receive(&mut self, user: u64) {
        let buf = self.pool.take().unwrap();
        self.qp.recv.post(buf, user).unwrap();
    }

    /// Posts until the queue is full, with numbers from `first` on; gives how many were posted.
    pub(crate) fn fill(&mut self, first: u64) -> u64 {
        for user in first.. {
            if let Err(refused) = self.post(user) {
                assert_eq!(refused.error().kind(), ErrorKind::QueueFull, "{refused}");
                assert!(refused.into_buf().is_some());
                return user - first;
            }
        }
        unreachable!("a queue without an end")
    }

    /// The numbers of the sends that are held.
    pub(crate) fn held(&self, standin: &Standin) -> Vec<u64> {
        standin.held(self.raw(), Side::Send)
    }

    /// Ends the queue pair; then every buffer is back, and nothing is left.
    pub(crate) fn end(self, standin: &Standin) {
        let Self {
            qp,
            mut cq,
            pool,
            all,
            ..
        } = self;
        drop(qp);
        assert_eq!(drain(&mut cq), []);
        assert_eq!(pool.available(), all);
        drop((cq, pool, self.peer, self.target, self.fabric));
        standin.nothing_left();
    }
}

/// A queue pair of `depth`, for requests of up to three buffers or 32 bytes inline.
pub(crate) fn init(cq: &CompletionQueue, depth: u32) -> QueuePairInit {
    QueuePairInit::new(&cq.handle())
        .max_send_wr(depth)
        .max_recv_wr(depth)
        .max_send_sge(3)
        .max_recv_sge(3)
        .max_inline_data(32)
}

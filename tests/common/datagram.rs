//! Datagram queue pairs, for tests that send from one to another.

use std::net::IpAddr;
use std::thread;
use std::time::Instant;

use rdmacm::{
    AddressVector, Buf, CmId, Completion, CompletionQueue, Context, Datagram, DatagramInit,
    DatagramPair, EventChannel, EventKind, Gid, GidType, JoinState, Membership, Peer, Pool,
    ProtectionDomain, QueuePairInit,
};

use super::cm::{QUIET, event};
use super::{PATIENCE, any_port};

/// The first device.
pub(crate) fn context() -> Context {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    id.bind_addr(any_port()).expect("bind");
    id.context().expect("a device")
}

/// The index of the device's own IPv4 address.
pub(crate) fn own_index(context: &Context) -> u8 {
    let own = Gid::from(any_port().ip());
    let gids = context.gids(1).expect("addresses");
    let entry = gids
        .iter()
        .find(|entry| entry.gid() == own && entry.gid_type() == GidType::RoceV2)
        .expect("its own address");
    entry.index().try_into().expect("a small index")
}

/// A datagram queue pair with what belongs to it. The order is the order of dropping.
pub(crate) struct End {
    pub(crate) pair: DatagramPair,
    pub(crate) cq: CompletionQueue,
    pub(crate) pool: Pool,
    pub(crate) pd: ProtectionDomain,
}

pub(crate) const DEPTH: u32 = 8;
pub(crate) const SIZE: usize = 4200;

impl End {
    pub(crate) fn new(
        context: &Context,
        make: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> rdmacm::Result<DatagramPair>,
    ) -> Self {
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(2 * DEPTH).expect("a queue");
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH)
            .max_send_sge(2)
            .max_inline_data(64);
        let pair = make(&pd, &init).expect("a queue pair");
        let pool = pd.pool(2 * DEPTH as usize, SIZE).expect("a pool");
        let mut end = Self { pair, cq, pool, pd };
        for user in 0..DEPTH.into() {
            let buf = end.pool.take().expect("a buffer");
            end.pair.recv.post(buf, user).expect("a receive");
        }
        end
    }

    /// By hand, with a key of its own.
    pub(crate) fn by_hand(context: &Context, qkey: u32) -> Self {
        Self::new(context, |pd, init| {
            pd.create_datagram_qp(init, DatagramInit::new(1, qkey))
        })
    }

    pub(crate) fn buf(&self, content: &[u8]) -> Buf {
        let mut buf = self.pool.take().expect("a buffer");
        buf.fill_from(content);
        buf
    }

    /// The way to `other`, on the same device.
    pub(crate) fn peer_to(&mut self, other: &Self, qkey: u32) -> Peer {
        let index = own_index(self.pd.context());
        let address = AddressVector::global(1, any_port().ip().into(), index);
        let ah = self.pd.create_ah(&address).expect("create_ah");
        let qp_num = other.pair.qp_num();
        self.pair.send.add_peer(&ah, qp_num, qkey).expect("a peer")
    }

    /// What `look` says of the next message, whose buffer is posted again.
    pub(crate) fn message<T>(&mut self, look: impl FnOnce(&Datagram<'_>) -> T) -> T {
        let start = Instant::now();
        let mut look = Some(look);
        loop {
            assert!(start.elapsed() < PATIENCE, "no message");
            match self.cq.poll().expect("poll") {
                Some(Completion::Datagram(message)) => {
                    message.check().expect("a message");
                    assert_eq!(message.qp_num(), self.pair.qp_num());
                    let seen = look.take().expect("one message")(&message);
                    let user = message.user();
                    let buf = message.into_buf().into_buf();
                    self.pair.recv.post(buf, user).expect("a receive");
                    return seen;
                }
                Some(done) => assert!(done.status().is_success(), "{done:?}"),
                None => thread::yield_now(),
            }
        }
    }

    /// The next message's bytes.
    pub(crate) fn payload(&mut self) -> Vec<u8> {
        self.message(|message| message.payload().to_vec())
    }

    /// That no message comes.
    pub(crate) fn silent(&mut self) {
        let start = Instant::now();
        while start.elapsed() < QUIET {
            match self.cq.poll().expect("poll") {
                Some(Completion::Datagram(message)) => panic!("a message: {message:?}"),
                Some(done) => assert!(done.status().is_success(), "{done:?}"),
                None => thread::yield_now(),
            }
        }
    }

    /// Waits until every send has completed.
    pub(crate) fn flush(&mut self) {
        let start = Instant::now();
        while !self.pair.send.is_idle() {
            assert!(start.elapsed() < PATIENCE, "a send has not completed");
            drop(self.cq.poll().expect("poll"));
        }
    }

    pub(crate) fn close(mut self) {
        self.pair.close(&mut self.cq, PATIENCE).expect("close");
        assert_eq!(self.pool.available(), 2 * DEPTH as usize);
    }
}

/// A group of this test's own.
pub(crate) fn group(last: u8) -> IpAddr {
    IpAddr::from([239, 9, 7, last])
}

/// A datagram id that is bound to the device, and its queue pair.
pub(crate) fn member() -> (End, CmId, EventChannel) {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new_datagram(&channel).expect("an id");
    id.bind_addr(any_port()).expect("bind");
    let context = id.context().expect("a device");
    let end = End::new(&context, |pd, init| id.create_datagram_qp(pd, init));
    (end, id, channel)
}

/// Joins, and gives what sends to the group.
pub(crate) fn join(
    end: &mut End,
    id: &CmId,
    channel: &EventChannel,
    group: IpAddr,
    state: JoinState,
) -> (Membership, Peer) {
    let membership = id.join_multicast(group, state).expect("join");
    let EventKind::MulticastJoined { destination, .. } = event(channel).kind else {
        panic!("not joined");
    };
    let ah = end.pd.create_ah(&destination.address()).expect("create_ah");
    let to = end
        .pair
        .send
        .add_peer(&ah, destination.qp_num(), destination.qkey())
        .expect("a peer");
    (membership, to)
}

//! Datagram queue pairs: which calls come before which, and what lives until when.

mod standin;

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{
    AddressVector, CmId, CompletionQueue, Context, DatagramInit, DatagramPair, ErrorKind,
    EventChannel, EventKind, JoinState, Membership, Peer, Pool, ProtectionDomain, QueuePairInit,
};
use standin::provider::{Hold, Side, at};
use standin::{Standin, addr, is_child_of, next_event};

const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 3));
const PATIENCE: Duration = Duration::from_secs(5);

/// A datagram id that is bound to the first device.
fn bound(channel: &EventChannel) -> CmId {
    let id = CmId::new_datagram(channel).unwrap();
    id.bind_addr(addr(0)).unwrap();
    id
}

/// A queue pair with what belongs to it. The order is the order of dropping.
struct End {
    pair: DatagramPair,
    cq: CompletionQueue,
    pool: Pool,
    pd: ProtectionDomain,
}

impl End {
    fn new(
        context: &Context,
        make: impl FnOnce(&ProtectionDomain, &QueuePairInit) -> rdmacm::Result<DatagramPair>,
    ) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(8).unwrap();
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(4)
            .max_recv_wr(4);
        let pair = make(&pd, &init).unwrap();
        let pool = pd.pool(8, 256).unwrap();
        Self { pair, cq, pool, pd }
    }

    fn of_id(id: &CmId) -> Self {
        Self::new(&id.context().unwrap(), |pd, init| {
            id.create_datagram_qp(pd, init)
        })
    }

    fn by_hand(context: &Context) -> Self {
        Self::new(context, |pd, init| {
            pd.create_datagram_qp(init, DatagramInit::new(1, 5))
        })
    }

    /// The way to the pair itself.
    fn peer(&mut self) -> Peer {
        let address = AddressVector::global(1, addr(0).ip().into(), 0);
        let ah = self.pd.create_ah(&address).unwrap();
        self.pair.send.add_peer(&ah, self.pair.qp_num(), 5).unwrap()
    }

    fn send(&mut self, to: Peer) {
        let mut buf = self.pool.take().unwrap();
        buf.fill_from(b"message");
        self.pair.send.send(to, buf, 0).unwrap();
    }

    /// Polls until nothing is posted to be sent.
    fn flush(&mut self) {
        while !self.pair.send.is_idle() {
            drop(self.cq.poll().unwrap());
        }
    }
}

fn context() -> Context {
    let channel = EventChannel::new().unwrap();
    bound(&channel).context().unwrap()
}

fn joined(id: &CmId, channel: &EventChannel) -> Membership {
    let membership = id.join_multicast(GROUP, JoinState::FullMember).unwrap();
    let event = next_event(channel);
    assert!(matches!(event.kind, EventKind::MulticastJoined { .. }));
    membership
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_address_handle_lives_until_its_sends_have_completed() {
    let standin = Standin::start();
    let mut end = End::by_hand(&context());
    let to = end.peer();
    end.send(to);
    standin.record();
    end.pair.send.remove_peer(to).unwrap();
    assert_eq!(standin.calls_of("ibv_destroy_ah").len(), 0);
    end.flush();
    let other = end.peer();
    assert_eq!(standin.calls_of("ibv_destroy_ah").len(), 1);
    // One that nothing was sent to goes at once, and one without sends that are posted.
    end.pair.send.remove_peer(other).unwrap();
    assert_eq!(standin.calls_of("ibv_destroy_ah").len(), 2);
    drop(end);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_send_that_was_refused_does_not_count_as_the_last_one() {
    let standin = Standin::start();
    let mut end = End::by_hand(&context());
    let to = end.peer();
    let raw = at(end.pair.as_raw());
    standin.hold_requests(raw, Side::Send, Hold::UntilReleased);
    end.send(to);
    standin.refuse_by_name(raw, Side::Send, 0, libc::EINVAL);
    let buf = end.pool.take().unwrap();
    let refused = end.pair.send.send(to, buf, 1).unwrap_err();
    assert_eq!(refused.error().raw_os_error(), Some(libc::EINVAL));
    assert!(refused.into_buf().is_some());
    standin.record();
    end.pair.send.remove_peer(to).unwrap();
    assert_eq!(standin.calls_of("ibv_destroy_ah").len(), 0);
    standin.release_all(raw, Side::Send);
    end.flush();
    end.peer();
    assert_eq!(standin.calls_of("ibv_destroy_ah").len(), 1);
    drop(end);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn handles_of_posted_sends_outlive_their_queue_pair() {
    let standin = Standin::start();
    for order in 0..3 {
        let mut end = End::by_hand(&context());
        let (first, second) = (end.peer(), end.peer());
        end.send(first);
        end.send(second);
        end.pair.send.remove_peer(first).unwrap();
        standin.record();
        let End { pair, cq, pool, pd } = end;
        let DatagramPair { send, recv } = pair;
        match order {
            0 => {
                drop(send);
                assert_eq!(standin.calls_of("ibv_destroy_ah").len(), 0);
                drop((recv, cq, pool, pd));
            }
            1 => drop((recv, pd, pool, cq, send)),
            _ => {
                DatagramPair { send, recv }.destroy().unwrap();
                drop((cq, pool, pd));
            }
        }
        let end = standin.call_of("ibv_destroy_qp");
        let handles = standin.calls_of("ibv_destroy_ah");
        assert_eq!(handles.len(), 2);
        assert!(handles.iter().all(|handle| end.is_before(handle)));
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn handles_of_a_queue_pair_that_is_not_destroyed_are_kept_for_ever() {
    if !is_child_of("handles_of_a_queue_pair_that_is_not_destroyed_are_kept_for_ever") {
        return;
    }
    let standin = Standin::start();
    let mut end = End::by_hand(&context());
    let to = end.peer();
    end.send(to);
    standin.fail("ibv_destroy_qp", libc::EBUSY.into(), 0);
    standin.record();
    let error = end.pair.destroy().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    drop((end.cq, end.pool, end.pd));
    for call in ["ibv_destroy_ah", "ibv_destroy_cq", "ibv_dealloc_pd"] {
        assert_eq!(standin.calls_of(call).len(), 0, "{call}");
    }
    standin.check();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn unsignalled_sends_come_back_with_the_end() {
    let standin = Standin::start();
    let mut end = End::by_hand(&context());
    let to = end.peer();
    let buf = end.pool.take().unwrap();
    let work = rdmacm::DatagramWork::send(to).unsignaled();
    end.pair.send.post(work, buf, 0).unwrap();
    end.pair.send.remove_peer(to).unwrap();
    let received = end.pool.take().unwrap();
    end.pair.recv.post(received, 0).unwrap();
    let End {
        pair,
        mut cq,
        pool,
        pd,
    } = end;
    let start = Instant::now();
    pair.close(&mut cq, PATIENCE).unwrap();
    assert!(start.elapsed() < PATIENCE, "it was drained");
    assert_eq!(pool.available(), 8);
    drop((cq, pool, pd));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_leaves_its_groups_before_it_ends() {
    let standin = Standin::start();
    for order in 0..6 {
        let channel = EventChannel::new().unwrap();
        let id = bound(&channel);
        let (end, membership);
        if order % 2 == 0 {
            end = End::of_id(&id);
            membership = joined(&id, &channel);
        } else {
            membership = joined(&id, &channel);
            end = End::of_id(&id);
        }
        standin.record();
        let End { pair, cq, pool, pd } = end;
        match order / 2 {
            0 => {
                pair.destroy().unwrap();
                let detach = standin.call_of("ibv_detach_mcast");
                assert!(detach.is_before(&standin.call_of("ibv_destroy_qp")));
                drop((membership, id));
            }
            1 => {
                membership.leave().unwrap();
                pair.destroy().unwrap();
                assert_eq!(standin.calls_of("ibv_detach_mcast").len(), 0);
                drop(id);
            }
            _ => {
                drop((id, membership));
                assert_eq!(standin.calls_of("rdma_destroy_id").len(), 0);
                drop(pair);
            }
        }
        let gone = standin.call_of("rdma_destroy_id");
        assert!(standin.call_of("ibv_destroy_qp").is_before(&gone));
        assert!(standin.call_of("rdma_leave_multicast").is_before(&gone));
        drop((cq, pool, pd, channel));
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_that_was_attached_by_hand_is_detached_before_it_ends() {
    let standin = Standin::start();
    for first in [true, false] {
        let end = End::by_hand(&context());
        let one = end.pair.attach_multicast(GROUP.into(), 0).unwrap();
        let two = end.pair.attach_multicast(GROUP.into(), 1).unwrap();
        standin.record();
        if first {
            drop(one);
            assert_eq!(standin.calls_of("ibv_detach_mcast").len(), 1);
            end.pair.destroy().unwrap();
        } else {
            end.pair.destroy().unwrap();
            drop(one);
        }
        drop(two);
        let gone = standin.call_of("ibv_destroy_qp");
        let detached = standin.calls_of("ibv_detach_mcast");
        assert_eq!(detached.len(), 2);
        assert!(detached.iter().all(|detach| detach.is_before(&gone)));
        drop((end.cq, end.pool, end.pd));
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_that_cannot_be_attached_is_not_made() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = bound(&channel);
    let membership = joined(&id, &channel);
    let context = id.context().unwrap();
    let pd = context.alloc_pd().unwrap();
    // The room of the pair that is not made is free again once the queue was polled.
    let cq = context.create_cq(64).unwrap();
    let init = QueuePairInit::new(&cq.handle());
    standin.fail("ibv_attach_mcast", libc::ENOMEM.into(), 0);
    standin.record();
    let error = id.create_datagram_qp(&pd, &init).unwrap_err();
    assert_eq!(error.op(), "ibv_attach_mcast");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(standin.calls_of("ibv_destroy_qp").len(), 1);
    // The id is as it was.
    drop(id.create_datagram_qp(&pd, &init).unwrap());
    drop((membership, id, init, cq, pd, context, channel));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_is_made_and_destroyed_while_a_join_is_read() {
    let standin = Standin::start();
    for made_before in [true, false] {
        let channel = EventChannel::new().unwrap();
        let id = bound(&channel);
        let end = made_before.then(|| End::of_id(&id));
        let membership = id.join_multicast(GROUP, JoinState::FullMember).unwrap();
        standin.hold("rdma_get_cm_event", Duration::from_millis(100));
        let end = thread::scope(|scope| {
            let reader = scope.spawn(|| next_event(&channel));
            standin.until_held("rdma_get_cm_event");
            let end = match end {
                // Dropped here, and detached.
                Some(end) => {
                    drop(end);
                    None
                }
                None => Some(End::of_id(&id)),
            };
            reader.join().unwrap();
            end
        });
        standin.hold("rdma_get_cm_event", Duration::ZERO);
        drop((end, membership, id, channel));
        standin.nothing_left();
    }
}

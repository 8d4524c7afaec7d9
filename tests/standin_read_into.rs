//! Reads into exposed memory: the bytes arrive, and the memory outlives them whatever becomes of its owner.

mod standin;

use std::net::SocketAddr;
use std::ops::Range;

use rdmacm::{
    Access, CmId, Completion, CompletionQueue, ConnParam, ErrorKind, EventKind, Exposed,
    MappedMemory, Op, ProtectionDomain, QueuePair, QueuePairInit, Registration, RemoteEnd,
    RemoteMemory, RtsParam, Status, Transport,
};
use standin::link::{self, Seen, bare};
use standin::provider::{Hold, Side, at};
use standin::{Client, Server, Standin, addr, is_child_of, small_qp};

/// An address on the network of the iWARP device.
fn iwarp() -> SocketAddr {
    SocketAddr::from(([10, 9, 2, 1], 0))
}

/// An end that reads, of four requests at a time, and what the peer has for it.
struct Ends {
    qp: QueuePair,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    source: Exposed,
    client: Client,
    accepted: CmId,
    server: Server,
}

impl Ends {
    fn at(local: SocketAddr) -> Self {
        Self::with(local, &ConnParam::new())
    }

    /// Which accepts with `param`.
    fn with(local: SocketAddr, param: &ConnParam<'_>) -> Self {
        let server = Server::at(local);
        let client = Client::asking(server.addr(), ConnParam::new());
        let request = server.request();
        let context = request.context().unwrap();
        let (pd, cq, qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
        let accepted = request.accept_with(param).unwrap();
        assert!(matches!(client.event().kind, EventKind::Established(_)));
        let peers = client.qp.as_ref().unwrap().protection_domain();
        let mut source = peers.expose(100, Access::READ).unwrap();
        let bytes: Vec<u8> = (1..=100).collect();
        source.write_at(0, &bytes);
        Self {
            qp,
            cq,
            pd,
            source,
            client,
            accepted,
            server,
        }
    }

    fn new() -> Self {
        Self::at(addr(0))
    }

    fn sink(&self) -> Exposed {
        self.pd.expose(64, Access::WRITE).unwrap()
    }

    /// Posts a read of the peer's bytes from the tenth on.
    fn read(&mut self, sink: &Exposed, range: Range<usize>, user: u64) {
        let from = self.from();
        let posted = self.qp.send.read_into(sink, range, from, user);
        posted.unwrap();
    }

    fn from(&self) -> RemoteMemory {
        self.source.remote().part(10, 90).unwrap()
    }

    /// What is wrong with a read, of which nothing must be posted.
    fn refused(
        &mut self,
        sink: &Exposed,
        range: Range<usize>,
        from: RemoteMemory,
    ) -> rdmacm::Error {
        let refused = self.qp.send.read_into(sink, range, from, 7).unwrap_err();
        assert!(refused.error().raw_os_error().is_none(), "{refused}");
        assert!(self.qp.send.is_idle());
        let (error, back) = refused.into_parts();
        assert!(back.is_some(), "the device does not have it: {error}");
        error
    }

    fn next(&mut self) -> Option<Seen> {
        link::next(&mut self.cq)
    }
}

fn contents(memory: &Exposed) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read_at(0, &mut bytes);
    bytes
}

/// Zeros, with what `Ends::read` brings in `range`.
fn wanted(range: Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    for (value, byte) in (11..).zip(&mut bytes[range]) {
        *byte = value;
    }
    bytes
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn bytes_arrive_and_nothing_beside_them_changes() {
    let standin = Standin::start();
    for local in [addr(0), iwarp()] {
        let mut ends = Ends::at(local);
        let sink = ends.sink();
        ends.read(&sink, 5..25, 3);
        match ends.cq.poll().unwrap() {
            Some(Completion::Bare(bare)) => {
                assert_eq!((bare.op(), bare.status()), (Op::Read, Status::SUCCESS));
                assert_eq!(bare.user(), 3);
            }
            other => panic!("not bare: {other:?}"),
        }
        assert_eq!(contents(&sink), wanted(5..25));
        // The whole of it, and what was read is taken back at once.
        ends.read(&sink, 0..64, 4);
        assert_eq!(ends.next(), Some(bare(4)));
        assert_eq!(sink.revoke().unwrap()[..], wanted(0..64));
        drop(ends);
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn the_memory_comes_back_when_the_completion_was_taken() {
    let standin = Standin::start();
    let mut ends = Ends::new();
    let queue = at(ends.qp.as_raw());
    let (mut sink, other) = (ends.sink(), ends.sink());
    standin.hold_requests(queue, Side::Send, Hold::UntilReleased);
    ends.read(&sink, 0..1, 1);
    ends.read(&sink, 1..2, 2);
    ends.read(&other, 0..8, 3);
    for taken in 0..2 {
        let refused = sink.revoke().unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
        assert_eq!(
            refused.to_string(),
            "ibv_dereg_mr: this needs memory without windows, and that no read goes into, but a window is bound to it, or \
             the completion of a read into it was not taken"
        );
        sink = refused.into_inner().unwrap();
        if taken == 0 {
            standin.release_all(queue, Side::Send);
        }
        // The device is done with all, but that counts only once it was seen.
        assert_eq!(ends.next(), Some(bare(taken + 1)));
    }
    // The other one's has not been.
    assert_eq!(sink.revoke().unwrap()[..2], [11, 11]);
    let other = other.revoke().unwrap_err().into_inner().unwrap();
    // A completion that is looked at is not taken yet.
    let completion = ends.cq.poll().unwrap();
    let other = other.revoke().unwrap_err().into_inner().unwrap();
    drop(completion);
    assert_eq!(other.revoke().unwrap()[..8], wanted(0..8)[..8]);
    drop(ends);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_that_is_dropped_stays_registered_until_the_read_has_ended() {
    let standin = Standin::start();
    let regions = || standin.calls_of("ibv_dereg_mr").len();
    for ending in ["dropped", "closed", "flushed by hand", "completed"] {
        let mut ends = Ends::new();
        let queue = at(ends.qp.as_raw());
        let sink = ends.sink();
        standin.hold_requests(queue, Side::Send, Hold::UntilReleased);
        ends.read(&sink, 0..64, 1);
        standin.record();
        // The stand-in ends the process when a region ends that a posted request names.
        drop(sink);
        assert_eq!(regions(), 0, "{ending}");
        match ending {
            "closed" => {
                let patience = std::time::Duration::from_secs(5);
                ends.qp.close(&mut ends.cq, patience).unwrap();
                assert_eq!(regions(), 1, "with the pair");
            }
            "flushed by hand" => {
                ends.qp.to_error().unwrap();
                assert_eq!(ends.next(), Some(Seen::Bare(1, Status::FLUSHED)));
                drop(ends.qp);
                assert_eq!(regions(), 1, "with the pair");
            }
            "completed" => {
                standin.release_all(queue, Side::Send);
                assert_eq!(ends.next(), Some(bare(1)));
                // The next memory that goes finds that this one is of no use any more.
                let next = ends.sink();
                ends.read(&next, 0..1, 2);
                standin.release_all(queue, Side::Send);
                assert_eq!(ends.next(), Some(bare(2)));
                drop(next);
                assert_eq!(regions(), 2, "without the end of the pair");
                drop(ends.qp);
            }
            _ => {
                drop(ends.qp);
                assert_eq!(regions(), 1, "with the pair");
            }
        }
        drop((ends.cq, ends.pd, ends.source));
        drop((ends.accepted, ends.client, ends.server));
        standin.nothing_left();
    }
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_thousand_memories_do_not_wait_for_the_pairs_end() {
    let standin = Standin::start();
    let mut ends = Ends::new();
    for user in 0..1000 {
        let sink = ends.sink();
        ends.read(&sink, 0..64, user);
        drop(sink);
        assert_eq!(ends.next(), Some(bare(user)));
    }
    let left = standin.living();
    // The source, and the last one.
    assert!(left.contains(&("memory region", 2)), "{left:?}");
    drop(ends);
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_of_a_pair_that_cannot_be_destroyed_never_comes_back() {
    // The child leaves a queue pair and a region behind on purpose.
    if !is_child_of("memory_of_a_pair_that_cannot_be_destroyed_never_comes_back") {
        return;
    }
    let standin = Standin::of_child();
    let mut ends = Ends::new();
    let queue = at(ends.qp.as_raw());
    let (sink, dropped) = (ends.sink(), ends.sink());
    standin.hold_requests(queue, Side::Send, Hold::UntilReleased);
    ends.read(&sink, 0..64, 1);
    ends.read(&dropped, 0..64, 2);
    drop(dropped);
    standin.record();
    standin.fail_destroy(queue, 1, libc::EBUSY);
    let error = ends.qp.destroy().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}");
    let refused = sink.revoke().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
    drop(refused.into_inner().unwrap());
    assert_eq!(standin.calls_of("ibv_dereg_mr").len(), 0);
    std::mem::forget((ends.source, ends.accepted, ends.client, ends.server));
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_does_not_fit_is_refused_before_it_is_posted() {
    let standin = Standin::start();
    let mut ends = Ends::new();
    let (sink, from) = (ends.sink(), ends.from());
    let long = RemoteMemory::new(from.addr(), from.rkey(), u32::MAX);
    for (range, from, kind, text) in [
        (
            0..65,
            from,
            ErrorKind::TooLarge,
            "ibv_post_send: end of the range is 65, the limit is 64; the memory ends there",
        ),
        (
            5..26,
            from.part(0, 20).unwrap(),
            ErrorKind::TooLarge,
            "ibv_post_send: length of the range is 21, the limit is 20; the peer's memory is shorter",
        ),
        (
            64..64,
            from,
            ErrorKind::InvalidInput,
            "ibv_post_send: a read brings at least one byte; the range is empty",
        ),
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        (
            9..8,
            from,
            ErrorKind::InvalidInput,
            "ibv_post_send: a read brings at least one byte; the range is empty",
        ),
    ] {
        let error = ends.refused(&sink, range, from);
        assert_eq!((error.kind(), &*error.to_string()), (kind, text));
    }
    // A message ends at 2 GiB.
    let huge = ends.pd.expose((1 << 31) + 1, Access::WRITE).unwrap();
    let error = ends.refused(&huge, 0..(1 << 31) + 1, long);
    assert_eq!(
        error.to_string(),
        "ibv_post_send: length of the range is 2147483649, the limit is 2147483648; read in several pieces"
    );
    let elsewhere = ends.pd.context().alloc_pd().unwrap();
    let foreign = elsewhere.expose(64, Access::WRITE).unwrap();
    let error = ends.refused(&foreign, 0..1, from);
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("another protection domain"));
    // Nothing is kept of what was refused.
    for memory in [sink, huge, foreign] {
        memory.revoke().unwrap();
    }
    drop((elsewhere, ends));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn memory_must_be_open_to_whoever_writes_it() {
    let standin = Standin::start();
    let for_windows = |pd: &ProtectionDomain| {
        let memory = MappedMemory::new(64).unwrap();
        pd.expose_for_windows(memory, Registration::new()).unwrap()
    };
    let mut ends = Ends::new();
    let from = ends.from();
    for access in [Access::READ, Access::empty()] {
        let sink = ends.pd.expose(64, access).unwrap();
        let error = ends.refused(&sink, 0..1, from);
        assert_eq!(error.kind(), ErrorKind::State);
        let text = "memory that the device may write";
        assert!(error.to_string().contains(text), "{error}");
    }
    let sinks = [
        ends.pd.expose(64, Access::ATOMIC).unwrap(),
        ends.pd.expose(64, Access::all()).unwrap(),
        for_windows(&ends.pd),
    ];
    for sink in sinks {
        ends.read(&sink, 0..64, 1);
        assert_eq!(ends.next(), Some(bare(1)));
        assert_eq!(contents(&sink), wanted(0..64));
    }
    drop(ends);
    standin.nothing_left();

    let mut ends = Ends::at(iwarp());
    let from = ends.from();
    let sinks = [
        ends.pd.expose(64, Access::READ).unwrap(),
        ends.pd.expose(64, Access::ATOMIC).unwrap(),
    ];
    for sink in sinks {
        let error = ends.refused(&sink, 0..1, from);
        assert_eq!(error.kind(), ErrorKind::State);
        let text = "memory that the peer may write, as every read over iWARP";
        assert!(error.to_string().contains(text), "{error}");
    }
    // Into a buffer nothing is read there; the error says what to do.
    let pool = ends.pd.pool(1, 8).unwrap();
    let refused = ends.qp.send.read(pool.take().unwrap(), from, 1);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "ibv_post_send: iWARP has no reads into a buffer of a pool; use `read_into`"
    );
    drop((pool, ends));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_pair_without_reads_says_so() {
    let standin = Standin::start();
    let none = ConnParam::new().responder_resources(0).initiator_depth(0);
    let mut ends = Ends::with(addr(0), &none);
    let (sink, from) = (ends.sink(), ends.from());
    let error = ends.refused(&sink, 0..1, from);
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.to_string().contains("initiator_depth"), "{error}");

    let cq = ends.pd.context().create_cq(8).unwrap();
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(4)
        .max_recv_wr(4);
    let qp = ends.pd.create_qp(&init, Transport::Unreliable).unwrap();
    let qp = qp.to_init(1, Access::empty()).unwrap();
    let end = qp.endpoint(0, 0).unwrap();
    let qp = qp.to_rtr(&RemoteEnd::new(&end, 0)).unwrap();
    let mut unreliable = qp.to_rts(&RtsParam::new(0)).unwrap();
    let refused = unreliable.send.read_into(&sink, 0..1, from, 1).unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Unsupported, "{refused}");
    drop((unreliable, init, cq, sink, ends));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_read_that_was_not_posted_keeps_nothing_and_one_that_may_be_keeps_all() {
    let standin = Standin::start();
    let mut ends = Ends::new();
    let queue = at(ends.qp.as_raw());
    let from = ends.from();
    let sink = ends.sink();
    standin.refuse_by_name(queue, Side::Send, 0, libc::EINVAL);
    let refused = ends.qp.send.read_into(&sink, 0..8, from, 1).unwrap_err();
    assert_eq!(refused.error().raw_os_error(), Some(libc::EINVAL));
    assert!(refused.into_buf().is_some(), "the device does not have it");
    assert!(ends.qp.send.is_idle());
    // Nor does the next request keep it, which has the same place in the queue.
    standin.hold_requests(queue, Side::Send, Hold::UntilReleased);
    let other = ends.sink();
    ends.read(&other, 0..8, 1);
    assert_eq!(sink.revoke().unwrap()[..], [0; 64]);
    standin.release_all(queue, Side::Send);
    assert_eq!(ends.next(), Some(bare(1)));
    drop(other);

    // Beside one that is under way.
    let sink = ends.sink();
    ends.read(&sink, 0..8, 2);
    standin.refuse_by_name(queue, Side::Send, 0, libc::EINVAL);
    let refused = ends.qp.send.read_into(&sink, 8..16, from, 3).unwrap_err();
    assert!(refused.into_buf().is_some());
    let sink = sink.revoke().unwrap_err().into_inner().unwrap();
    standin.release_all(queue, Side::Send);
    assert_eq!(ends.next(), Some(bare(2)));
    assert_eq!(sink.revoke().unwrap()[..], wanted(0..8));

    // An error that names no request: the device may have it all the same, and has until the end of the pair.
    let sink = ends.sink();
    standin.refuse_silently(queue, Side::Send, libc::EINVAL);
    let refused = ends.qp.send.read_into(&sink, 0..8, from, 4).unwrap_err();
    assert!(refused.into_buf().is_none());
    let sink = sink.revoke().unwrap_err().into_inner().unwrap();
    // A full queue, with that one in it.
    for user in 5..8 {
        ends.read(&sink, 0..8, user);
    }
    let error = ends.qp.send.read_into(&sink, 0..8, from, 8).unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::QueueFull, "{error}");
    assert!(error.into_buf().is_some());
    drop(ends.qp);
    sink.revoke().unwrap();
    drop((ends.cq, ends.pd, ends.source));
    drop((ends.accepted, ends.client, ends.server));
    standin.nothing_left();
}

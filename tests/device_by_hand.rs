//! Queue pairs connected by hand, on soft-RoCE (rxe): reliable and unreliable ones, without the connection manager.
mod common;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use common::{ADDR, PATIENCE, any_port, device, in_time};
use rdmacm::{
    Access, AddressVector, CmId, Completion, CompletionQueue, Context, Error, ErrorKind,
    EventChannel, Gid, GidType, InitQp, Mtu, ProtectionDomain, QpEndpoint, QpState, QueuePair,
    QueuePairInit, RemoteEnd, RetryCount, RnrRetry, RtsParam, Status, Transport,
};

/// One side: a queue pair on its way, with what it needs.
struct Side {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    init: QueuePairInit,
    /// The address of the device in the port's table.
    gid_index: u8,
}

impl Side {
    fn new() -> Self {
        let channel = EventChannel::new().expect("a channel");
        let id = CmId::new(&channel).expect("an id");
        id.bind_addr(any_port()).expect("rxe0");
        let context = id.context().expect("rxe0");
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(64).expect("a queue");
        let init = QueuePairInit::new(&cq.handle());
        let ip: IpAddr = ADDR.parse().expect("an address");
        let gids = context.gids(1).expect("addresses");
        let mut mine = gids
            .iter()
            .filter(|entry| entry.gid() == Gid::from(ip) && entry.gid_type() == GidType::RoceV2);
        let gid_index = mine.next().expect("RoCE v2").index();
        Self {
            context,
            pd,
            cq,
            init,
            gid_index: gid_index.try_into().expect("a small index"),
        }
    }

    fn init(&self, transport: Transport, access: Access) -> InitQp {
        let qp = self.pd.create_qp(&self.init, transport).expect("RESET");
        qp.to_init(1, access).expect("INIT")
    }

    /// Waits for the next completion: its number, and what is in its buffer.
    fn completion(&mut self) -> (u64, Vec<u8>) {
        let start = Instant::now();
        loop {
            match self.cq.poll().expect("a queue") {
                Some(Completion::Received(received)) => {
                    assert_eq!(received.status(), Status::SUCCESS);
                    return (received.user(), received.into_buf().to_vec());
                }
                Some(Completion::Sent(sent)) => {
                    assert_eq!(sent.status(), Status::SUCCESS);
                    return (sent.user(), sent.into_buf().to_vec());
                }
                Some(other) => panic!("{other:?}"),
                None => assert!(start.elapsed() < PATIENCE, "no completion"),
            }
        }
    }
}

/// Sends one end over to the other side, as bytes.
fn told(end: QpEndpoint) -> QpEndpoint {
    QpEndpoint::from_bytes(end.to_bytes())
}

/// Both queue pairs of a connection, each with one receive posted.
fn connected(
    sides: &mut [Side; 2],
    transport: Transport,
    access: Access,
) -> ([QueuePair; 2], [rdmacm::Pool; 2]) {
    let pools = sides.each_ref().map(|side| side.pd.pool(8, 64).unwrap());
    let mut inits = sides.each_ref().map(|side| side.init(transport, access));
    for (qp, pool) in inits.iter_mut().zip(&pools) {
        qp.recv().post(pool.take().unwrap(), 100).unwrap();
    }
    let mut ends = Vec::new();
    for (side, (qp, psn)) in sides.iter().zip(inits.iter().zip([0xff_fffe, 7])) {
        ends.push(told(qp.endpoint(side.gid_index, psn).unwrap()));
    }
    let mut there = ends.iter().rev();
    let [one, other] = inits.map(|qp| {
        let remote = RemoteEnd::new(there.next().unwrap(), sides[0].gid_index);
        qp.to_rtr(&remote).unwrap()
    });
    let one = one.to_rts(&RtsParam::new(ends[0].psn)).unwrap();
    let other = other.to_rts(&RtsParam::new(ends[1].psn)).unwrap();
    ([one, other], pools)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn two_reliable_pairs_exchange_messages_and_read_each_other() {
    device();
    in_time("reliable pairs by hand", || {
        let mut sides = [Side::new(), Side::new()];
        let all = Access::READ | Access::WRITE | Access::ATOMIC;
        let ([mut one, mut other], pools) = connected(&mut sides, Transport::Reliable, all);
        let here = one.query().unwrap();
        assert_eq!(here.state(), QpState::ReadyToSend, "{here:?}");
        assert_eq!(here.dest_qp_num(), other.qp_num());
        assert_eq!((here.sq_psn(), here.rq_psn()), (0xff_fffe, 7));
        assert_eq!(here.access(), all);
        assert_eq!(
            (here.max_rd_atomic(), here.max_dest_rd_atomic()),
            (128, 128)
        );
        assert_eq!(here.retry_count(), RetryCount::default());
        assert_eq!(here.rnr_retry(), RnrRetry::FOREVER);
        assert_eq!(here.timeout(), Some(Duration::from_nanos(4_096 << 14)));
        assert_eq!(here.min_rnr_timer(), Some(Duration::from_micros(640)));
        assert_eq!((here.port_num(), here.pkey_index()), (1, 0));
        let port = sides[0].context.port(1).unwrap();
        assert_eq!(here.path_mtu(), port.active_mtu());
        let there = here.address();
        assert_eq!(
            there.dgid(),
            Some(Gid::from(ADDR.parse::<IpAddr>().unwrap()))
        );
        assert_eq!(there.sgid_index(), sides[0].gid_index);
        assert_eq!(other.query().unwrap().dest_qp_num(), one.qp_num());
        let mut message = pools[0].take().unwrap();
        message.set_len(5);
        message.copy_from_slice(b"there");
        one.send.send(message, 1).unwrap();
        assert_eq!(sides[1].completion(), (100, b"there".to_vec()));
        assert_eq!(sides[0].completion(), (1, b"there".to_vec()));
        let mut message = pools[1].take().unwrap();
        message.set_len(4);
        message.copy_from_slice(b"back");
        other.send.send(message, 2).unwrap();
        assert_eq!(sides[0].completion(), (100, b"back".to_vec()));
        assert_eq!(sides[1].completion(), (2, b"back".to_vec()));

        let mut shown = sides[1].pd.expose(64, all).unwrap();
        shown.write_at(8, b"one-sided");
        let from = shown.remote().part(8, 9).unwrap();
        let mut sink = pools[0].take().unwrap();
        sink.set_len(9);
        one.send.read(sink, from, 3).unwrap();
        assert_eq!(sides[0].completion(), (3, b"one-sided".to_vec()));
        one.to_error().unwrap();
        assert_eq!(one.query().unwrap().state(), QpState::Error);
        for (qp, side) in [one, other].into_iter().zip(&mut sides) {
            qp.close(&mut side.cq, PATIENCE).unwrap();
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn capacities_are_at_least_what_was_asked() {
    device();
    in_time("capacities", || {
        let mut side = Side::new();
        side.init = QueuePairInit::new(&side.cq.handle())
            .max_send_wr(5)
            .max_recv_wr(7)
            .max_send_sge(3)
            .max_recv_sge(2)
            .max_inline_data(100);
        let qp = side.init(Transport::Reliable, Access::empty());
        let end = qp.endpoint(side.gid_index, 0).unwrap();
        let qp = qp.to_rtr(&RemoteEnd::new(&end, side.gid_index)).unwrap();
        let qp = qp.to_rts(&RtsParam::new(0)).unwrap();
        for granted in [qp.capacities(), qp.query().unwrap().capacities()] {
            assert!(granted.max_send_wr >= 5, "{granted:?}");
            assert!(granted.max_recv_wr >= 7, "{granted:?}");
            assert!(granted.max_send_sge >= 3, "{granted:?}");
            assert!(granted.max_recv_sge >= 2, "{granted:?}");
            assert!(granted.max_inline_data >= 100, "{granted:?}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_unreliable_pair_sends_and_is_refused_reads_before_the_call() {
    device();
    in_time("unreliable pairs by hand", || {
        let mut sides = [Side::new(), Side::new()];
        let ([mut one, _other], pools) =
            connected(&mut sides, Transport::Unreliable, Access::WRITE);
        let mut message = pools[0].take().unwrap();
        message.set_len(3);
        message.copy_from_slice(b"hop");
        one.send.send(message, 1).unwrap();
        assert_eq!(sides[1].completion(), (100, b"hop".to_vec()));
        assert_eq!(sides[0].completion(), (1, b"hop".to_vec()));

        let shown = sides[1].pd.expose(64, Access::WRITE).unwrap();
        let mut sink = pools[0].take().unwrap();
        sink.set_len(8);
        let refused = one.send.read(sink, shown.remote(), 2).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
        assert_eq!(refused.error().raw_os_error(), None, "no call was made");
        let sink = refused.into_buf().expect("handed back");
        let refused = one.send.fetch_add(sink, shown.remote(), 1, 2).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
        let qp = sides[0].pd.create_qp(&sides[0].init, Transport::Unreliable);
        let error = qp.unwrap().to_init(1, Access::READ).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    });
}

fn assert_too_large(error: &Error, text: &str) {
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(error.raw_os_error(), None, "no call was made");
    assert!(error.to_string().starts_with(text), "{error}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_makes_no_sense_is_named_before_the_call() {
    device();
    in_time("wrong numbers", || {
        let mut side = Side::new();
        // The room of a pair that is gone comes back when the queue is polled.
        let cq = side.context.create_cq(1_000).unwrap();
        side.init = QueuePairInit::new(&cq.handle())
            .max_send_wr(1)
            .max_recv_wr(1);
        let index = side.gid_index;
        let none = Access::empty();
        let new = || side.pd.create_qp(&side.init, Transport::Reliable).unwrap();
        let error = new().to_init(2, none).unwrap_err();
        assert_too_large(&error, "ibv_query_port: port_num is 2, the limit is 1");
        let error = new().pkey_index(9_999).to_init(1, none).unwrap_err();
        assert_too_large(&error, "ibv_modify_qp: pkey_index is 9999, the limit is ");

        let init = || side.init(Transport::Reliable, none);
        let error = init().endpoint(index, 1 << 24).unwrap_err();
        assert_too_large(
            &error,
            "ibv_modify_qp: psn is 16777216, the limit is 16777215",
        );
        let here = init().endpoint(index, 5).unwrap();
        assert_eq!((here.psn, here.lid, here.max_dest_rd_atomic), (5, 0, 128));
        assert_eq!(here.gid, Gid::from(ADDR.parse::<IpAddr>().unwrap()));
        let port = side.context.port(1).unwrap();
        assert_eq!(here.mtu, port.active_mtu());

        let rtr = |change: &dyn Fn(&mut QpEndpoint)| {
            let mut there = here;
            change(&mut there);
            init().to_rtr(&RemoteEnd::new(&there, index))
        };
        let error = rtr(&|there| there.qp_num = u32::MAX).unwrap_err();
        assert_too_large(&error, "ibv_modify_qp: dest_qp_num is 4294967295");
        let error = rtr(&|there| there.psn = 1 << 24).unwrap_err();
        assert_too_large(&error, "ibv_modify_qp: rq_psn is 16777216");
        let error = rtr(&|there| there.mtu = Mtu::from_raw(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let error = rtr(&|there| there.gid = Gid::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        // A peer with larger packets: the smaller size is taken.
        drop(rtr(&|there| there.mtu = Mtu::from_raw(200)).unwrap());

        let remote = RemoteEnd::new(&here, index);
        let error = init()
            .to_rtr(&remote.clone().path_mtu(Mtu::B4096))
            .unwrap_err();
        assert_too_large(&error, "ibv_modify_qp: path_mtu is 4096, the limit is ");
        let error = init()
            .to_rtr(&remote.clone().max_dest_rd_atomic(129))
            .unwrap_err();
        assert_too_large(
            &error,
            "ibv_modify_qp: max_dest_rd_atomic is 129, the limit is 128",
        );
        let near = AddressVector::local(1, 1);
        let error = init().to_rtr(&remote.clone().address(near)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let away = AddressVector::global(2, here.gid, index);
        let error = init().to_rtr(&remote.clone().address(away)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let error = init().to_rtr(&RemoteEnd::new(&here, 255)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");

        let rts = |change: &dyn Fn(RtsParam) -> RtsParam| {
            let mut there = here;
            there.max_dest_rd_atomic = 4;
            let rtr = init().to_rtr(&RemoteEnd::new(&there, index)).unwrap();
            rtr.to_rts(&change(RtsParam::new(0)))
        };
        let error = rts(&|param| param.max_rd_atomic(5)).unwrap_err();
        assert_too_large(&error, "ibv_modify_qp: max_rd_atomic is 5, the limit is 4");
        let (count, retry) = (RetryCount::new(5).unwrap(), RnrRetry::times(6).unwrap());
        let time = Duration::from_secs(1);
        let set = rts(&|param| param.timeout(time).retry_count(count).rnr_retry(retry)).unwrap();
        let set = set.query().unwrap();
        assert_eq!((set.retry_count(), set.rnr_retry()), (count, retry));
    });
}

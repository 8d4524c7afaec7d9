//! Queue pairs connected by hand, on the stand-in: the order of calls, and steps that fail.

mod standin;

use std::net::SocketAddr;

use rdma_sys::ibv_event_type;
use rdmacm::{
    Access, AsyncEventType, AsyncSource, CmId, Context, DatagramInit, ErrorKind, EventChannel,
    InitQp, QpState, QueuePairInit, RemoteEnd, RtsParam, Transport,
};
use standin::{Standin, addr};

/// A device by its address; the id is gone afterwards.
fn context(addr: SocketAddr) -> Context {
    let channel = EventChannel::new().unwrap();
    let id = CmId::new(&channel).unwrap();
    id.bind_addr(addr).unwrap();
    id.context().unwrap()
}

/// Moves a queue pair on as if the peer were itself.
fn to_rts(init: InitQp) -> rdmacm::Result<rdmacm::QueuePair> {
    let end = init.endpoint(0, 3)?;
    init.to_rtr(&RemoteEnd::new(&end, 0))?
        .to_rts(&RtsParam::new(3))
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_of_another_device_is_named_beside_the_domain() {
    let standin = Standin::start();
    let (here, there) = (context(addr(0)), context("10.9.1.1:0".parse().unwrap()));
    let (pd, cq) = (here.alloc_pd().unwrap(), there.create_cq(8).unwrap());
    let init = QueuePairInit::new(&cq.handle());
    let error = pd.create_qp(&init, Transport::Reliable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceMismatch);
    assert_eq!(
        error.to_string(),
        "ibv_create_qp: the completion queue is on device rxe1, but the protection domain is on device rxe0; \
         make both on one device"
    );
    drop((init, cq, pd, here, there));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn each_step_is_one_call_and_a_failed_one_ends_the_pair() {
    let standin = Standin::start();
    let context = context(addr(0));
    let pd = context.alloc_pd().unwrap();
    let pool = pd.pool(1, 8).unwrap();
    let mut cq = context.create_cq(8).unwrap();
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(1)
        .max_recv_wr(1);
    for transport in [Transport::Reliable, Transport::Unreliable] {
        standin.record();
        let qp = pd.create_qp(&init, transport).unwrap();
        let qp = to_rts(qp.to_init(1, Access::WRITE).unwrap()).unwrap();
        assert_eq!(qp.query().unwrap().state(), QpState::ReadyToSend);
        qp.destroy().unwrap();
        standin.call_of("ibv_create_qp");
        assert_eq!(standin.calls_of("ibv_modify_qp").len(), 3);
        standin.call_of("ibv_destroy_qp");
    }
    for (step, errno) in [(0, libc::EINVAL), (1, libc::ETIMEDOUT), (2, libc::EIO)] {
        standin.record();
        // The stand-in counts a call twice: where it comes in, and where the connection manager's come in, too.
        standin.fail_later("ibv_modify_qp", 2 * step, 1, errno.into(), libc::EACCES);
        let qp = pd.create_qp(&init, Transport::Reliable).unwrap();
        let result = qp.to_init(1, Access::READ).and_then(|mut qp| {
            qp.recv().post(pool.take().unwrap(), 0).unwrap();
            to_rts(qp)
        });
        let error = result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "step {step}");
        assert_eq!(error.op(), "ibv_modify_qp");
        standin.call_of("ibv_destroy_qp");
        assert_eq!(standin.calls_of("ibv_modify_qp").len(), step as usize + 1);
        // What was posted comes back once the queue has been seen empty.
        assert!(cq.poll().unwrap().is_none());
    }
    standin.fail("ibv_create_qp", 0, libc::EOPNOTSUPP);
    let error = pd.create_qp(&init, Transport::Unreliable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    drop((pool, cq, init, pd, context));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn what_was_posted_comes_back_after_a_failed_step() {
    let standin = Standin::start();
    let context = context(addr(0));
    let pd = context.alloc_pd().unwrap();
    let pool = pd.pool(1, 8).unwrap();
    let mut cq = context.create_cq(8).unwrap();
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(1)
        .max_recv_wr(1);
    let qp = pd.create_qp(&init, Transport::Reliable).unwrap();
    let mut qp = qp.to_init(1, Access::empty()).unwrap();
    qp.recv().post(pool.take().unwrap(), 0).unwrap();
    assert!(pool.take().is_none());
    let end = qp.endpoint(0, 0).unwrap();
    let remote = RemoteEnd::new(&end, 0).max_dest_rd_atomic(u8::MAX);
    let error = qp.to_rtr(&remote).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(cq.poll().unwrap().is_none());
    assert!(pool.take().is_some());
    drop((pool, init, cq, pd, context));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn an_iwarp_device_has_none_and_says_who_does_it() {
    let standin = Standin::start();
    let context = context("10.9.2.1:0".parse().unwrap());
    assert!(context.is_iwarp());
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    standin.record();
    let init = QueuePairInit::new(&cq.handle());
    let error = pd.create_qp(&init, Transport::Reliable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = "ibv_create_qp: iWARP has no queue pairs connected by hand; use `CmId`";
    assert_eq!(error.to_string(), text);
    assert!(standin.calls_of("ibv_create_qp").is_empty());
    drop((init, cq, pd, context));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_pair_that_fails_is_told_by_its_number_and_says_so_when_asked() {
    let standin = Standin::start();
    let context = context(addr(0));
    let events = context.async_events().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let srq = pd.create_srq(4, 1).unwrap();
    let init = QueuePairInit::new(&cq.handle()).srq(&srq);
    let qp = pd.create_qp(&init, Transport::Reliable).unwrap();
    let qp = to_rts(qp.to_init(1, Access::READ).unwrap()).unwrap();
    assert_eq!(qp.capacities().max_recv_wr, 0);
    standin.object_event(ibv_event_type::IBV_EVENT_QP_ACCESS_ERR, qp.as_raw());
    standin.object_event(ibv_event_type::IBV_EVENT_SRQ_ERR, srq.as_raw());
    // In its error state it takes no more from the shared queue, which it tells first here.
    for told in [
        AsyncEventType::QP_LAST_WQE_REACHED,
        AsyncEventType::QP_ACCESS_ERR,
    ] {
        let event = events.try_event().unwrap().unwrap();
        assert_eq!(event.event_type(), told);
        assert_eq!(event.source(), AsyncSource::QueuePair(qp.qp_num()));
    }
    assert_eq!(qp.query().unwrap().state(), QpState::Error);
    let event = events.try_event().unwrap().unwrap();
    assert_eq!(event.event_type(), AsyncEventType::SRQ_ERR);
    let of_srq = AsyncSource::SharedReceiveQueue(Some(srq.token()));
    assert_eq!(event.source(), of_srq);
    standin.fail("ibv_query_qp", libc::EIO.into(), libc::EACCES);
    let error = qp.query().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
    drop((qp, init, srq, cq, pd, events, context));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_completion_queue_without_room_is_told_for_the_call_that_wants_it() {
    const OP: &str = "ibv_create_qp";
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let id = CmId::new(&channel).unwrap();
    id.bind_addr(addr(0)).unwrap();
    let context = id.context().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).unwrap();
    let above = QueuePairInit::new(&cq.handle()).max_send_wr(cq.handle().capacity() + 1);
    standin.record();
    let by_hand = pd.create_qp(&above, Transport::Reliable).unwrap_err();
    let datagram = DatagramInit::new(1, 0x11);
    let datagram = pd.create_datagram_qp(&above, datagram).unwrap_err();
    let external = id.create_external_qp(&pd, &above).unwrap_err();
    let on_id = id.create_qp(&pd, &above).unwrap_err();
    let found = [by_hand, datagram, external, on_id].map(|error| (error.op(), error.kind()));
    let full = ErrorKind::TooLarge;
    let wanted = [(OP, full), (OP, full), (OP, full), ("rdma_create_qp", full)];
    assert_eq!(found, wanted);
    // A shared queue that was made for one completion queue, and is to complete to a second.
    let srq = pd.create_srq(2, 1).unwrap();
    let small = QueuePairInit::new(&cq.handle()).max_send_wr(1).srq(&srq);
    let qp = pd.create_qp(&small, Transport::Reliable).unwrap();
    let second = context.create_cq(8).unwrap();
    let other = small.clone().recv_cq(&second.handle());
    let error = pd.create_qp(&other, Transport::Reliable).unwrap_err();
    assert_eq!(
        (error.op(), error.kind()),
        (OP, ErrorKind::State),
        "{error}"
    );
    drop((
        above, small, other, qp, srq, cq, second, pd, context, id, channel,
    ));
    standin.nothing_left();
}

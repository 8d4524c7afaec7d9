//! Queues, memory and error codes that no device here can show, or not at the moment that matters.

mod standin;

use std::time::Duration;

use rdmacm::{
    CmId, ConnParam, ErrorKind, EventChannel, EventKind, LookupStatus, QueuePairInit, Status,
};
use standin::{Client, Server, Standin, addr, is_child_of, next_event, small_qp};

const SOON: Duration = Duration::from_secs(5);

/// Both ends of a connection that small messages go over: the client's parts, and the server's.
fn connected() -> (Client, impl Sized) {
    let server = Server::start();
    let client = Client::asking(server.addr(), ConnParam::new());
    let request = server.request();
    let context = request.context().unwrap();
    let (pd, cq, mut qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let pool = pd.pool(4, 64).unwrap();
    for _ in 0..4 {
        qp.recv.post(pool.take().unwrap(), 0).unwrap();
    }
    let accepted = request.accept().unwrap();
    assert!(matches!(client.event().kind, EventKind::Established(_)));
    (client, (qp, cq, pool, pd, context, accepted, server))
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn each_convention_takes_its_error_from_the_right_place() {
    let standin = Standin::start();
    let (mut client, server) = connected();
    let context = client.id.context().unwrap();
    // The return value is the errno; errno itself is somebody else's.
    let qp = client.qp.as_mut().unwrap();
    let pool = qp.protection_domain().pool(1, 8).unwrap();
    standin.fail("ibv_post_send", libc::EINVAL.into(), libc::EACCES);
    let refused = qp.send.send(pool.take().unwrap(), 0).unwrap_err();
    assert_eq!(refused.error().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput);
    // Not named as the one refused: the device may hold it all the same.
    assert!(refused.into_buf().is_none());
    standin.fail("ibv_modify_qp", libc::EIO.into(), libc::EACCES);
    let error = qp.to_error().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    // -1 and errno.
    let other = CmId::new(&client.channel).unwrap();
    standin.fail("rdma_bind_addr", -1, libc::EADDRNOTAVAIL);
    let error = other.bind_addr(addr(0)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    // Null and errno.
    standin.fail("ibv_alloc_pd", 0, libc::ENOMEM);
    assert_eq!(
        context.alloc_pd().unwrap_err().raw_os_error(),
        Some(libc::ENOMEM)
    );
    standin.fail("ibv_create_cq", 0, libc::ENOSPC);
    assert_eq!(
        context.create_cq(1).unwrap_err().raw_os_error(),
        Some(libc::ENOSPC)
    );
    standin.fail("ibv_create_comp_channel", 0, libc::EMFILE);
    let error = context.create_cq_with_channel(1).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    // A count below zero.
    let mut cq = context.create_cq(1).unwrap();
    standin.fail("ibv_poll_cq", (-libc::EIO).into(), libc::EACCES);
    assert_eq!(cq.poll().unwrap_err().raw_os_error(), Some(libc::EIO));
    drop((pool, cq, other, context, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn no_memory_to_lock_names_the_limit() {
    let standin = Standin::start();
    let client = Client::resolved(addr(1));
    let pd = client.id.context().unwrap().alloc_pd().unwrap();
    standin.fail("ibv_reg_mr_iova2", 0, libc::ENOMEM);
    let error = pd.pool(4, 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    drop((pd, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_queue_is_armed_looked_at_and_then_waited_for() {
    let standin = Standin::start();
    let (mut client, server) = connected();
    let context = client.id.context().unwrap();
    let mut cq = context.create_cq_with_channel(8).unwrap();
    standin.record();
    assert!(!cq.wait(Some(Duration::from_millis(5))).unwrap());
    let calls = standin.calls();
    let names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names[..2], ["ibv_req_notify_cq", "ibv_poll_cq"]);
    // The stand-in tells what `solicited_only` was.
    standin.record();
    assert!(!cq.arm_solicited().unwrap());
    assert!(!cq.wait_solicited(Duration::from_millis(5)).unwrap());
    assert!(!cq.arm().unwrap());
    let asked: Vec<_> = standin
        .calls_of("ibv_req_notify_cq")
        .iter()
        .map(|call| call.args[1])
        .collect();
    assert_eq!(asked, [1, 1, 0]);
    drop((cq, context));
    // Every event is acknowledged by who reads it, so the end of the queue waits for nothing.
    let mut other = Client::resolved(addr(1));
    let context = other.id.context().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq_with_channel(8).unwrap();
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(2)
        .max_recv_wr(2);
    let mut qp = other.id.create_qp(&pd, &init).unwrap();
    let pool = pd.pool(2, 8).unwrap();
    for _ in 0..2 {
        qp.recv.post(pool.take().unwrap(), 1).unwrap();
    }
    standin.record();
    standin.fail_later("ibv_get_cq_event", 0, 2, -1, libc::EINTR);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cq.wait(Some(SOON)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        qp.to_error().unwrap();
        assert!(waiter.join().unwrap());
    });
    let read = standin.calls_of("ibv_get_cq_event");
    let good = read.iter().filter(|call| call.returned == 0).count();
    assert_eq!(good, standin.calls_of("ibv_ack_cq_events").len());
    assert!(cq.poll().unwrap().is_some());
    other.qp = None;
    drop((qp, init, cq, pool, pd, context, other));
    client.cq = None;
    drop((client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn completions_of_a_queue_pair_that_is_gone_find_nothing() {
    let standin = Standin::start();
    let client = Client::resolved(addr(1));
    let context = client.id.context().unwrap();
    let (pd, mut cq, mut qp) =
        small_qp(&context, |pd, init| client.id.create_qp(pd, init)).unwrap();
    let pool = pd.pool(3, 8).unwrap();
    for number in 0..3 {
        qp.recv.post(pool.take().unwrap(), number).unwrap();
    }
    qp.to_error().unwrap();
    qp.destroy().unwrap();
    let mut seen = 0;
    while let Some(completion) = cq.poll().unwrap() {
        assert_eq!(completion.status(), Status::FLUSHED);
        seen += 1;
    }
    assert_eq!(seen, 3);
    assert!(cq.poll().unwrap().is_none());
    drop(cq);
    assert_eq!(pool.available(), 3);
    drop((pool, pd, context, client));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_receive_may_come_after_the_message() {
    let standin = Standin::start();
    let server = Server::start();
    let mut client = Client::asking(server.addr(), ConnParam::new());
    let request = server.request();
    let context = request.context().unwrap();
    let (pd, mut cq, mut qp) = small_qp(&context, |pd, init| request.create_qp(pd, init)).unwrap();
    let accepted = request.accept().unwrap();
    assert!(matches!(client.event().kind, EventKind::Established(_)));
    let pool = pd.pool(2, 64).unwrap();
    let mut message = pool.take().unwrap();
    message.fill_from(b"early");
    // Domains are per end: the client's own.
    let own = client
        .qp
        .as_ref()
        .unwrap()
        .protection_domain()
        .pool(1, 64)
        .unwrap();
    let mut mine = own.take().unwrap();
    mine.fill_from(b"early");
    client.qp.as_mut().unwrap().send.send(mine, 1).unwrap();
    assert!(cq.poll().unwrap().is_none());
    qp.recv.post(message, 2).unwrap();
    let Some(rdmacm::Completion::Received(received)) = cq.poll().unwrap() else {
        panic!("nothing was received");
    };
    assert_eq!(&received.into_buf()[..], b"early");
    drop((qp, cq, pool, pd, context, accepted, own, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_look_up_ends_in_every_way() {
    let standin = Standin::start();
    let channel = EventChannel::new().unwrap();
    let listener = CmId::new_datagram(&channel).unwrap();
    listener.bind_addr(addr(0)).unwrap();
    listener.listen(0).unwrap();
    let to = listener.local_addr().unwrap();
    let ask = |to| {
        let channel = EventChannel::new().unwrap();
        let id = CmId::new_datagram(&channel).unwrap();
        id.resolve_addr(None, to, SOON).unwrap();
        assert!(matches!(next_event(&channel).kind, EventKind::AddrResolved));
        id.resolve_route(SOON).unwrap();
        assert!(matches!(
            next_event(&channel).kind,
            EventKind::RouteResolved
        ));
        id.look_up(b"who").unwrap();
        (id, channel)
    };
    let request = || match next_event(&channel).kind {
        EventKind::LookupRequest(request) => request,
        other => panic!("not a request: {other:?}"),
    };

    let (id, asking) = ask(to);
    standin.record();
    let asked = request();
    assert_eq!(asked.private_data().len(), 180);
    assert_eq!(&asked.private_data()[..3], b"who");
    asked.accept(77, b"here").unwrap();
    let acks = standin.calls_of("rdma_ack_cm_event");
    assert!(standin.call_of("rdma_accept").is_before(&acks[0]));
    let EventKind::LookedUp(destination) = next_event(&asking).kind else {
        panic!("not answered");
    };
    assert_eq!(
        (destination.qp_num(), destination.qkey()),
        (77, 0x0123_4567)
    );
    assert_eq!(destination.private_data().len(), 136);
    drop((id, asking));

    for (answer, status) in [
        (true, LookupStatus::REJECTED),
        (false, LookupStatus::REJECTED),
    ] {
        let (id, asking) = ask(to);
        let asked = request();
        if answer {
            asked.reject(b"no").unwrap();
        } else {
            drop(asked);
        }
        let EventKind::LookupFailed(failure) = next_event(&asking).kind else {
            panic!("not refused");
        };
        assert_eq!(failure.status(), status);
        drop((id, asking));
    }

    drop((listener, channel));
    let (id, asking) = ask(to);
    let EventKind::LookupFailed(failure) = next_event(&asking).kind else {
        panic!("somebody listens");
    };
    assert_eq!(failure.status().as_raw(), 1);
    drop((id, asking));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn external_queue_pairs_are_connected_by_both_ends() {
    let standin = Standin::start();
    let server = Server::start();
    let client = Client::resolved(server.addr());
    let context = client.id.context().unwrap();
    let mut mine = small_qp(&context, |pd, init| client.id.create_external_qp(pd, init)).unwrap();
    client
        .id
        .connect(ConnParam::new().initiator_depth(2))
        .unwrap();
    let request = server.request();
    let mut theirs = small_qp(&context, |pd, init| request.create_external_qp(pd, init)).unwrap();
    let (to, from) = (theirs.0.pool(1, 16).unwrap(), mine.0.pool(1, 16).unwrap());
    theirs.2.recv.post(to.take().unwrap(), 1).unwrap();
    let accepted = request.accept_with(&ConnParam::new()).unwrap();
    assert!(matches!(client.event().kind, EventKind::ConnectResponse(_)));
    client.id.establish().unwrap();
    assert!(matches!(
        next_event(&server.channel).kind,
        EventKind::Established(_)
    ));
    let mut message = from.take().unwrap();
    message.fill_from(b"by hand");
    mine.2.send.send(message, 1).unwrap();
    let Some(rdmacm::Completion::Received(received)) = theirs.1.poll().unwrap() else {
        panic!("nothing was received");
    };
    assert_eq!(&received.into_buf()[..], b"by hand");
    // Neither librdmacm nor the peer moves them to ERR.
    accepted.disconnect().unwrap();
    assert!(matches!(client.event().kind, EventKind::Disconnected(_)));
    drop((to, from, mine, theirs, context, accepted, client, server));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_domain_that_cannot_be_freed_is_leaked_and_nothing_else() {
    const NAME: &str = "a_domain_that_cannot_be_freed_is_leaked_and_nothing_else";
    if !is_child_of(NAME) {
        return;
    }
    let standin = Standin::start();
    let client = Client::resolved(addr(1));
    let pd = client.id.context().unwrap().alloc_pd().unwrap();
    standin.fail("ibv_dealloc_pd", libc::EIO.into(), 0);
    drop((pd, client));
    assert_eq!(standin.living(), [("protection domain", 1)]);
}

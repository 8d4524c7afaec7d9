//! Queue pairs, completions and memory, on soft-RoCE (rxe).
mod common;

use std::net::SocketAddr;
use std::thread;

use common::cm::{
    DEPTH, Done, End, Listening, Parts, RESOLVE, assert_state, assert_too_large, disconnected,
    established, event, pair, routed,
};
use common::load::rounds;
use common::raw::qp_attr;
use common::{ADDR_OF_SECOND, device, in_time};
use rdma_sys::ibv_qp_state;
use rdmacm::{
    CmId, CompletionQueue, ConnParam, Context, ErrorKind, EventChannel, QueuePairInit, RnrRetry,
    Status, Work,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Sleeps until the receive number `round` has completed. Sends of earlier rounds may complete meanwhile, or later.
fn next_message(end: &mut End, round: u64) -> Vec<u8> {
    loop {
        match end.parts.completion() {
            Done::Received(Status::SUCCESS, user, data) => {
                assert_eq!(user, round);
                return data;
            }
            Done::Sent(Status::SUCCESS, user) => assert!(user <= round, "{user} in {round}"),
            other => panic!("{other:?} in round {round}"),
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn no_completion_is_missed_by_who_sleeps() {
    device();
    in_time("ping-pong with waiting", || {
        let listening = Listening::new();
        let (mut client, mut server) = pair(&listening);
        let rounds = u64::try_from(rounds(500).min(20_000)).unwrap();
        let echo = thread::spawn(move || {
            server.parts.post_recv(0);
            for round in 0..rounds {
                let data = next_message(&mut server, round);
                server.parts.post_recv(round + 1);
                server.parts.send(&data, round);
            }
            server
        });
        // The server posts its first receive before the first message, or the message waits for it.
        for round in 0..rounds {
            client.parts.post_recv(round);
            client.parts.send(&round.to_ne_bytes(), round);
            assert_eq!(next_message(&mut client, round), round.to_ne_bytes());
        }
        drop(echo.join().unwrap());
    });
}

/// Whether the queue's descriptor becomes readable within `patience` milliseconds.
fn is_told(cq: &CompletionQueue, patience: i64) -> bool {
    let fd = cq.event_fd().expect("made with a channel");
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: patience * 1_000_000,
    };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).expect("poll") > 0
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn who_asks_for_solicited_completions_sleeps_through_the_others() {
    device();
    let listening = Listening::new();
    let (mut client, mut server) = pair(&listening);
    for number in 0..4 {
        server.parts.post_recv(number);
    }
    assert!(!server.parts.cq.arm_solicited().unwrap());

    client.parts.send(b"plain", 0);
    assert_eq!(
        client.parts.completion(),
        Done::Sent(Status::SUCCESS, 0),
        "the server's device has it"
    );
    assert!(!is_told(&server.parts.cq, 300), "told of a plain message");
    let mut buf = client.parts.pool.take().unwrap();
    buf.fill_from(b"urgent");
    let work = Work::send().solicited();
    client.parts.qp.send.post(work, buf, 1).unwrap();
    assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, 1));
    assert!(
        is_told(&server.parts.cq, 900),
        "not told of a solicited one"
    );
    assert!(
        server.parts.cq.arm_solicited().unwrap(),
        "both can be polled"
    );
    for (number, text) in [(0, &b"plain"[..]), (1, b"urgent")] {
        let wanted = Done::Received(Status::SUCCESS, number, text.to_vec());
        assert_eq!(server.parts.completion(), wanted);
    }

    // What failed counts as solicited.
    assert!(!server.parts.cq.arm_solicited().unwrap());
    server.parts.qp.to_error().unwrap();
    assert!(is_told(&server.parts.cq, 900), "not told of a failure");
    assert!(server.parts.cq.wait_solicited(common::PATIENCE).unwrap());
    let Done::Received(status, 2, _) = server.parts.completion() else {
        panic!("the third receive comes first");
    };
    assert_eq!(status, Status::FLUSHED);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_receive_posted_before_accept_takes_the_first_message() {
    device();
    in_time("early receives", || {
        let listening = Listening::new();
        // No retry: a message that finds no receive would be lost.
        let never = ConnParam::new().rnr_retry(RnrRetry::NEVER);
        for _ in 0..20 {
            let mut client = End::client(listening.addr());
            client.parts.post_recv(1);
            client.id.connect(never.clone()).unwrap();
            let request = listening.request();
            let mut parts = Parts::of_request(&request);
            parts.post_recv(2);
            let id = request.accept_with(&never).unwrap();
            established(&client.channel);
            client.parts.send(b"first", 3);
            let done = client.parts.completion();
            assert_eq!(done, Done::Sent(Status::SUCCESS, 3));
            let first = Done::Received(Status::SUCCESS, 2, b"first".to_vec());
            assert_eq!(parts.completion(), first);
            established(&listening.channel);
            parts.send(b"second", 4);
            assert_eq!(parts.completion(), Done::Sent(Status::SUCCESS, 4));
            let second = Done::Received(Status::SUCCESS, 1, b"second".to_vec());
            assert_eq!(client.parts.completion(), second);
            drop((parts, id));
        }
    });
}

/// The second device, by an id on it.
fn second_device() -> Context {
    let channel = EventChannel::new().expect("a channel");
    let id = CmId::new(&channel).expect("an id");
    let addr = SocketAddr::new(ADDR_OF_SECOND.parse().expect("an address"), 0);
    id.bind_addr(addr).expect("rxe1");
    id.context().expect("rxe1")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn domain_and_queue_of_another_device_are_named() {
    device();
    in_time("two devices", || {
        let listening = Listening::new();
        let (id, channel) = routed(listening.addr());
        let (here, there) = (id.context().unwrap(), second_device());
        assert_eq!((here.name(), there.name()), ("rxe0", "rxe1"));
        let pds = [here.alloc_pd().unwrap(), there.alloc_pd().unwrap()];
        let cqs = [here.create_cq(32).unwrap(), there.create_cq(32).unwrap()];
        let [init_here, init_there] =
            [0, 1].map(|side: usize| QueuePairInit::new(&cqs[side].handle()));
        let mixed = init_here.clone().recv_cq(&cqs[1].handle());
        for (pd, init, what) in [
            (
                &pds[1],
                &init_here,
                "the protection domain is on device rxe1, but the id is on device rxe0",
            ),
            (
                &pds[1],
                &init_there,
                "the protection domain is on device rxe1, but the id is on device rxe0",
            ),
            (
                &pds[0],
                &init_there,
                "the completion queue is on device rxe1, but the protection domain is on device rxe0",
            ),
            (
                &pds[0],
                &mixed,
                "the completion queue is on device rxe1, but the protection domain is on device rxe0",
            ),
        ] {
            let error = id.create_qp(pd, init).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceMismatch, "{error}");
            assert_eq!(error.op(), "rdma_create_qp");
            assert_eq!(error.raw_os_error(), None, "no call was made");
            let text = error.to_string();
            assert!(text.contains(what), "{text}");
        }
        let _qp = id.create_qp(&pds[0], &init_here).unwrap();
        drop(channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_depth_above_the_devices_is_named_and_so_is_a_second_queue_pair() {
    device();
    in_time("depths of queue pairs", || {
        let listening = Listening::new();
        let (id, _channel) = routed(listening.addr());
        let context = id.context().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut cq = context.create_cq(8).unwrap();
        let handle = cq.handle();
        let capacity = handle.capacity();
        assert!(capacity >= 8);
        let init = QueuePairInit::new(&handle).max_send_wr(2).max_recv_wr(2);
        let max = context.limits().max_qp_wr();
        for above in [max + 1, 1 << 30, u32::MAX] {
            let error = id
                .create_qp(&pd, &init.clone().max_send_wr(above))
                .unwrap_err();
            assert_too_large(
                &error,
                "rdma_create_qp",
                "max_send_wr",
                above.into(),
                max.into(),
            );
            let error = id
                .create_qp(&pd, &init.clone().max_recv_wr(above))
                .unwrap_err();
            assert_too_large(
                &error,
                "rdma_create_qp",
                "max_recv_wr",
                above.into(),
                max.into(),
            );
        }
        let error = id.create_qp(&pd, &init.clone().max_send_wr(0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        // More than the completion queue holds could overrun it.
        let error = id
            .create_qp(&pd, &init.clone().max_send_wr(capacity))
            .unwrap_err();
        assert_too_large(
            &error,
            "rdma_create_qp",
            "requests of the queue pair that the completion queue must hold",
            2,
            0,
        );
        assert!(cq.poll().unwrap().is_none());

        let max = context.limits().max_cqe();
        for above in [max + 1, u32::MAX] {
            let error = context.create_cq(above).unwrap_err();
            assert_too_large(&error, "ibv_create_cq", "cqe", above.into(), max.into());
        }
        let error = context.create_cq(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

        // Nothing of all that has taken the id's place for a queue pair, or room in the queue.
        let qp = id.create_qp(&pd, &init).unwrap();
        let error = id.create_qp(&pd, &init).unwrap_err();
        assert_state(&error, "rdma_create_qp", "there is one already");
        drop(qp);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_send_before_the_connection_stands_is_no_call() {
    device();
    in_time("posting in the wrong state", || {
        let listening = Listening::new();
        let mut client = End::client(listening.addr());
        // In INIT receives may be posted and sends not. (rxe refuses such a send with EINVAL, and carries it out later.)
        client.parts.post_recv(1);
        let free = client.parts.pool.available();
        let buf = client.parts.pool.take().unwrap();
        let refused = client.parts.qp.send.send(buf, 2).unwrap_err();
        assert_state(refused.error(), "ibv_post_send", "is not connected yet");
        assert!(refused.into_buf().is_some());
        assert_eq!(client.parts.pool.available(), free);
        let End { parts, id, .. } = client;
        let Parts {
            qp, mut cq, pool, ..
        } = parts;
        drop((qp, id));
        assert!(cq.poll().unwrap().is_none());
        assert_eq!(
            pool.available(),
            DEPTH as usize * 3,
            "every buffer is back with the queue pair's end"
        );
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn posts_after_the_connection_are_flushed_or_refused() {
    device();
    in_time("posting after the end", || {
        let listening = Listening::new();
        let (mut client, server) = pair(&listening);
        drop(server);
        disconnected(&client.channel);
        assert_eq!(qp_attr(&client.parts.qp).state, ibv_qp_state::IBV_QPS_ERR);
        let mut flushed = 0;
        for user in 0..u64::from(DEPTH) {
            let buf = client.parts.pool.take().unwrap();
            match client.parts.qp.send.send(buf, user) {
                Ok(()) => flushed += 1,
                Err(refused) => assert!(refused.into_buf().is_some()),
            }
        }
        for user in 0..flushed {
            let done = client.parts.completion();
            assert_eq!(done, Done::Sent(Status::FLUSHED, user));
        }
        assert_eq!(client.parts.pool.available(), DEPTH as usize * 3);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_full_queue_says_so_and_gives_the_buffer_back() {
    device();
    in_time("a full queue", || {
        let listening = Listening::new();
        let mut client = End::client(listening.addr());
        for user in 0..u64::from(DEPTH) {
            client.parts.post_recv(user);
        }
        let buf = client.parts.pool.take().unwrap();
        let refused = client.parts.qp.recv.post(buf, 9).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::QueueFull);
        assert_eq!(refused.error().raw_os_error(), None, "no call was made");
        assert!(refused.into_buf().is_some());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn completions_of_a_queue_pair_that_is_gone_find_nothing() {
    device();
    in_time("late completions", || {
        let listening = Listening::new();
        let (_client, server) = pair(&listening);
        let End { parts, id, channel } = server;
        let Parts {
            mut qp,
            mut cq,
            pool,
            pd,
        } = parts;
        let all = pool.available();
        for user in 0..3 {
            qp.recv.post(pool.take().unwrap(), user).unwrap();
        }
        assert_eq!(pool.available(), all - 3);
        qp.to_error().unwrap();
        qp.destroy().unwrap();
        // rxe leaves the three flushed receives in the completion queue.
        let mut left = 0;
        while let Some(completion) = cq.poll().unwrap() {
            left += 1;
            assert_eq!(completion.status(), Status::FLUSHED, "{completion:?}");
        }
        println!("{left} completions were left");
        assert_eq!(pool.available(), all, "each buffer is back, once");

        // The room in the queue is back too, and numbers of the old queue pair mean nothing to the next.
        let listening = Listening::new();
        let (client_id, client_channel) = routed(listening.addr());
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH);
        let mut next = client_id.create_qp(&pd, &init).unwrap();
        client_id.connect(ConnParam::new()).unwrap();
        let mut server = End::accept(listening.request(), &ConnParam::new());
        established(&client_channel);
        next.recv.post(pool.take().unwrap(), 77).unwrap();
        server.parts.send(b"for the next", 1);
        assert!(cq.wait(Some(common::PATIENCE)).unwrap());
        match cq.poll().unwrap() {
            Some(rdmacm::Completion::Received(received)) => {
                assert_eq!(received.user(), 77);
                assert_eq!(received.qp_num(), next.qp_num());
                assert_eq!(&received.into_buf()[..], b"for the next");
            }
            other => panic!("not a receive: {other:?}"),
        }
        drop((next, id, channel));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn posted_receives_are_flushed_when_the_connection_goes_down() {
    device();
    in_time("flushing", || {
        let listening = Listening::new();
        let (client, mut server) = pair(&listening);
        for user in 0..3 {
            server.parts.post_recv(user);
        }
        assert_eq!(qp_attr(&server.parts.qp).state, ibv_qp_state::IBV_QPS_RTS);
        client.id.disconnect().unwrap();
        // The library leaves it in RTS; reading the event moves it on.
        disconnected(&server.channel);
        assert_eq!(qp_attr(&server.parts.qp).state, ibv_qp_state::IBV_QPS_ERR);
        for user in 0..3 {
            let done = server.parts.completion();
            assert_eq!(done, Done::Received(Status::FLUSHED, user, Vec::new()));
        }

        // On a rejection too.
        let mut client = End::client(listening.addr());
        client.parts.post_recv(5);
        client.id.connect(ConnParam::new()).unwrap();
        listening.request().reject(&[]).unwrap();
        common::cm::rejected(&client.channel);
        assert_eq!(qp_attr(&client.parts.qp).state, ibv_qp_state::IBV_QPS_ERR);
        let done = client.parts.completion();
        assert_eq!(done, Done::Received(Status::FLUSHED, 5, Vec::new()));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_id_that_is_only_bound_or_resolved_has_its_device() {
    device();
    in_time("devices of ids", || {
        let listening = Listening::new();
        assert_eq!(listening.id.context().unwrap().name(), "rxe0");
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        id.resolve_addr(None, listening.addr(), RESOLVE).unwrap();
        event(&channel);
        assert_eq!(id.context().unwrap(), listening.id.context().unwrap());
    });
}

//! The end of things, on soft-RoCE (rxe): nothing that a program keeps makes an end wait, and nothing is left.

mod common;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{
    Done, End, Listening, Parts, RESOLVE, assert_state, disconnected, established, event, message,
    pair, quiet, rejected, routed,
};
use common::load::{Held, rounds};
use common::{PlainNetdev, device, eventually, in_time, resources, within};
use rdmacm::{
    CmId, ConnParam, ErrorKind, EventChannel, EventKind, QueuePairInit, RejectReason, Status,
};

/// An end that does not wait takes no longer than this, on a slow machine.
const AT_ONCE: Duration = Duration::from_secs(1);

fn at_once(what: &str, action: impl FnOnce()) {
    let start = Instant::now();
    action();
    let took = start.elapsed();
    assert!(took < AT_ONCE, "{what} took {took:?}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_event_that_is_kept_does_not_hold_up_the_end_of_its_id() {
    device();
    in_time("kept error events", || {
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        let plain = PlainNetdev::new();
        let peer = SocketAddr::new(PlainNetdev::PEER.parse().unwrap(), 7471);
        id.resolve_addr(None, peer, RESOLVE).unwrap();
        let kept = event(&channel);
        assert!(matches!(kept.kind, EventKind::AddrError(_)), "{kept:?}");
        at_once("dropping after ADDR_ERROR", || drop(id));

        let nobody = { Listening::new().addr() };
        let client = End::connecting(nobody);
        let also = event(&client.channel);
        assert!(matches!(also.kind, EventKind::Rejected(_)), "{also:?}");
        at_once("dropping after REJECTED", || drop(client));
        drop((kept, also, channel, plain));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_request_that_is_kept_does_not_hold_up_its_listener() {
    device();
    in_time("a kept request", || {
        let listening = Listening::new();
        let client = End::connecting(listening.addr());
        let request = listening.request();
        at_once("dropping the listener", || drop(listening));
        // The request is as good as before.
        let server = End::accept(request, &ConnParam::new());
        established(&client.channel);
        established(&server.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_listener_with_a_request_gives_its_port_free_at_once() {
    device();
    in_time("a listener with requests", || {
        let before = {
            drop(Listening::new());
            Held::now()
        };
        let listening = Listening::new();
        let addr = listening.addr();
        let clients = [End::connecting(addr), End::connecting(addr)];
        let [first, second] = [listening.request(), listening.request()];
        at_once("dropping the listener", || drop(listening));

        // A thread ends the listener: it has called into the kernel within moments.
        let start = Instant::now();
        let again = loop {
            let channel = EventChannel::new().unwrap();
            let id = CmId::new(&channel).unwrap();
            match id.bind_addr(addr) {
                Ok(()) => break Listening { id, channel },
                Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
            }
            assert!(start.elapsed() < AT_ONCE, "the port is still taken");
        };
        again.id.listen(0).unwrap();
        assert_eq!(again.addr(), addr);
        let (mut client, mut server) = pair(&again);
        message(&mut client, &mut server, b"on the new listener");

        let server_of_first = End::accept(first, &ConnParam::new());
        drop(second);
        let kinds = clients.each_ref().map(|client| event(&client.channel).kind);
        let established = |kind: &EventKind| matches!(kind, EventKind::Established(_));
        let rejected = |kind: &EventKind| matches!(kind, EventKind::Rejected(r) if r.reason() == RejectReason::CONSUMER_DEFINED);
        assert!(kinds.iter().any(established), "{kinds:?}");
        assert!(kinds.iter().any(rejected), "{kinds:?}");
        drop((clients, client, server, server_of_first, again));
        before.is_back("the thread that ended the listener");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_connection_may_be_dropped_while_its_event_is_handled() {
    device();
    in_time("dropping in the handler", || {
        let listening = Listening::new();
        let before = resources();
        let (client, server) = pair(&listening);
        client.id.disconnect().unwrap();
        let event = event(&server.channel);
        assert!(
            matches!(event.kind, EventKind::Disconnected(_)),
            "{event:?}"
        );
        // Still inside the handler: the event is in hand.
        let End { parts, id, channel } = server;
        at_once("dropping the connection", || drop((parts, id)));
        assert!(
            channel.try_event().unwrap().is_none(),
            "DISCONNECTED came once"
        );
        drop((event, channel, client));
        eventually("no cm_id is left", || resources() == before);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_completion_event_that_nobody_read_does_not_hold_up_its_queue() {
    device();
    in_time("an unread completion event", || {
        let listening = Listening::new();
        let (mut client, mut server) = pair(&listening);
        server.parts.post_recv(1);
        // Armed, and the event that comes is never read.
        let ready = server.parts.cq.wait(Some(Duration::ZERO)).unwrap();
        assert!(!ready);
        client.parts.send(b"wake up", 2);
        assert_eq!(
            client.parts.completion(),
            Done::Sent(Status::SUCCESS, 2),
            "by now the server's completion is there"
        );
        at_once("dropping queue pair and queue", || drop(server));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_id_outlives_the_programs_share_of_its_channel() {
    device();
    in_time("a dropped channel", || {
        let listening = Listening::new();
        let (id, channel) = routed(listening.addr());
        drop(channel);
        let parts = Parts::of_id(&id);
        id.connect(ConnParam::new()).unwrap();
        let request = listening.request();
        // Nobody can read the client's events any more, but it can move to a channel that somebody reads.
        let channel = EventChannel::new().unwrap();
        id.migrate(&channel).unwrap();
        let _server = End::accept(request, &ConnParam::new());
        established(&channel);
        at_once("dropping", || drop((id, parts)));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_accepted_connection_outlives_its_listener_and_channel() {
    device();
    in_time("a dropped listener", || {
        let listening = Listening::new();
        let mut client = End::connecting(listening.addr());
        let request = listening.request();
        let parts = Parts::of_request(&request);
        // It stays on the listener's channel, which nobody but it holds from here on.
        let id = request.accept().unwrap();
        established(&client.channel);
        established(&listening.channel);
        let Listening {
            id: listener,
            channel,
        } = listening;
        drop((listener, channel));
        quiet(&client.channel);
        let own = EventChannel::new().unwrap();
        let mut server = End {
            parts,
            id,
            channel: own,
        };
        message(&mut client, &mut server, b"there");
        message(&mut server, &mut client, b"and back");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn rejected_and_dropped_requests_leave_no_id() {
    device();
    within(common::load::patience(), "a thousand rejections", || {
        let listening = Listening::new();
        let once = |round: usize| {
            let client = End::connecting(listening.addr());
            let request = listening.request();
            if round % 2 == 0 {
                request.reject(&[]).unwrap();
            } else {
                drop(request);
            }
            let rejection = rejected(&client.channel);
            assert_eq!(rejection.reason().as_raw(), 28, "round {round}");
        };
        once(0);
        let held = Held::now();
        for round in 0..rounds(1000).min(1000) {
            once(round);
        }
        held.is_back("ids of rejected requests");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_queue_pair_is_destroyed_once_and_says_so() {
    device();
    in_time("destroying a queue pair", || {
        let listening = Listening::new();
        let before = resources();
        let client = End::client(listening.addr());
        let End { parts, id, channel } = client;
        let Parts { qp, cq, pool, pd } = parts;
        qp.destroy().unwrap();
        let error = id.connect(ConnParam::new()).unwrap_err();
        assert_state(&error, "rdma_connect", "there is none");
        // One that could not be made is none either.
        let too_deep = QueuePairInit::new(&cq.handle()).max_recv_wr(u32::MAX);
        let error = id.create_qp(&pd, &too_deep).map(drop).unwrap_err();
        drop(too_deep);
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let error = id.connect(ConnParam::new()).unwrap_err();
        assert_state(&error, "rdma_connect", "there is none");

        // A second one in its place works like the first.
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(2)
            .max_recv_wr(2);
        let qp = id.create_qp(&pd, &init).unwrap();
        id.connect(ConnParam::new()).unwrap();
        let server = End::accept(listening.request(), &ConnParam::new());
        established(&channel);
        qp.destroy().unwrap();
        drop((id, channel, init, cq, pool, pd, server));
        eventually("nothing is left", || resources() == before);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn domain_queue_and_pool_may_go_first() {
    device();
    in_time("dropping what is in use", || {
        let listening = Listening::new();
        let before = resources();
        let (mut client, server) = pair(&listening);
        let End { parts, id, channel } = server;
        let Parts {
            mut qp,
            mut cq,
            pool,
            pd,
        } = parts;
        let buf = pool.take().unwrap();
        drop((pd, pool));
        // The memory is alive in the request, and then in the completion.
        qp.recv.post(buf, 7).unwrap();
        client.parts.send(b"into memory without a pool", 1);
        assert!(cq.wait(Some(common::PATIENCE)).unwrap());
        let Some(rdmacm::Completion::Received(received)) = cq.poll().unwrap() else {
            panic!("not a receive");
        };
        let buf = received.into_buf();
        assert_eq!(&buf[..], b"into memory without a pool");
        drop(cq);
        // A queue pair without a poller: what is posted comes back with its end.
        qp.recv.post(buf, 8).unwrap();
        qp.destroy().unwrap();
        drop((id, channel, client));
        eventually("nothing is left", || resources() == before);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_device_stays_open_for_the_others() {
    device();
    in_time("two ids of one device", || {
        let listening = Listening::new();
        let (first, _first_channel) = routed(listening.addr());
        let (second, _second_channel) = routed(listening.addr());
        let context = first.context().unwrap();
        assert_eq!(context, second.context().unwrap());
        assert_eq!(context.name(), "rxe0");
        drop((context, first));
        let context = second.context().unwrap();
        drop(second);
        // No id is left that the program knows of, and the device is still there.
        let pd = context.alloc_pd().unwrap();
        let pool = pd.pool(1, 64).unwrap();
        assert_eq!(pool.available(), 1);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn nothing_is_left_after_the_first_time() {
    device();
    in_time("opening and closing", || {
        let once = || {
            let listening = Listening::new();
            let (mut client, mut server) = pair(&listening);
            message(&mut client, &mut server, b"once more");
        };
        once();
        let held = Held::now();
        let listening = Listening::new();
        assert!(Held::now() != held, "a listener is to be counted");
        drop(listening);
        for _ in 0..20 {
            once();
        }
        held.is_back("twenty times everything");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn disconnect_is_no_error_whenever_it_is_called() {
    device();
    in_time("disconnect in every phase", || {
        let channel = EventChannel::new().unwrap();
        let id = CmId::new(&channel).unwrap();
        id.disconnect().unwrap();
        let listening = Listening::new();
        listening.id.disconnect().unwrap();
        let client = End::client(listening.addr());
        client.id.disconnect().unwrap();
        // It has done nothing: the id still connects.
        client.id.connect(ConnParam::new()).unwrap();
        let server = End::accept(listening.request(), &ConnParam::new());
        established(&client.channel);
        established(&server.channel);
        for _ in 0..3 {
            client.id.disconnect().unwrap();
        }
        disconnected(&server.channel);
        disconnected(&client.channel);
        for end in [&client, &server] {
            end.id.disconnect().unwrap();
            quiet(&end.channel);
        }

        let client = End::connecting(listening.addr());
        drop(listening.request());
        rejected(&client.channel);
        client.id.disconnect().unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn who_disconnects_first_need_not_wait_for_the_peer() {
    device();
    in_time("a peer that does nothing", || {
        let listening = Listening::new();
        let (client, server) = pair(&listening);
        client.id.disconnect().unwrap();
        // rxe: without the peer's answer there is no event; the answer is given by who reads the peer's events.
        quiet(&client.channel);
        disconnected(&server.channel);
        disconnected(&client.channel);

        let (client, server) = pair(&listening);
        client.id.disconnect().unwrap();
        at_once("dropping without the peer's answer", || drop(client));
        disconnected(&server.channel);

        let (client, server) = pair(&listening);
        at_once("dropping without a disconnect", || drop(client));
        disconnected(&server.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn reading_its_events_is_all_that_a_side_must_do_to_answer_a_disconnect() {
    device();
    in_time("disconnect from either side", || {
        let listening = Listening::new();
        for server_first in [false, true] {
            let (client, server) = pair(&listening);
            let (first, second) = if server_first {
                (&server, &client)
            } else {
                (&client, &server)
            };
            first.id.disconnect().unwrap();
            disconnected(&second.channel);
            disconnected(&first.channel);
        }
        // Both at once.
        let (client, server) = pair(&listening);
        client.id.disconnect().unwrap();
        server.id.disconnect().unwrap();
        disconnected(&client.channel);
        disconnected(&server.channel);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_reader_outlives_everybody_elses_share_of_its_channel() {
    device();
    in_time("a blocked reader", || {
        let listening = Listening::new();
        let (id, channel) = routed(listening.addr());
        let reader = channel.clone();
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            sender.send(()).unwrap();
            let start = Instant::now();
            let event = reader.wait(Some(Duration::from_secs(2))).unwrap();
            (event.is_none(), start.elapsed())
        });
        receiver.recv().unwrap();
        thread::sleep(Duration::from_millis(200));
        at_once("dropping id and channel beside a reader", || {
            drop((id, channel));
        });
        let (nothing, took) = thread.join().unwrap();
        assert!(nothing);
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(4));
    });
}

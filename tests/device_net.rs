//! The blocking layer on a real device: its ends, its failures, and what it keeps a program from.

mod common;

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::cm::{End, Listening, Parts, event, pair, routed};
use common::net::connected;
use common::{any_port, device, eventually, in_time};
use rdmacm::{
    CmId, ConnParam, Connector, ErrorKind, EventChannel, EventKind, Listener, Options,
    QueuePairInit, Status,
};

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn messages_go_both_ways_and_the_end_is_none() {
    device();
    let (mut client, mut server) = connected(&Options::new());
    for round in 0..100_u32 {
        client.send(&round.to_le_bytes()).expect("send");
        let message = server.recv().expect("recv").expect("a message");
        assert_eq!(*message, round.to_le_bytes());
        server.send_buf(message).expect("send back");
        let back = client.recv().expect("recv").expect("a message");
        assert_eq!(*back, round.to_le_bytes());
    }
    client.send(b"").expect("an empty message is one too");
    assert_eq!(server.recv().expect("recv").expect("a message").len(), 0);
    assert_eq!(client.peer_addr(), server.local_addr());
    client.close().expect("close");
    assert!(server.recv().expect("recv").is_none());
    assert!(server.recv().expect("recv").is_none(), "and stays so");
    let error = server.send(b"too late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
    assert_eq!(
        io::Error::from(error).kind(),
        io::ErrorKind::ConnectionReset
    );
    server.close().expect("close");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_was_sent_before_the_end_is_received() {
    device();
    let (mut client, mut server) = connected(&Options::new().queue_depth(8));
    for number in 0..8_u8 {
        client.send(&[number]).expect("send");
    }
    client.close().expect("close");
    for number in 0..8_u8 {
        assert_eq!(*server.recv().expect("recv").expect("a message"), [number]);
    }
    assert!(server.recv().expect("recv").is_none());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_above_the_size_is_refused_before_it_is_sent() {
    device();
    let (mut client, mut server) = connected(&Options::new().message_size(16));
    let error = client.send(&[0; 17]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(
        error
            .to_string()
            .contains("length of the message is 17, the limit is 16;"),
        "{error}"
    );
    client.send(&[1; 16]).expect("the connection is as it was");
    assert_eq!(server.recv().expect("recv").expect("a message").len(), 16);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_that_is_too_long_for_the_peer_ends_both_sides() {
    device();
    for depth in [1, 4] {
        let listener = Listener::bind(any_port()).expect("bind");
        let addr = listener.local_addr();
        let long = Options::new().message_size(64).queue_depth(depth);
        let client = thread::spawn(move || Connector::with(long).connect(addr).expect("connect"));
        let short = Options::new().message_size(16).queue_depth(depth);
        let mut server = listener
            .request()
            .expect("a request")
            .accept_with(&short)
            .expect("accept");
        let mut client = client.join().expect("no panic");

        client.send(&[7; 64]).expect("it is on its way");
        let error = server.recv().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WorkFailed, "{error}");
        // What rxe says to this; InfiniBand devices say LOCAL_LENGTH.
        let told = Some(Status::from_raw(2));
        assert_eq!(error.status(), told, "{error}");
        let server = in_time("a second recv", move || {
            let again = server.recv().unwrap_err();
            assert_eq!(again.status(), told, "{again}");
            let error = server.send(b"more").unwrap_err();
            assert_eq!(error.status(), told, "{error}");
            server
        });
        // The sender hears that its message was bad, or first that the peer has hung up. It never hears that all is well.
        in_time("the sender's end", move || {
            let first = client.flush().unwrap_err();
            let known = [ErrorKind::WorkFailed, ErrorKind::Disconnected];
            assert!(known.contains(&first.kind()), "{first}");
            let again = client.flush().unwrap_err();
            assert_eq!(again.kind(), first.kind(), "{again}");
            let closed = client.close().map_err(|error| error.kind());
            let wanted = match first.kind() {
                ErrorKind::Disconnected => Ok(()),
                kind => Err(kind),
            };
            assert_eq!(closed, wanted);
        });
        drop(server);
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn two_ends_that_close_with_full_queues_do_not_wait_for_each_other() {
    device();
    let (mut client, mut server) = connected(&Options::new().queue_depth(4));
    for _ in 0..6 {
        client.send(b"from the client").expect("send");
        server.send(b"from the server").expect("send");
    }
    let closing = thread::spawn(move || client.close());
    in_time("the server's close", move || server.close()).expect("close");
    in_time("the client's close", move || closing.join())
        .expect("no panic")
        .expect("close");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_message_that_was_lost_is_told_also_after_the_peer_has_gone() {
    device();
    let listener = Listener::bind(any_port()).expect("bind");
    let addr = listener.local_addr();
    let long = Options::new().message_size(64);
    let client = thread::spawn(move || Connector::with(long).connect(addr).expect("connect"));
    let short = Options::new().message_size(16);
    let mut server = listener
        .request()
        .expect("a request")
        .accept_with(&short)
        .expect("accept");
    let mut client = client.join().expect("no panic");
    client.send(b"fits").expect("send");
    client.send(&[7; 64]).expect("it is on its way");
    drop(client.flush());
    drop(client.close());
    // Until all of that has arrived, for certain: nothing but reading would tell.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(*server.recv().expect("recv").expect("a message"), *b"fits");
    for _ in 0..2 {
        let error = server.recv().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WorkFailed, "{error}");
    }
    assert_eq!(server.flush().unwrap_err().kind(), ErrorKind::WorkFailed);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_close_throws_away_whatever_arrives_meanwhile() {
    device();
    let (mut client, mut server) = connected(&Options::new().queue_depth(4));
    for _ in 0..4 {
        client
            .send(b"from the client")
            .expect("the server has as many receives posted");
    }
    let flood = thread::spawn(move || {
        // More than all buffers of the client together; the end comes while they are on their way, or after them.
        for _ in 0..200 {
            if server.send(b"from the server").is_err() {
                break;
            }
        }
        server
    });
    let start = Instant::now();
    in_time("the client's close", move || client.close()).expect("close");
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    drop(in_time("the server's sends", move || flood.join()).expect("no panic"));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_flush_without_end_can_be_given_one() {
    device();
    let (mut client, server) = connected(&Options::new().queue_depth(1));
    client.send(b"fits").expect("send");
    client
        .flush_timeout(Duration::from_secs(10))
        .expect("there is room");
    client.send(b"waits for the peer to receive").expect("send");
    let error = client
        .flush_timeout(Duration::from_millis(300))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop(server);
    let error = in_time("flush", move || client.flush().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_buffer_of_another_connection_is_refused() {
    device();
    let options = Options::new();
    let (mut first, mut first_server) = connected(&options);
    let (mut second, mut second_server) = connected(&options);
    first.send(b"pass me on").expect("send");
    let message = first_server.recv().expect("recv").expect("a message");
    let error = second_server.send_buf(message).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    second_server
        .send(b"a copy")
        .expect("the connection is as it was");
    assert_eq!(
        *second.recv().expect("recv").expect("a message"),
        *b"a copy"
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_program_that_holds_every_buffer_is_told_so() {
    device();
    let (mut client, mut server) = connected(&Options::new().queue_depth(1));
    let mut held = Vec::new();
    for _ in 0..2 {
        client.send(b"hold me").expect("send");
        held.push(server.recv().expect("recv").expect("a message"));
    }
    let error = server.recv().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BuffersHeld, "{error}");
    assert_eq!(
        io::Error::from(error).kind(),
        io::ErrorKind::ResourceBusy,
        "who tries again at WouldBlock would do so for ever"
    );
    // The third is for sends.
    let own = server.buffer().expect("a buffer to send");
    let error = server.buffer().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BuffersHeld, "{error}");
    server.send_buf(own).expect("send");
    assert!(client.recv().expect("recv").is_some());
    held.pop();
    client.send(b"another").expect("send");
    assert_eq!(
        *server.recv().expect("recv").expect("a message"),
        *b"another"
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn every_thread_that_waits_hears_that_the_listener_was_closed() {
    device();
    let listener = Arc::new(Listener::bind(any_port()).expect("bind"));
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let listener = Arc::clone(&listener);
            thread::spawn(move || match number % 2 {
                0 => assert_eq!(listener.request().unwrap_err().kind(), ErrorKind::Closed),
                _ => assert!(listener.incoming().next().is_none()),
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    listener.close();
    for thread in threads {
        in_time("a waiting thread", move || thread.join()).expect("no panic");
    }
    let error = listener
        .request_timeout(Duration::from_secs(10))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_request_taken_out_of_the_layer_has_a_channel_of_its_own() {
    device();
    let listener = Listener::bind(any_port()).expect("bind");
    let client = End::connecting(listener.local_addr());
    let (request, channel) = listener
        .request()
        .expect("a request")
        .into_inner()
        .expect("migrate");
    let server = Parts::of_request(&request);
    let id = request.accept().expect("accept");
    assert!(matches!(
        event(&client.channel).kind,
        EventKind::Established(_)
    ));
    let established = event(&channel);
    assert!(
        matches!(established.kind, EventKind::Established(_)),
        "{established:?}"
    );
    assert_eq!(established.token, id.token());
    drop(server);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn an_event_that_moves_with_its_id_wakes_who_waits() {
    device();
    let old = EventChannel::new().expect("a channel");
    let new = EventChannel::new().expect("a channel");
    let id = CmId::new(&old).expect("an id");
    let addr = SocketAddr::new(common::ADDR.parse().expect("an address"), 7999);
    id.resolve_addr(None, addr, Duration::from_secs(3))
        .expect("resolve_addr");
    // Until the event is queued, for certain: nothing but reading would tell.
    thread::sleep(Duration::from_secs(1));
    let waiting = thread::spawn({
        let new = new.clone();
        move || new.wait(Some(common::PATIENCE)).expect("waiting")
    });
    thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    id.migrate(&new).expect("migrate");
    let moved = in_time("the wait", move || waiting.join()).expect("no panic");
    assert!(matches!(
        moved.expect("an event").kind,
        EventKind::AddrResolved
    ));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_sleeping_poller_gives_the_room_of_a_closed_pair_back() {
    device();
    let listening = Listening::new();
    let (first, _first_channel) = routed(listening.addr());
    let (second, _second_channel) = routed(listening.addr());
    let pd = first
        .context()
        .expect("a device")
        .alloc_pd()
        .expect("a domain");
    let mut cq = pd.context().create_cq_with_channel(8).expect("a queue");
    let room = cq.handle().capacity();
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(room / 2)
        .max_recv_wr(room - room / 2);
    let pair = first.create_qp(&pd, &init).expect("it fits");
    let error = second.create_qp(&pd, &init).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("the limit is 0;"), "{error}");

    let poller = thread::spawn(move || cq.wait(Some(Duration::from_secs(4))).expect("waiting"));
    thread::sleep(Duration::from_millis(300));
    pair.destroy().expect("close");
    let mut made = None;
    eventually("the room is back", || {
        made = second.create_qp(&pd, &init).ok();
        made.is_some()
    });
    assert!(!in_time("the poller", move || poller.join()).expect("no panic"));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn halves_of_two_pairs_are_not_closed_as_one() {
    device();
    let listening = Listening::new();
    let (client, server) = pair(&listening);
    let (mut ours, mut theirs) = (client.parts.qp, server.parts.qp);
    std::mem::swap(&mut ours.send, &mut theirs.send);
    let error = ours.destroy().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State, "{error}");
    assert_eq!(theirs.destroy().unwrap_err().kind(), ErrorKind::State);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_send_before_the_connection_stands_comes_back() {
    device();
    let listening = Listening::new();
    let mut client = End::client(listening.addr());
    let early = |parts: &mut Parts| {
        let mut buf = parts.pool.take().expect("a free buffer");
        buf.fill_from(b"early");
        let refused = parts.qp.send.send(buf, 1).unwrap_err();
        assert_eq!(refused.error().kind(), ErrorKind::State, "{refused}");
        assert_eq!(*refused.into_buf().expect("it comes back"), *b"early");
    };
    early(&mut client.parts);
    client.id.connect(ConnParam::new()).expect("connect");
    early(&mut client.parts);
    let request = listening.request();
    let mut server = Parts::of_request(&request);
    early(&mut server);
    let _id = request.accept().expect("accept");
    assert!(matches!(
        event(&client.channel).kind,
        EventKind::Established(_)
    ));
    server.post_recv(2);
    client.parts.send(b"now", 3);
    assert_eq!(
        server.completion(),
        common::cm::Done::Received(Status::SUCCESS, 2, b"now".to_vec())
    );
}

/// Adds the second soft-RoCE device again when the test is over, however it ends.
struct SecondDevice;

impl SecondDevice {
    fn remove() -> Self {
        let status = Command::new("rdma")
            .args(["link", "del", "rxe1"])
            .status()
            .expect("rdma");
        assert!(status.success());
        Self
    }
}

impl Drop for SecondDevice {
    fn drop(&mut self) {
        let link = ["link", "add", "rxe1", "type", "rxe", "netdev", "d1"];
        let status = Command::new("rdma").args(link).status().expect("rdma");
        assert!(status.success() || thread::panicking(), "{status}");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn every_thread_that_waits_hears_that_the_device_is_gone() {
    device();
    let addr: SocketAddr = "10.9.1.1:0".parse().expect("an address");
    let listener = Arc::new(Listener::bind(addr).expect("bind"));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let listener = Arc::clone(&listener);
            thread::spawn(move || {
                let removed = listener.request().unwrap_err();
                assert_eq!(removed.kind(), ErrorKind::DeviceRemoved, "{removed}");
                // Every later call says the same, and a loop ends.
                let again = listener.request().unwrap_err();
                assert_eq!(again.kind(), ErrorKind::DeviceRemoved, "{again}");
                assert_eq!(listener.incoming().filter(Result::is_ok).count(), 0);
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    // The removal ends when the listener, the last on the device, is gone.
    let removal = thread::spawn(SecondDevice::remove);
    for thread in threads {
        in_time("a waiting thread", move || thread.join()).expect("no panic");
    }
    drop(listener);
    drop(in_time("the removal", move || removal.join()).expect("no panic"));
}

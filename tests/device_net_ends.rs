//! The blocking layer on a real device: the end that another thread gives a connection, its parts, and its buffers.

mod common;

use std::thread;
use std::time::Duration;

use common::net::connected;
use common::{PATIENCE, device, in_time};
use rdmacm::{Buf, Completion, ErrorKind, Options, Parts};

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_closer_ends_the_waits_of_the_thread_that_owns_the_connection() {
    device();
    let (mut client, mut server) = connected(&Options::new().queue_depth(1));
    let closer = client.closer();
    let waiter = thread::spawn(move || {
        let received = client.recv().map(drop).unwrap_err();
        let sent = client.send(b"too late").unwrap_err();
        (received.kind(), sent.kind(), client.close())
    });
    thread::sleep(Duration::from_millis(100));
    closer.close().expect("close");
    let (received, sent, closed) = in_time("a closed recv", move || waiter.join().unwrap());
    assert_eq!((received, sent), (ErrorKind::Closed, ErrorKind::Closed));
    closed.expect("the end in order of what has ended");
    assert!(server.recv().expect("recv").is_none(), "the peer sees it");
    closer
        .clone()
        .close()
        .expect("of a connection that is gone");
    drop(server);

    // The peer takes one message, and no more.
    let (mut client, _server) = connected(&Options::new().queue_depth(1));
    client.send(b"fits").expect("send");
    client.flush().expect("flush");
    client.send(b"waits").expect("send");
    let patience = Duration::from_millis(200);
    let error = client.send_timeout(b"no room", patience).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    let closer = client.closer();
    let waiter = thread::spawn(move || client.send(b"waits for ever").unwrap_err().kind());
    thread::sleep(Duration::from_millis(100));
    closer.close().expect("close");
    let sent = in_time("a closed send", move || waiter.join().unwrap());
    assert_eq!(sent, ErrorKind::Closed);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn the_parts_of_a_connection_go_on() {
    device();
    let (mut client, mut server) = connected(&Options::new().queue_depth(2));
    assert_eq!(server.id().peer_addr(), server.peer_addr());
    client.send(b"before").expect("send");
    client.flush().expect("flush");
    // It polls what has arrived.
    server.send(b"polled").expect("send");
    server.flush().expect("flush");
    assert_eq!(
        *client.recv().expect("recv").expect("a message"),
        *b"polled"
    );
    let mut parts = server.into_parts();
    let before = match parts.received.pop() {
        Some(buf) => buf,
        None => next_received(&mut parts),
    };
    assert_eq!(*before, *b"before");
    parts
        .qp
        .send
        .send(before, 7)
        .expect("the queue pair is connected");
    assert_eq!(
        *client.recv().expect("recv").expect("a message"),
        *b"before"
    );
    client.send(b"after").expect("send");
    assert_eq!(*next_received(&mut parts), *b"after");
    drop(parts);
    assert!(client.recv().expect("recv").is_none());
}

fn next_received(parts: &mut Parts) -> Buf {
    loop {
        assert!(parts.cq.wait(Some(PATIENCE)).expect("waiting"));
        if let Some(Completion::Received(received)) = parts.cq.poll().expect("polling") {
            received.check().expect("carried out");
            return received.into_buf();
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn messages_that_wait_to_be_received_leave_sends_their_buffers() {
    device();
    let (mut client, mut server) = connected(&Options::new().queue_depth(2));
    // As many as the client has buffers. The last two may still be on their way when the server goes on.
    let pusher = thread::spawn(move || {
        for number in 0..6 {
            server.send(&[number]).expect("push");
        }
        let received = (0..12).map(|_| server.recv().expect("recv").expect("a message")[0]);
        let received: Vec<_> = received.collect();
        (received, server)
    });
    // The client sends and does not receive: what the server has pushed piles up.
    for round in 0..10 {
        client.send(&[round]).expect("send without receiving");
        client.flush().expect("flush");
        thread::sleep(Duration::from_millis(50));
    }
    // None is on its way: the program may have all that are for sends.
    let bufs = [10, 11].map(|number| {
        let mut buf = client.buffer().expect("a buffer to send");
        buf.fill_from(&[number]);
        buf
    });
    for buf in bufs {
        client.send_buf(buf).expect("send");
    }
    for number in 0..6 {
        assert_eq!(*client.recv().expect("recv").expect("a message"), [number]);
    }
    let (received, server) = in_time("the server", move || pusher.join().unwrap());
    assert_eq!(received, Vec::from_iter(0..12));
    drop(server);
}

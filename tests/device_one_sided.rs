//! Writes, reads and atomic operations on the peer's memory, on a real device.

mod common;

use common::cm::{Done, End, Listening, Parts, assert_state, assert_too_large, established, pair};
use common::device;
use rdmacm::{Access, Buf, Completion, ConnParam, ErrorKind, Exposed, Op, RemoteMemory, Status};

/// A buffer with `data`.
fn filled(parts: &Parts, data: &[u8]) -> Buf {
    let mut buf = parts.pool.take().expect("a free buffer");
    buf.fill_from(data);
    buf
}

/// A buffer that is `len` bytes long.
fn empty(parts: &Parts, len: usize) -> Buf {
    let mut buf = parts.pool.take().expect("a free buffer");
    buf.fill(0);
    buf.set_len(len);
    buf
}

/// The next completion, which must be a request of the send queue: what it did, how it ended, and its buffer.
fn sent(parts: &mut Parts) -> (Op, Status, Vec<u8>) {
    assert!(parts.cq.wait(Some(common::PATIENCE)).expect("waiting"));
    match parts.cq.poll().expect("polling").expect("was promised") {
        Completion::Sent(sent) => (sent.op(), sent.status(), sent.into_buf().to_vec()),
        other => panic!("not of the send queue: {other:?}"),
    }
}

/// The next completion, which must be a read into exposed memory: how it ended, and its number.
fn read_into(parts: &mut Parts) -> (Status, u64) {
    assert!(parts.cq.wait(Some(common::PATIENCE)).expect("waiting"));
    match parts.cq.poll().expect("polling").expect("was promised") {
        Completion::Bare(bare) => {
            assert_eq!(bare.op(), Op::Read);
            (bare.status(), bare.user())
        }
        other => panic!("not of the send queue: {other:?}"),
    }
}

fn expose(end: &End, len: usize, access: Access) -> Exposed {
    end.parts.pd.expose(len, access).expect("expose")
}

fn contents(memory: &Exposed) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read_at(0, &mut bytes);
    bytes
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_write_arrives_and_its_immediate_value_tells_so() {
    device();
    let listening = Listening::new();
    let (mut client, mut server) = pair(&listening);
    let memory = expose(&server, 100, Access::WRITE);
    let remote = RemoteMemory::from_bytes(memory.remote().to_bytes());
    assert_eq!(remote.len(), 100);
    server.parts.post_recv(9);

    let hello = filled(&client.parts, b"hello");
    let at = remote.part(3, 5).expect("inside");
    client.parts.qp.send.write(hello, at, 1).expect("write");
    assert_eq!(
        sent(&mut client.parts),
        (Op::Write, Status::SUCCESS, b"hello".to_vec())
    );
    let world = filled(&client.parts, b"world");
    let at = remote.part(95, 5).expect("inside");
    client
        .parts
        .qp
        .send
        .write_with_imm(world, at, 0xfeed_0001, 2)
        .expect("write");
    assert_eq!(sent(&mut client.parts).1, Status::SUCCESS);

    assert!(
        server
            .parts
            .cq
            .wait(Some(common::PATIENCE))
            .expect("waiting")
    );
    match server
        .parts
        .cq
        .poll()
        .expect("polling")
        .expect("was promised")
    {
        Completion::Received(received) => {
            assert_eq!(received.imm(), Some(0xfeed_0001));
            assert_eq!(
                (received.byte_len(), received.is_write_with_imm()),
                (5, true)
            );
            assert_eq!(received.user(), 9);
            assert_eq!(received.into_buf().len(), 0, "the bytes went elsewhere");
        }
        other => panic!("not a receive: {other:?}"),
    }
    let mut wanted = vec![0; 100];
    wanted[3..8].copy_from_slice(b"hello");
    wanted[95..].copy_from_slice(b"world");
    assert_eq!(contents(&memory), wanted);
    memory.revoke().expect("revoke");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_send_carries_an_immediate_value() {
    device();
    let listening = Listening::new();
    let (mut client, mut server) = pair(&listening);
    server.parts.post_recv(1);
    let buf = filled(&client.parts, b"with a number");
    client
        .parts
        .qp
        .send
        .send_with_imm(buf, 77, 2)
        .expect("send");
    assert_eq!(sent(&mut client.parts).1, Status::SUCCESS);
    assert!(
        server
            .parts
            .cq
            .wait(Some(common::PATIENCE))
            .expect("waiting")
    );
    match server
        .parts
        .cq
        .poll()
        .expect("polling")
        .expect("was promised")
    {
        Completion::Received(received) => {
            assert_eq!(received.imm(), Some(77));
            assert_eq!(
                (received.byte_len(), received.is_write_with_imm()),
                (13, false)
            );
            assert_eq!(*received.into_buf(), *b"with a number");
        }
        other => panic!("not a receive: {other:?}"),
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_read_brings_what_is_there() {
    device();
    let listening = Listening::new();
    let (mut client, server) = pair(&listening);
    let mut memory = expose(&server, 64, Access::READ);
    memory.write_at(5, b"what is there");
    let from = memory.remote().part(5, 13).expect("inside");
    let buf = empty(&client.parts, 13);
    client.parts.qp.send.read(buf, from, 1).expect("read");
    let done = sent(&mut client.parts);
    assert_eq!(done, (Op::Read, Status::SUCCESS, b"what is there".to_vec()));

    // Memory that is only to be read is not written.
    let buf = filled(&client.parts, b"no");
    client
        .parts
        .qp
        .send
        .write(buf, memory.remote(), 2)
        .expect("it is on its way");
    assert_eq!(sent(&mut client.parts).1, Status::REMOTE_ACCESS);
    assert!(contents(&memory).starts_with(b"\0\0\0\0\0what"));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn reads_go_into_exposed_memory() {
    device();
    let listening = Listening::new();
    let (mut client, server) = pair(&listening);
    let mut memory = expose(&server, 10_000, Access::READ);
    let bytes: Vec<u8> = (0..10_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
    memory.write_at(0, &bytes);
    let sink = expose(&client, 12_000, Access::WRITE);
    let from = memory.remote();
    let queue = &mut client.parts.qp.send;
    queue.read_into(&sink, 1000..11_000, from, 1).expect("read");
    assert_eq!(read_into(&mut client.parts), (Status::SUCCESS, 1));
    let wanted = [&[0; 1000][..], &bytes, &[0; 1000]].concat();
    assert_eq!(contents(&sink), wanted);
    let sink = sink.revoke().expect("the completion was taken");
    assert_eq!(sink[..], wanted);

    // Memory that goes while a read into it is under way: the read ends well all the same.
    let sink = expose(&client, 10_000, Access::WRITE);
    let queue = &mut client.parts.qp.send;
    queue.read_into(&sink, 0..10_000, from, 2).expect("read");
    drop(sink);
    assert_eq!(read_into(&mut client.parts), (Status::SUCCESS, 2));

    // What the peer has not opened for reading.
    let closed = expose(&server, 8, Access::WRITE);
    let sink = expose(&client, 8, Access::WRITE);
    let queue = &mut client.parts.qp.send;
    let posted = queue.read_into(&sink, 0..8, closed.remote(), 3);
    posted.expect("it is on its way");
    let refused = (Status::REMOTE_ACCESS, 3);
    assert_eq!(read_into(&mut client.parts), refused);
    assert_eq!(sink.revoke().expect("it has ended")[..], [0; 8]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn atomics_bring_what_was_there_before() {
    device();
    let listening = Listening::new();
    let (mut client, server) = pair(&listening);
    let mut memory = expose(&server, 24, Access::all());
    memory.write_at(8, &40_u64.to_ne_bytes());
    let at = memory.remote().part(8, 8).expect("inside");

    let buf = empty(&client.parts, 8);
    client
        .parts
        .qp
        .send
        .fetch_add(buf, at, 2, 1)
        .expect("fetch_add");
    let done = sent(&mut client.parts);
    assert_eq!(
        done,
        (Op::FetchAdd, Status::SUCCESS, 40_u64.to_ne_bytes().to_vec())
    );
    for (compare, was) in [(42_u64, 42_u64), (42, 7)] {
        let buf = empty(&client.parts, 8);
        client
            .parts
            .qp
            .send
            .compare_swap(buf, at, compare, 7, 2)
            .expect("compare_swap");
        let done = sent(&mut client.parts);
        assert_eq!(
            done,
            (Op::CompareSwap, Status::SUCCESS, was.to_ne_bytes().to_vec())
        );
    }
    let mut word = [0; 8];
    memory.read_at(8, &mut word);
    assert_eq!(u64::from_ne_bytes(word), 7);

    let buf = empty(&client.parts, 8);
    let crooked = RemoteMemory::new(at.addr() + 1, at.rkey(), 8);
    let refused = client
        .parts
        .qp
        .send
        .fetch_add(buf, crooked, 1, 3)
        .unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InvalidInput);
    assert!(refused.into_buf().is_some());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn what_does_not_fit_is_refused_before_it_is_posted() {
    device();
    let listening = Listening::new();
    let (mut client, server) = pair(&listening);
    let memory = expose(&server, 4, Access::READ | Access::WRITE);
    let refused = client
        .parts
        .qp
        .send
        .write(filled(&client.parts, b"12345"), memory.remote(), 1);
    let refused = refused.unwrap_err();
    assert_too_large(
        refused.error(),
        "ibv_post_send",
        "length of the buffer",
        5,
        4,
    );
    assert_eq!(*refused.into_buf().expect("it comes back"), *b"12345");
    let refused = client
        .parts
        .qp
        .send
        .read(empty(&client.parts, 5), memory.remote(), 1);
    assert_too_large(
        refused.unwrap_err().error(),
        "ibv_post_send",
        "length of the buffer",
        5,
        4,
    );
    let refused = server.parts.pd.expose(0, Access::READ).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_read_that_would_never_complete_is_refused() {
    device();
    let listening = Listening::new();
    let client = End::connecting(listening.addr());
    let none = ConnParam::new().responder_resources(0).initiator_depth(0);
    let server = End::accept(listening.request(), &none);
    established(&client.channel);
    established(&server.channel);
    let memory = expose(&server, 8, Access::all());
    assert_eq!(client.id.negotiated().expect("answered").initiator_depth, 0);
    let mut client = client;
    let buf = empty(&client.parts, 8);
    let refused = client
        .parts
        .qp
        .send
        .read(buf, memory.remote(), 1)
        .unwrap_err();
    assert_state(refused.error(), "ibv_post_send", "this one was made with 0");
    let buf = refused.into_buf().expect("it comes back");
    let refused = client
        .parts
        .qp
        .send
        .fetch_add(buf, memory.remote(), 1, 2)
        .unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::State);
    // Writes need no such depth.
    let buf = filled(&client.parts, b"written");
    client
        .parts
        .qp
        .send
        .write(buf, memory.remote(), 3)
        .expect("write");
    assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, 3));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn nothing_arrives_after_the_memory_was_taken_back() {
    device();
    let listening = Listening::new();
    let (mut client, server) = pair(&listening);
    let memory = expose(&server, 64, Access::WRITE);
    let remote = memory.remote();
    memory.revoke().expect("revoke");
    let buf = filled(&client.parts, b"too late");
    client
        .parts
        .qp
        .send
        .write(buf, remote, 1)
        .expect("it is on its way");
    let (op, status, _) = sent(&mut client.parts);
    assert_eq!((op, status), (Op::Write, Status::REMOTE_ACCESS));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn copies_are_whole_at_every_offset_and_length() {
    device();
    let listening = Listening::new();
    let (client, _server) = pair(&listening);
    let mut memory = expose(&client, 40, Access::READ);
    for offset in 0..20 {
        for len in 0..20 {
            memory.write_at(0, &[0xee; 40]);
            let data: Vec<u8> = (1..=len).collect();
            memory.write_at(offset, &data);
            let mut wanted = vec![0xee; 40];
            wanted[offset..offset + data.len()].copy_from_slice(&data);
            assert_eq!(contents(&memory), wanted, "{len} at {offset}");
            let mut back = vec![0; data.len()];
            memory.read_at(offset, &mut back);
            assert_eq!(back, data, "{len} at {offset}");
        }
    }
}

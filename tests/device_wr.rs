//! Batches by calls on a real provider, soft-RoCE's: that they go this way, what arrives, and what its errors mean.
#![expect(
    unsafe_code,
    reason = "looks into the provider's structures, and breaks its doorbell"
)]

mod common;

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::cm::{Done, End, Listening, message, pair};
use common::device;
use rdma_sys::ibv_qp_ex;
use rdmacm::{
    Access, Buf, Completion, Fetch, Op, QueuePair, QueuePairInit, RemoteEnd, RtsParam, Status,
    Transport, Work, WrList,
};

/// How often a list was completed since the provider's entry was exchanged.
static COMPLETED: AtomicUsize = AtomicUsize::new(0);
static REAL: OnceLock<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int> = OnceLock::new();

/// The provider's `wr_complete`, counted.
unsafe extern "C" fn counting(qp: *mut ibv_qp_ex) -> c_int {
    COMPLETED.fetch_add(1, Ordering::SeqCst);
    let real = REAL.get().expect("it was looked up");
    // SAFETY: the caller's own obligation.
    unsafe { real(qp) }
}

/// Counts the lists that are posted to a queue pair, which must have been made for calls.
fn count(qp: &QueuePair) {
    // SAFETY: a live queue pair of soft-RoCE, which keeps the flag that is looked at in every one.
    let qp = unsafe { rdma_sys::ibv_qp_to_qp_ex(qp.as_raw()) };
    assert!(!qp.is_null(), "the queue pair was made in the classic way");
    // SAFETY: live, and nobody posts meanwhile.
    let entry = unsafe { &mut (*qp).wr_complete };
    let real = entry.replace(counting).expect("the entry");
    REAL.get_or_init(|| real);
}

fn filled(end: &End, data: &[u8]) -> Buf {
    let mut buf = end.parts.pool.take().expect("a free buffer");
    buf.fill_from(data);
    buf
}

/// The next completion of a request with a buffer: what it did, its number, and its buffer.
fn next(end: &mut End) -> (Op, u64, Vec<u8>) {
    let cq = &mut end.parts.cq;
    loop {
        if let Some(completion) = cq.poll().expect("polling") {
            assert_eq!(completion.status(), Status::SUCCESS);
            return match completion {
                Completion::Sent(sent) => (sent.op(), sent.user(), sent.into_buf().to_vec()),
                other => panic!("not of the send queue: {other:?}"),
            };
        }
        assert!(cq.wait(Some(common::PATIENCE)).expect("waiting"));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_batch_goes_by_calls_and_all_of_it_arrives() {
    device();
    let listening = Listening::new();
    let (mut client, mut server) = pair(&listening);
    count(&client.parts.qp);
    let access = Access::WRITE | Access::READ | Access::ATOMIC;
    let mut memory = server.parts.pd.expose(64, access).expect("expose");
    memory.write_at(0, &[b'm'; 64]);
    memory.store_u64(8, 41);
    let remote = memory.remote();
    let part = |at, len| remote.part(at, len).expect("inside");
    let mut list = WrList::with_capacity(4);
    let before = COMPLETED.load(Ordering::SeqCst);
    // More than once round the queue.
    for lap in 0..20_u64 {
        for user in 1..=4 {
            server.parts.post_recv(user);
        }
        let [one, two, three] =
            ["one", "two", "three"].map(|data| filled(&client, data.as_bytes()));
        let (written, told) = (filled(&client, b"written"), filled(&client, b"told"));
        let read = filled(&client, &[0; 8]);
        let (added, swapped) = (filled(&client, &[0; 8]), filled(&client, &[0; 8]));
        let mut batch = client.parts.qp.send.batch(&mut list);
        batch.post(Work::send().unsignaled(), one, 1).expect("one");
        batch.post(Work::send_with_imm(77), two, 2).expect("two");
        batch
            .post(Work::write(part(16, 7)), written, 3)
            .expect("write");
        batch
            .post(Work::write_with_imm(part(32, 4), 78).solicited(), told, 4)
            .expect("told");
        batch.submit().expect("submit");
        let mut done: Vec<_> = (0..4).map(|_| next(&mut client)).collect();
        let mut batch = client.parts.qp.send.batch(&mut list);
        batch
            .fetch(Fetch::fetch_add(part(8, 8), 1), added, 5)
            .expect("add");
        batch
            .fetch(Fetch::compare_swap(part(8, 8), 42, 41).fenced(), swapped, 6)
            .expect("swap");
        batch
            .fetch(Fetch::read(part(16, 8)).fenced().unsignaled(), read, 7)
            .expect("read");
        batch.post(Work::send(), three, 8).expect("three");
        batch.submit().expect("submit");
        done.extend((0..4).map(|_| next(&mut client)));
        let wanted = [
            (Op::Send, 1, b"one".to_vec()),
            (Op::Send, 2, b"two".to_vec()),
            (Op::Write, 3, b"written".to_vec()),
            (Op::Write, 4, b"told".to_vec()),
            (Op::FetchAdd, 5, 41_u64.to_ne_bytes().to_vec()),
            (Op::CompareSwap, 6, 42_u64.to_ne_bytes().to_vec()),
            (Op::Read, 7, b"writtenm".to_vec()),
            (Op::Send, 8, b"three".to_vec()),
        ];
        assert_eq!(done, wanted, "lap {lap}");
        let mut there = [0; 64];
        memory.read_at(0, &mut there);
        assert_eq!(&there[32..37], b"toldm");
        assert_eq!(memory.load_u64(8), 41);
        let came = |data: &[u8], user| Done::Received(Status::SUCCESS, user, data.to_vec());
        assert_eq!(server.parts.completion(), came(b"one", 1));
        assert_eq!(server.parts.completion(), came(b"two", 2));
        assert_eq!(server.parts.completion(), came(b"", 3));
        assert_eq!(server.parts.completion(), came(b"three", 4));
    }
    assert_eq!(COMPLETED.load(Ordering::SeqCst) - before, 40);
    // A single request still goes the classic way.
    message(&mut client, &mut server, b"classic");
    assert_eq!(COMPLETED.load(Ordering::SeqCst) - before, 40);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn a_pair_made_by_hand_posts_by_calls_too() {
    device();
    let listening = Listening::new();
    let end = End::client(listening.addr());
    let context = end.id.context().expect("a device");
    let pd = context.alloc_pd().expect("a domain");
    let mut cq = context.create_cq(20).expect("a queue");
    let pool = pd.pool(10, 16).expect("a pool");
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(4)
        .max_recv_wr(4)
        .max_inline_data(16);
    for transport in [Transport::Reliable, Transport::Unreliable] {
        let qp = pd.create_qp(&init, transport).expect("a pair");
        let mut qp = qp.to_init(1, Access::WRITE).expect("INIT");
        qp.recv()
            .post(pool.take().expect("a buffer"), 1)
            .expect("post");
        qp.recv()
            .post(pool.take().expect("a buffer"), 2)
            .expect("post");
        // The first GID that there is leads back here.
        let gid = (0..16)
            .find(|index| qp.endpoint(*index, 3).is_ok())
            .expect("a GID");
        let own = qp.endpoint(gid, 3).expect("an endpoint");
        let qp = qp.to_rtr(&RemoteEnd::new(&own, gid)).expect("RTR");
        let mut qp = qp.to_rts(&RtsParam::new(3)).expect("RTS");
        count(&qp);
        let before = COMPLETED.load(Ordering::SeqCst);
        let mut list = WrList::with_capacity(2);
        let mut buf = pool.take().expect("a buffer");
        buf.fill_from(b"to myself");
        let mut batch = qp.send.batch(&mut list);
        batch.post(Work::send().unsignaled(), buf, 3).expect("post");
        batch
            .post(Work::send(), rdmacm::Inline(b"inline"), 4)
            .expect("post");
        batch.submit().expect("submit");
        assert_eq!(COMPLETED.load(Ordering::SeqCst) - before, 1);
        let mut seen = Vec::new();
        common::eventually("four completions", || {
            while let Some(completion) = cq.poll().expect("polling") {
                assert_eq!(completion.status(), Status::SUCCESS);
                seen.push(match completion {
                    Completion::Sent(sent) => (sent.user(), sent.into_buf().to_vec()),
                    Completion::Received(received) => {
                        (received.user(), received.into_buf().to_vec())
                    }
                    Completion::Bare(bare) => (bare.user(), Vec::new()),
                    other => panic!("of another kind: {other:?}"),
                });
            }
            seen.len() == 4
        });
        seen.sort();
        let wanted = [
            (1, b"to myself".to_vec()),
            (2, b"inline".to_vec()),
            (3, b"to myself".to_vec()),
            (4, Vec::new()),
        ];
        assert_eq!(seen, wanted, "{transport:?}");
    }
}

/// Why nothing comes back after a failure of `ibv_wr_complete`.
#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn soft_roce_sends_what_a_failed_complete_has_not_posted() {
    device();
    let listening = Listening::new();
    let (mut client, mut server) = pair(&listening);
    count(&client.parts.qp);
    for user in 0..4 {
        server.parts.post_recv(user);
    }
    let bufs = [b"a", b"b", b"c"].map(|data| filled(&client, data));
    let free = client.parts.pool.available();
    let mut list = WrList::with_capacity(4);
    let mut batch = client.parts.qp.send.batch(&mut list);
    for (user, buf) in (0..).zip(bufs) {
        batch.post(Work::send(), buf, user).expect("post");
    }
    let context = client.parts.pd.context().as_raw();
    // SAFETY: an open device, which only this thread uses: soft-RoCE's doorbell is a call on this descriptor.
    let doorbell = unsafe { (*context).cmd_fd };
    // SAFETY: as above; it is put back below.
    unsafe { (*context).cmd_fd = -1 };
    let submitted = batch.submit();
    // SAFETY: as above.
    unsafe { (*context).cmd_fd = doorbell };
    let partly = submitted.expect_err("there is no doorbell");
    assert_eq!(partly.error().op(), "ibv_wr_complete");
    assert_eq!(partly.error().raw_os_error(), Some(libc::EBADF));
    assert_eq!(partly.posted(), 3);
    assert!(partly.into_bufs().is_empty());
    assert_eq!(client.parts.pool.available(), free);
    // The next doorbell rings for all.
    client.parts.send(b"d", 3);
    for (user, data) in (0..).zip([b"a", b"b", b"c", b"d"]) {
        let came = Done::Received(Status::SUCCESS, user, data.to_vec());
        assert_eq!(server.parts.completion(), came);
        assert_eq!(client.parts.completion(), Done::Sent(Status::SUCCESS, user));
    }
}

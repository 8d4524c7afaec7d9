//! Atomic operations of many connections at once add up, on a real device. `RDMACM_ROUNDS` sets how many each does.

mod common;

use std::sync::{Arc, Barrier};
use std::thread;

use common::cm::{Listening, established, event, routed};
use common::load::rounds;
use common::{PATIENCE, device, in_time};
use rdmacm::{
    Access, Completion, CompletionQueue, ConnParam, EventKind, Op, QueuePairInit, RemoteMemory,
};

/// Connections at once.
const CONNECTIONS: u32 = 8;
/// Operations under way on each.
const DEPTH: u32 = 4;

/// Waits for the next operation, and gives what was in the memory before it.
fn before(cq: &mut CompletionQueue, op: Op) -> u64 {
    assert!(cq.wait(Some(PATIENCE)).expect("waiting"), "no completion");
    match cq.poll().expect("polling") {
        Some(Completion::Sent(sent)) => {
            sent.check().expect("success");
            assert_eq!(sent.op(), op);
            let buf = sent.into_buf();
            u64::from_ne_bytes(buf[..].try_into().expect("eight bytes"))
        }
        other => panic!("{other:?}"),
    }
}

/// Adds 1 to the first word `times` times, and then by comparing to the second; gives what each operation found that did it.
fn client(listening: &Listening, memory: RemoteMemory, times: u64, all: &Barrier) -> [Vec<u64>; 2] {
    let (id, channel) = routed(listening.addr());
    let pd = id
        .context()
        .expect("a device")
        .alloc_pd()
        .expect("a domain");
    let mut cq = pd
        .context()
        .create_cq_with_channel(DEPTH + 1)
        .expect("a queue");
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(DEPTH)
        .max_recv_wr(1);
    let mut qp = id.create_qp(&pd, &init).expect("a queue pair");
    let pool = pd.pool(DEPTH as usize, 8).expect("a pool");
    id.connect(ConnParam::new()).expect("connect");
    established(&channel);
    let word = |offset| memory.part(offset, 8).expect("inside");
    all.wait();

    let (mut asked, mut added) = (0, Vec::new());
    while (added.len() as u64) < times {
        while asked < times {
            let Some(buf) = pool.take() else { break };
            qp.send.fetch_add(buf, word(0), 1, asked).expect("posted");
            asked += 1;
        }
        added.push(before(&mut cq, Op::FetchAdd));
    }
    let (mut guess, mut swapped) = (0, Vec::new());
    while (swapped.len() as u64) < times {
        let buf = pool.take().expect("all are back");
        let posted = qp.send.compare_swap(buf, word(8), guess, guess + 1, 0);
        posted.expect("posted");
        let found = before(&mut cq, Op::CompareSwap);
        if found == guess {
            swapped.push(found);
            guess += 1;
        } else {
            assert!(found > guess, "it was {guess} before and is {found}");
            guess = found;
        }
    }
    id.disconnect().expect("disconnect");
    qp.close(&mut cq, PATIENCE).expect("close");
    assert_eq!(pool.available(), DEPTH as usize);
    [added, swapped]
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask test"]
fn operations_from_eight_connections_add_up() {
    device();
    let times = rounds(500) as u64;
    in_time("atomic operations", move || {
        let listening = Arc::new(Listening::new());
        let pd = listening.id.context().expect("a device").alloc_pd();
        let pd = pd.expect("a domain");
        let memory = pd.expose(16, Access::ATOMIC).expect("memory");
        let mut cq = pd.context().create_cq(2 * CONNECTIONS).expect("a queue");
        let all = Arc::new(Barrier::new(CONNECTIONS as usize));
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let (listening, all) = (Arc::clone(&listening), Arc::clone(&all));
                let remote = memory.remote();
                thread::spawn(move || client(&listening, remote, times, &all))
            })
            .collect();
        let init = QueuePairInit::new(&cq.handle())
            .max_send_wr(1)
            .max_recv_wr(1);
        let mut accepted = Vec::new();
        while accepted.len() < CONNECTIONS as usize {
            if let EventKind::ConnectRequest(request) = event(&listening.channel).kind {
                let qp = request.create_qp(&pd, &init).expect("a queue pair");
                accepted.push((qp, request.accept().expect("accept")));
            }
        }
        let found = clients
            .into_iter()
            .map(|client| client.join().expect("no panic"));
        let (mut added, mut swapped) = (Vec::new(), Vec::new());
        for [more_added, more_swapped] in found {
            assert!(more_added.is_sorted(), "in the order of the posts");
            added.extend(more_added);
            swapped.extend(more_swapped);
        }
        let sum = times * u64::from(CONNECTIONS);
        for (what, mut values, offset) in [("added", added, 0), ("swapped", swapped, 8)] {
            values.sort_unstable();
            assert!(values.into_iter().eq(0..sum), "{what}: each value once");
            assert_eq!(memory.load_u64(offset), sum, "{what}");
        }
        for (qp, _id) in accepted {
            qp.close(&mut cq, PATIENCE).expect("close");
        }
        memory.revoke().expect("revoke");
        println!("{sum} additions and {sum} swaps by {CONNECTIONS} connections");
    });
}

//! Posting on one thread, polling on another.

mod standin;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Completion, ErrorKind, Pool, QueuePair, QueuePairInit, Work};
use standin::Standin;
use standin::link::{Fabric, SIZE, init};
use standin::provider::ALL;

const PATIENCE: Duration = Duration::from_secs(20);
const MESSAGES: u64 = 100_000;

/// What `look` finds, for which another thread may have to do something; if that has failed, so does this.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "the other thread does nothing");
        thread::yield_now();
    }
}

fn wait_for_buf(pool: &Pool) -> rdmacm::Buf {
    wait_for(|| pool.take())
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn a_hundred_thousand_messages_arrive_once_and_in_order() {
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(100);
    let (near, far) = fabric.link(&init(&cq, 13), &init(&cq, 16));
    // Fewer buffers than slots: a free buffer is a free slot, but for those of unsignalled requests.
    let (sends, receives) = (
        fabric.pd.pool(13, SIZE).unwrap(),
        fabric.pd.pool(16, SIZE).unwrap(),
    );
    let (
        QueuePair {
            mut send,
            recv: near_recv,
        },
        QueuePair {
            send: far_send,
            mut recv,
        },
    ) = (near, far);
    thread::scope(|threads| {
        let poster = threads.spawn(|| {
            for number in 0..MESSAGES {
                recv.post(wait_for_buf(&receives), number).unwrap();
                let mut buf = wait_for_buf(&sends);
                buf.fill_from(&number.to_ne_bytes());
                let work = match number % 5 {
                    0 => Work::send(),
                    _ => Work::send().unsignaled(),
                };
                send.post(work, buf, number).unwrap();
            }
            // The last ones are unsignalled.
            recv.post(wait_for_buf(&receives), MESSAGES).unwrap();
            let mut buf = wait_for_buf(&sends);
            buf.fill_from(&MESSAGES.to_ne_bytes());
            send.post(Work::send(), buf, MESSAGES).unwrap();
        });
        let (mut sent, mut received) = (0, 0);
        let mut last = Instant::now();
        while sent <= MESSAGES || received <= MESSAGES {
            let completion = cq.poll().unwrap();
            if completion.is_some() {
                last = Instant::now();
            }
            match completion {
                Some(Completion::Sent(done)) => {
                    done.check().unwrap();
                    assert_eq!(done.user(), sent);
                    assert_eq!(done.into_buf()[..], sent.to_ne_bytes());
                    sent += 1;
                }
                Some(Completion::Received(done)) => {
                    done.check().unwrap();
                    assert_eq!(done.user(), received);
                    assert_eq!(done.into_buf()[..], received.to_ne_bytes());
                    received += 1;
                }
                None => {
                    assert!(last.elapsed() < PATIENCE, "nothing comes any more");
                    thread::yield_now();
                }
                other => panic!("of nobody: {other:?}"),
            }
        }
        poster.join().unwrap();
    });
    assert!(cq.poll().unwrap().is_none());
    assert_eq!((sends.available(), receives.available()), (13, 16));
    drop((near_recv, far_send, send, recv, cq, sends, receives, fabric));
    standin.nothing_left();
}

#[test]
#[ignore = "needs the stand-in libraries: cargo xtask test"]
fn pairs_come_and_go_while_another_thread_polls() {
    const ROUNDS: u64 = 400;
    let standin = Standin::start();
    let fabric = Fabric::new();
    let mut cq = fabric.cq(40);
    let (pool, target) = (fabric.pd.pool(32, SIZE).unwrap(), fabric.target(SIZE));
    let work = Work::write(target.remote());
    // Who has a buffer too early sees it change.
    standin.scribble(ALL, true);
    let (mut first, peer) = fabric.one_way(&init(&cq, 6));
    fabric.keep(peer);
    let over = AtomicBool::new(false);
    let mut seen = HashSet::new();
    let handle = cq.handle();
    thread::scope(|threads| {
        let poller = threads.spawn(|| {
            loop {
                let was_over = over.load(Ordering::Acquire);
                match cq.poll().unwrap() {
                    Some(Completion::Sent(sent)) => {
                        sent.check().unwrap();
                        assert!(seen.insert(sent.user()), "{} came twice", sent.user());
                        let value = u8::try_from(sent.user() % 251).unwrap();
                        assert_eq!(sent.into_buf()[..], [value; SIZE]);
                    }
                    Some(other) => panic!("not sent: {other:?}"),
                    None if was_over => break,
                    None => thread::yield_now(),
                }
            }
        });
        for round in 0..ROUNDS {
            let init = QueuePairInit::new(&handle).max_send_wr(6).max_recv_wr(1);
            let (mut qp, _peer) = wait_for(|| match fabric.try_one_way(&init) {
                Ok(made) => Some(made),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
                    None
                }
            });
            for (queue, place) in [(&mut qp.send, 0), (&mut first.send, 3)] {
                for user in 6 * round + place..6 * round + place + 3 {
                    let mut buf = wait_for_buf(&pool);
                    buf.fill(u8::try_from(user % 251).unwrap());
                    let mut buf = Some(buf);
                    wait_for(|| {
                        let posted = queue.post(work, buf.take()?, user);
                        let Err(refused) = posted else {
                            return Some(());
                        };
                        assert_eq!(refused.error().kind(), ErrorKind::QueueFull);
                        buf = refused.into_buf();
                        None
                    });
                }
            }
            if round % 3 == 0 {
                qp.recv.post(wait_for_buf(&pool), 7).unwrap();
            }
            // What is complete and what is posted goes on without it.
            drop(qp);
        }
        over.store(true, Ordering::Release);
        poller.join().unwrap();
    });
    assert_eq!(seen.len() as u64, 6 * ROUNDS);
    assert_eq!(pool.available(), 32);
    drop((first, cq, handle, pool, target, fabric));
    standin.nothing_left();
}

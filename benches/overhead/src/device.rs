//! The other end of a connection over a device: it receives what a loop sends.
#![expect(unsafe_code, reason = "exports a name")]

use std::cell::RefCell;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{CmId, Completion, CompletionQueue, Pool, QueuePair};

use crate::sizes::{BATCH, BUFFER_SIZE};

/// For the messages of a batch to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after the last message its sender has all completions, on the slowest machine.
const AFTERWARDS: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Peer {
    qp: QueuePair,
    cq: CompletionQueue,
    _id: CmId,
}

thread_local! {
    static PEER: RefCell<Option<Peer>> = const { RefCell::new(None) };
}

/// Posts the buffers of `pool`, and keeps the end for the loops of this thread.
pub(crate) fn start(
    (mut qp, cq, id): (QueuePair, CompletionQueue, CmId),
    pool: &Pool,
) -> Result<(), Box<dyn Error>> {
    while let Some(buf) = pool.take() {
        qp.recv.post(buf, 0)?;
    }
    PEER.set(Some(Peer { qp, cq, _id: id }));
    Ok(())
}

/// Receives a batch, and gives its sender the time to learn of it. `c/device.c` calls it after each post.
///
/// Its name is exported so that the profiler finds it, and leaves it out.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn wait_for_device() {
    let received = PEER.with_borrow_mut(|peer| match peer {
        Some(peer) => peer.receive(),
        None => Err("there is no other end".into()),
    });
    if let Err(error) = received {
        eprintln!("error: the other end: {error}");
        std::process::exit(1);
    }
    thread::sleep(AFTERWARDS);
}

impl Peer {
    fn receive(&mut self) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        let mut received = 0;
        while received < BATCH {
            match self.cq.poll()? {
                Some(Completion::Received(message)) => {
                    message.check()?;
                    let buf = message.into_buf();
                    if buf.len() != BUFFER_SIZE {
                        return Err(format!("it received {} bytes", buf.len()).into());
                    }
                    self.qp.recv.post(buf, 0)?;
                    received += 1;
                }
                Some(other) => return Err(format!("it received nothing but {other:?}").into()),
                None if Instant::now() < deadline => thread::yield_now(),
                None => return Err(format!("{received} messages of {BATCH} came").into()),
            }
        }
        Ok(())
    }
}

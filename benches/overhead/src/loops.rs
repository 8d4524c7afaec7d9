//! The loops with this crate, each doing what its C twins in `c/` do.
//!
//! Their names are exported so that the profiler finds them.
#![expect(unsafe_code, reason = "exports names")]

use std::error::Error;
use std::ops::Range;
use std::time::Duration;

use rdmacm::{Buf, Completion, CompletionQueue, Inline, Scoped, Work, WrList};

use crate::ends::Ends;
use crate::polls::empty_poll;
use crate::sizes::{BATCH, BUFFER_SIZE, INLINE_SIZE, RUN};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[cold]
fn wrong(what: &str) -> Box<dyn Error> {
    what.to_owned().into()
}

/// Polls until a request has completed, and takes out of its completion what `$out` says.
macro_rules! finish {
    ($queue:expr, $kind:path, $done:ident => $out:expr) => {
        loop {
            match $queue.poll()? {
                Some($kind($done)) => {
                    $done.check()?;
                    break $out;
                }
                None => empty_poll(),
                Some(_) => return Err(wrong("this is a completion of something else")),
            }
        }
    };
}

fn one(ends: &Ends) -> Outcome<Buf> {
    ends.pool.take().ok_or_else(|| wrong("no buffer is free"))
}

fn all(ends: &Ends) -> Vec<Buf> {
    std::iter::from_fn(|| ends.pool.take()).collect()
}

/// Takes a buffer out of the caller's free list.
#[inline(always)]
fn pop(free: &mut Vec<Buf>) -> Outcome<Buf> {
    free.pop().ok_or_else(|| wrong("no buffer is free"))
}

/// Polls until as many requests have completed, and puts their buffers into the free list.
#[inline(always)]
fn finish_all(cq: &mut CompletionQueue, count: usize, free: &mut Vec<Buf>) -> Outcome {
    for _ in 0..count {
        free.push(finish!(cq, Completion::Sent, sent => sent.into_buf()));
    }
    Ok(())
}

/// One buffer goes round.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_send(ends: &mut Ends, count: u64) -> Outcome {
    let mut buf = one(ends)?;
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    for number in 0..count {
        qp.send.send(buf, number)?;
        buf = finish!(cq, Completion::Sent, sent => sent.into_buf());
    }
    Ok(())
}

/// A free list of the caller's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_send_free_list(ends: &mut Ends, count: u64) -> Outcome {
    let mut free = all(ends);
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    for number in 0..count {
        qp.send.send(pop(&mut free)?, number)?;
        free.push(finish!(cq, Completion::Sent, sent => sent.into_buf()));
    }
    Ok(())
}

/// Lent memory goes round in a scope.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_send_scope(ends: &mut Ends, count: u64) -> Outcome {
    let memory = [1; BUFFER_SIZE];
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    let mut lent = qp.protection_domain().lend(&memory)?;
    // The poller learns of a new queue pair when it finds the queue empty.
    if cq.poll()?.is_some() {
        return Err(wrong("nothing is posted"));
    }
    qp.scope(cq, Duration::from_secs(1), |scope| {
        for number in 0..count {
            let posted = scope.post(Work::send(), lent, number);
            // What was refused is borrowed, and cannot be carried out.
            posted.map_err(rdmacm::Error::from)?;
            lent = finish!(scope, Scoped::Lent, sent => sent.into_lent());
        }
        Ok(())
    })?
}

/// One buffer goes round, over the queue pairs in turn.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_pairs(ends: &mut Ends, count: u64) -> Outcome {
    let mut buf = one(ends)?;
    let (qps, cq) = (&mut ends.qps, &mut ends.cq);
    for number in 0..count / qps.len() as u64 {
        for qp in qps.iter_mut() {
            qp.send.send(buf, number)?;
            buf = finish!(cq, Completion::Sent, sent => sent.into_buf());
        }
    }
    Ok(())
}

/// Bytes are copied into the request.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_inline(ends: &mut Ends, count: u64) -> Outcome {
    let memory = [1; INLINE_SIZE];
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    for number in 0..count {
        qp.send.post(Work::send(), Inline(&memory), number)?;
        finish!(cq, Completion::Bare, sent => drop(sent));
    }
    Ok(())
}

/// Two buffers go round together.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_pieces(ends: &mut Ends, count: u64) -> Outcome {
    let mut bufs = [one(ends)?, one(ends)?];
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    for number in 0..count {
        qp.send.post(Work::send(), bufs, number)?;
        let back = finish!(cq, Completion::Pieces, sent => sent.into_bufs());
        bufs = back.ok_or_else(|| wrong("there were two buffers"))?;
    }
    Ok(())
}

/// One buffer goes round, and its length is looked at.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_receive(ends: &mut Ends, count: u64) -> Outcome {
    let mut buf = one(ends)?;
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    let mut received = 0;
    for number in 0..count {
        qp.recv.post(buf, number)?;
        buf = finish!(cq, Completion::Received, message => message.into_buf());
        received += buf.len() as u64;
    }
    check(received, count)
}

/// The same with a shared receive queue.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_shared(ends: &mut Ends, count: u64) -> Outcome {
    let mut buf = one(ends)?;
    let (srq, cq) = (&mut ends.srq, &mut ends.cq);
    let mut received = 0;
    for number in 0..count {
        srq.post(buf, number)?;
        buf = finish!(cq, Completion::Received, message => message.into_buf());
        received += buf.len() as u64;
    }
    check(received, count)
}

fn check(received: u64, count: u64) -> Outcome {
    if received == count * BUFFER_SIZE as u64 {
        Ok(())
    } else {
        Err(wrong("bytes are missing"))
    }
}

/// Batches, with a free list.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_batch(ends: &mut Ends, count: u64) -> Outcome {
    batches(ends, 0..count / BATCH as u64)
}

/// The same on a queue pair whose batches are posted by calls. (With other numbers, or the two would become one function.)
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_batch_wr(ends: &mut Ends, count: u64) -> Outcome {
    batches(ends, 1..count / BATCH as u64 + 1)
}

#[inline(always)]
fn batches(ends: &mut Ends, numbers: Range<u64>) -> Outcome {
    let mut free = all(ends);
    let mut list = WrList::with_capacity(BATCH);
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    for number in numbers {
        let mut batch = qp.send.batch(&mut list);
        for _ in 0..BATCH {
            batch.post(Work::send(), pop(&mut free)?, number)?;
        }
        batch.submit()?;
        finish_all(cq, BATCH, &mut free)?;
    }
    Ok(())
}

/// Runs of requests of which the last is signalled, with a free list.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_run(ends: &mut Ends, count: u64) -> Outcome {
    let mut free = all(ends);
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    for number in 0..count / RUN as u64 {
        for _ in 1..RUN {
            let buf = pop(&mut free)?;
            qp.send.post(Work::send().unsignaled(), buf, number)?;
        }
        qp.send.send(pop(&mut free)?, number)?;
        finish_all(cq, RUN, &mut free)?;
    }
    Ok(())
}

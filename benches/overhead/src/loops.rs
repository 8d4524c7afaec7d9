//! The loops with this crate, each doing what its C twins in `c/loops.c` do.
//!
//! Their names are exported so that the profiler finds them.
#![expect(unsafe_code, reason = "exports names")]

use std::error::Error;
use std::hint::black_box;

use rdmacm::{Buf, Completion, CompletionQueue};

use crate::ends::{BUFFER_SIZE, Ends};

type Done = Result<(), Box<dyn Error>>;

#[cold]
fn unexpected(what: &str) -> Box<dyn Error> {
    what.to_owned().into()
}

/// Polls until a request of a send queue has completed.
#[inline(always)]
fn finish(cq: &mut CompletionQueue) -> Result<Buf, Box<dyn Error>> {
    loop {
        match cq.poll()? {
            Some(Completion::Sent(sent)) => {
                sent.check()?;
                return Ok(sent.into_buf());
            }
            None => {}
            Some(_) => return Err(unexpected("no completion of a send")),
        }
    }
}

/// Polls until a receive has completed.
#[inline(always)]
fn finish_receive(cq: &mut CompletionQueue) -> Result<Buf, Box<dyn Error>> {
    loop {
        match cq.poll()? {
            Some(Completion::Received(received)) => {
                received.check()?;
                return Ok(received.into_buf());
            }
            None => {}
            Some(_) => return Err(unexpected("no completion of a receive")),
        }
    }
}

fn take(ends: &Ends) -> Result<Buf, Box<dyn Error>> {
    ends.pool
        .take()
        .ok_or_else(|| unexpected("no buffer is free"))
}

/// One buffer goes round.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_send(ends: &mut Ends, count: u64) -> Done {
    let mut buf = take(ends)?;
    let Ends {
        qps: [qp, ..], cq, ..
    } = ends;
    for number in 0..count {
        qp.send.send(buf, number)?;
        buf = finish(cq)?;
    }
    Ok(())
}

/// A free list of the caller's.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_send_free_list(ends: &mut Ends, count: u64) -> Done {
    let mut free: Vec<Buf> = std::iter::from_fn(|| ends.pool.take()).collect();
    let Ends {
        qps: [qp, ..], cq, ..
    } = ends;
    for number in 0..count {
        let buf = free.pop().ok_or_else(|| unexpected("no buffer is free"))?;
        qp.send.send(buf, number)?;
        free.push(finish(cq)?);
    }
    Ok(())
}

/// One buffer goes round, over the queue pairs in turn.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_pairs(ends: &mut Ends, count: u64) -> Done {
    let mut buf = take(ends)?;
    let Ends { qps, cq, .. } = ends;
    for number in 0..count {
        let place = usize::try_from(number)? % qps.len();
        qps[place].send.send(buf, number)?;
        buf = finish(cq)?;
    }
    Ok(())
}

/// One buffer goes round, and its length is looked at.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_receive(ends: &mut Ends, count: u64) -> Done {
    let mut buf = take(ends)?;
    let Ends {
        qps: [qp, ..], cq, ..
    } = ends;
    let mut received = 0;
    for number in 0..count {
        qp.recv.post(buf, number)?;
        buf = finish_receive(cq)?;
        received += buf.len() as u64;
    }
    if black_box(received) != count * BUFFER_SIZE as u64 {
        return Err(unexpected("bytes are missing"));
    }
    Ok(())
}

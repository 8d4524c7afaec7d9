//! One message at a time.

use std::time::Instant;

use crate::side::{Side, sent};
use crate::{Args, Outcome};

/// When each message was posted.
struct Times(Vec<Instant>);

impl Times {
    fn new(args: &Args) -> Self {
        Self(Vec::with_capacity(args.iters))
    }

    #[inline]
    fn stamp(&mut self) {
        self.0.push(Instant::now());
    }

    /// The median time from one message to the next, in microseconds. As perftest does, without the two longest.
    fn typical(&self) -> Outcome<f64> {
        let mut gaps: Vec<_> = self
            .0
            .windows(2)
            .map(|pair| pair[1].duration_since(pair[0]))
            .collect();
        gaps.sort_unstable();
        gaps.truncate(gaps.len().saturating_sub(TAIL));
        let (Some(low), Some(high)) = (
            gaps.get(gaps.len().saturating_sub(1) / 2),
            gaps.get(gaps.len() / 2),
        ) else {
            return Err("too few messages for a median".into());
        };
        Ok((*low + *high).as_secs_f64() / 2.0 * 1e6)
    }
}

/// How many of the longest times perftest leaves out.
const TAIL: usize = 2;

/// Messages to and fro; `first` for the side that begins.
pub(crate) fn send(side: &mut Side, args: &Args, first: bool) -> Outcome<f64> {
    let mut times = Times::new(args);
    let mut buf = side.buf.take().ok_or("the buffer is posted")?;
    for number in 0..args.iters {
        if !first || number > 0 {
            let message = side.received()?;
            side.qp.recv.post(message, 0)?;
        }
        times.stamp();
        side.qp.send.send(buf, 0)?;
        buf = sent(&mut side.send_cq)?;
    }
    if first {
        drop(side.received()?);
    }
    Ok(times.typical()? / 2.0)
}

/// Writes to and fro. A message has come when its last byte is there.
pub(crate) fn write(side: &mut Side, args: &Args, first: bool) -> Outcome<f64> {
    let mut times = Times::new(args);
    let last = args
        .size
        .checked_sub(1)
        .ok_or("a message has a last byte")?;
    let mut buf = side.buf.take().ok_or("the buffer is posted")?;
    let mut seen = 0_u8;
    for number in 0..args.iters {
        if !first || number > 0 {
            seen = seen.wrapping_add(1);
            wait_for(side, last, seen);
        }
        times.stamp();
        buf[last] = buf[last].wrapping_add(1);
        side.qp.send.write(buf, side.peer, 0)?;
        buf = sent(&mut side.send_cq)?;
    }
    if first {
        wait_for(side, last, seen.wrapping_add(1));
    }
    Ok(times.typical()? / 2.0)
}

#[inline]
fn wait_for(side: &Side, place: usize, byte: u8) {
    let mut found = [!byte];
    while found != [byte] {
        side.exposed.read_at(place, &mut found);
    }
}

/// Reads, one after the other.
pub(crate) fn read(side: &mut Side, args: &Args) -> Outcome<f64> {
    let mut times = Times::new(args);
    let mut buf = side.buf.take().ok_or("the buffer is posted")?;
    for _ in 0..args.iters {
        times.stamp();
        side.qp.send.read(buf, side.peer, 0)?;
        buf = sent(&mut side.send_cq)?;
    }
    side.buf = Some(buf);
    times.typical()
}

//! As many messages as may be outstanding, all in the same memory, as perftest's.

use std::time::Instant;

use rdmacm::{Completion, Error, Lent, MappedMemory, Scope, Scoped, Work};

use crate::side::{PATIENCE, Side};
use crate::{Args, Outcome, Test};

/// How many messages there are to post, and how many of them have not completed.
struct Progress {
    left: usize,
    outstanding: usize,
    depth: usize,
}

impl Progress {
    fn new(args: &Args) -> Outcome<Self> {
        Ok(Self {
            left: args.iters,
            outstanding: 0,
            depth: usize::try_from(args.tx_depth)?,
        })
    }

    /// Counts one more posted, if one is to be.
    #[inline]
    fn post(&mut self) -> bool {
        let posts = self.left > 0 && self.outstanding < self.depth;
        if posts {
            self.left -= 1;
            self.outstanding += 1;
        }
        posts
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.outstanding == 0 && self.left == 0
    }
}

/// Moves the messages and gives MiB per second, from before the first post to the last completion.
pub(crate) fn client(side: &mut Side, args: &Args) -> Outcome<f64> {
    let start;
    match args.test {
        Test::ReadBw => {
            start = Instant::now();
            read(side, args)?;
        }
        test => {
            let message = MappedMemory::new(args.size)?;
            let lent = side.pd.lend(&message)?;
            let work = match test {
                Test::WriteBw => Work::write(side.peer),
                _ => Work::send(),
            };
            start = Instant::now();
            let Side { qp, send_cq, .. } = side;
            qp.scope(send_cq, PATIENCE, |scope| send(scope, work, &lent, args))??;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let bytes = f64::from(u32::try_from(args.size)?) * f64::from(u32::try_from(args.iters)?);
    Ok(bytes / f64::from(1 << 20) / seconds)
}

fn send<'m>(scope: &mut Scope<'_, 'm>, work: Work, message: &Lent<'m>, args: &Args) -> Outcome {
    let mut progress = Progress::new(args)?;
    let mut loans: Vec<_> = (0..progress.depth).map(|_| message.clone()).collect();
    while !progress.is_done() {
        while progress.post() {
            let loan = loans.pop().ok_or("every loan is posted")?;
            scope.post(work, loan, 0).map_err(Error::from)?;
        }
        while let Some(completion) = scope.poll()? {
            let Scoped::Lent(sent) = completion else {
                return Err("a completion of something else".into());
            };
            sent.check()?;
            loans.push(sent.into_lent());
            progress.outstanding -= 1;
        }
    }
    Ok(())
}

fn read(side: &mut Side, args: &Args) -> Outcome {
    let mut progress = Progress::new(args)?;
    while !progress.is_done() {
        while progress.post() {
            let whole = 0..args.size;
            side.qp.send.read_into(&side.exposed, whole, side.peer, 0)?;
        }
        while let Some(completion) = side.send_cq.poll()? {
            let Completion::Bare(read) = completion else {
                return Err("a completion of something else".into());
            };
            read.check()?;
            progress.outstanding -= 1;
        }
    }
    Ok(())
}

/// Takes the messages.
pub(crate) fn server(side: &mut Side, args: &Args) -> Outcome {
    for _ in 0..args.iters {
        let message = side.received()?;
        side.qp.recv.post(message, 0)?;
    }
    Ok(())
}

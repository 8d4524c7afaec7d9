//! As many messages as may be outstanding.

use std::time::Instant;

use rdmacm::Completion;

use crate::side::{Side, received};
use crate::{Args, Outcome, Test};

/// Moves the messages and gives MiB per second, from before the first post to the last completion.
pub(crate) fn client(side: &mut Side, args: &Args) -> Outcome<f64> {
    let depth = usize::try_from(args.tx_depth)?;
    let (mut posted, mut done) = (0, 0);
    let start = Instant::now();
    while done < args.iters {
        while posted < args.iters && posted - done < depth {
            post(side, args)?;
            posted += 1;
        }
        while let Some(completion) = side.send_cq.poll()? {
            match completion {
                Completion::Sent(sent) => {
                    sent.check()?;
                    side.bufs.push(sent.into_buf());
                }
                Completion::Bare(read) => read.check()?,
                _ => return Err("a completion of something else".into()),
            }
            done += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let bytes = f64::from(u32::try_from(args.size)?) * f64::from(u32::try_from(args.iters)?);
    Ok(bytes / f64::from(1 << 20) / seconds)
}

/// Posts one message. Reads all go into the same memory, as perftest's do; what is written or sent has a buffer of its own.
fn post(side: &mut Side, args: &Args) -> Outcome {
    let queue = &mut side.qp.send;
    if args.test == Test::ReadBw {
        return Ok(queue.read_into(&side.exposed, 0..args.size, side.peer, 0)?);
    }
    let buf = side.bufs.pop().ok_or("there is no buffer")?;
    match args.test {
        Test::WriteBw => queue.write(buf, side.peer, 0)?,
        _ => queue.send(buf, 0)?,
    }
    Ok(())
}

/// Takes the messages.
pub(crate) fn server(side: &mut Side, args: &Args) -> Outcome {
    for _ in 0..args.iters {
        let message = received(&mut side.recv_cq)?;
        side.qp.recv.post(message, 0)?;
    }
    Ok(())
}

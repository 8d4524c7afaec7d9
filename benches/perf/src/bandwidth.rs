//! As many messages as may be outstanding.

use std::time::Instant;

use rdmacm::Completion;

use crate::side::{Side, received};
use crate::{Args, Outcome, Test};

/// Moves the messages and gives MiB per second, from before the first post to the last completion.
pub(crate) fn client(side: &mut Side, args: &Args) -> Outcome<f64> {
    let (mut posted, mut done) = (0, 0);
    let start = Instant::now();
    while done < args.iters {
        while posted < args.iters {
            let Some(buf) = side.bufs.pop() else { break };
            match args.test {
                Test::WriteBw => side.qp.send.write(buf, side.peer, 0)?,
                Test::ReadBw => side.qp.send.read(buf, side.peer, 0)?,
                _ => side.qp.send.send(buf, 0)?,
            }
            posted += 1;
        }
        while let Some(completion) = side.send_cq.poll()? {
            let Completion::Sent(sent) = completion else {
                return Err("a completion of something else".into());
            };
            sent.check()?;
            side.bufs.push(sent.into_buf());
            done += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let bytes = f64::from(u32::try_from(args.size)?) * f64::from(u32::try_from(args.iters)?);
    Ok(bytes / f64::from(1 << 20) / seconds)
}

/// Takes the messages.
pub(crate) fn server(side: &mut Side, args: &Args) -> Outcome {
    for _ in 0..args.iters {
        let message = received(&mut side.recv_cq)?;
        side.qp.recv.post(message, 0)?;
    }
    Ok(())
}

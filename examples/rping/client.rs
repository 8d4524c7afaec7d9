//! The client: it tells where a ping is, then where to write it back, and looks at what was written.

use std::time::Duration;

use rdmacm::{
    Access, CmId, ConnParam, EventChannel, EventKind, Exposed, RemoteMemory, RetryCount, RnrRetry,
};

use crate::end::{End, Next};
use crate::tool::{self, Outcome};
use crate::{Args, ping};

/// How long each resolution may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Does the pings, and leaves.
pub(crate) fn run(args: &Args) -> Outcome {
    let server = tool::host(args.address.as_deref().unwrap_or_default(), args.port)?;
    let source = args.source.as_deref().map(|source| tool::host(source, 0));
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel)?;
    id.resolve_addr(source.transpose()?, server, PATIENCE)?;
    answer(&channel)?;
    id.resolve_route(PATIENCE)?;
    answer(&channel)?;
    args.step("resolved address and route");
    let mut end = End::new(&id.context()?, channel, |pd, init| {
        if args.own_qp > 0 {
            id.create_external_qp(pd, init)
        } else {
            id.create_qp(pd, init)
        }
    })?;
    let size = args.size as usize;
    let mut start = end.pd.expose(size, Access::READ)?;
    let sink = end.pd.expose(size, Access::WRITE)?;
    id.connect(param().retry_count(RetryCount::new(7).unwrap_or_default()))?;
    if let EventKind::ConnectResponse(_) = answer(&end.channel)? {
        id.establish()?;
    }
    args.step("connected");
    let result = pings(args, &mut end, &mut start, &sink);
    let left = id.disconnect().and(end.close());
    result?;
    Ok(left?)
}

/// What both sides say about the connection.
pub(crate) fn param() -> ConnParam<'static> {
    ConnParam::new()
        .responder_resources(1)
        .initiator_depth(1)
        .rnr_retry(RnrRetry::FOREVER)
}

/// The next event, or the error that it stands for.
fn answer(channel: &EventChannel) -> Outcome<EventKind> {
    loop {
        if let Some(event) = channel.wait(None)? {
            return match event.failure() {
                Some(error) => Err(error.into()),
                None => Ok(event.kind),
            };
        }
    }
}

fn pings(args: &Args, end: &mut End, start: &mut Exposed, sink: &Exposed) -> Outcome {
    let mut written = vec![0; sink.len()];
    for number in (0..u32::MAX).cycle().take(match args.count {
        0 => usize::MAX,
        count => count as usize,
    }) {
        let content = ping::content(number, start.len());
        start.write_at(0, &content);
        for memory in [start.remote(), sink.remote()] {
            if !tell(end, memory)? {
                eprintln!("the server has ended the connection");
                return Ok(());
            }
            args.step(&format!("the server is done with {memory:?}"));
        }
        sink.read_at(0, &mut written);
        if args.validate > 0 && written != content {
            return Err(format!("ping {number} came back with other bytes").into());
        }
        if args.verbose > 0 {
            println!("ping {number}: {}", ping::text(&written));
        }
    }
    Ok(())
}

/// Tells the server of memory, and waits until it is done with it; false when it has left.
fn tell(end: &mut End, memory: RemoteMemory) -> Outcome<bool> {
    end.tell(memory)?;
    loop {
        match end.next()? {
            Next::Message(_) => return Ok(true),
            Next::Read | Next::Written(_) => {}
            Next::Ended => return Ok(false),
        }
    }
}

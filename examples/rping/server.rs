//! The server: it reads each ping out of the client's memory, and writes it back.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use rdmacm::{Access, Buf, CmId, ConnRequest, EventChannel, EventKind, Exposed, RemoteMemory};

use crate::client::param;
use crate::end::{End, Next};
use crate::tool::{self, Outcome};
use crate::{Args, ping};

/// Serves one client, or with `-P` each on a thread of its own.
pub(crate) fn run(args: &Args) -> Outcome {
    let addr = match &args.address {
        Some(name) => tool::host(name, args.port)?,
        None => SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port)),
    };
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel)?;
    listener.bind_addr(addr)?;
    // As many requests may wait as the kernel lets: a burst of clients is none too many.
    listener.listen(0)?;
    println!("listening on {}", listener.local_addr().unwrap_or(addr));
    loop {
        let Some(EventKind::ConnectRequest(request)) = channel.wait(None)?.map(|event| event.kind)
        else {
            continue;
        };
        if !args.persistent {
            return serve(args, request);
        }
        let args = args.clone();
        // One failed connection must not stop the server. One without a thread is rejected with its request.
        let started = thread::Builder::new().spawn(move || {
            let peer = request.peer_addr();
            if let Err(error) = serve(&args, request) {
                eprintln!("error: {error}, with {peer:?}");
            }
        });
        if let Err(error) = started {
            eprintln!("error: no thread for a client: {error}");
        }
    }
}

/// Serves one client until it leaves.
fn serve(args: &Args, request: ConnRequest) -> Outcome {
    // Its events come to a channel of its own, as another thread reads the listener's.
    let channel = EventChannel::new()?;
    request.migrate(&channel)?;
    let own_qp = args.own_qp > 0;
    let mut end = End::new(&request.context()?, channel, |pd, init| {
        if own_qp {
            request.create_external_qp(pd, init)
        } else {
            request.create_qp(pd, init)
        }
    })?;
    let size = args.size as usize;
    // Over iWARP a read goes only into memory that the peer may write.
    let place = end.pd.expose(size, Access::WRITE)?;
    let pool = end.pd.pool(1, size)?;
    let data = pool.take().ok_or("the pool has one buffer")?;
    let id = if own_qp {
        request.accept_with(&param())?
    } else {
        request.accept()?
    };
    args.step("accepted");
    let result = pings(args, &mut end, &place, data);
    let left = id.disconnect().and(end.close());
    args.step("the connection has ended");
    result?;
    Ok(left?)
}

fn pings(args: &Args, end: &mut End, place: &Exposed, mut data: Buf) -> Outcome {
    for number in (0..u32::MAX).cycle() {
        let Some(start) = memory(end)? else {
            return Ok(());
        };
        args.step(&format!("reading from {start:?}"));
        let len = len_of(start, place.len())?;
        end.qp.send.read_into(place, 0..len, start, 0)?;
        match end.next()? {
            Next::Read => {}
            Next::Ended => return Ok(()),
            _ => return Err(EARLY.into()),
        }
        data.set_len(len);
        place.read_at(0, &mut data);
        if args.validate > 0 && data[..] != ping::content(number, data.len())[..] {
            return Err(format!("ping {number} has other bytes than a client's").into());
        }
        if args.verbose > 0 {
            println!("ping {number}: {}", ping::text(&data));
        }
        end.tell(READY)?;

        let Some(sink) = memory(end)? else {
            return Ok(());
        };
        args.step(&format!("writing to {sink:?}"));
        data.set_len(ping::text_len(&data));
        end.qp.send.write(data, sink, 0)?;
        data = match end.next()? {
            Next::Written(written) => written,
            Next::Ended => return Ok(()),
            _ => return Err(EARLY.into()),
        };
        end.tell(READY)?;
    }
    Ok(())
}

/// The message that says no more than that the client may go on.
const READY: RemoteMemory = RemoteMemory::new(0, 0, 0);

/// What is wrong with a client that does not wait.
const EARLY: &str = "the client has sent a message too early";

/// How many bytes to read.
fn len_of(memory: RemoteMemory, room: usize) -> Result<usize, Box<dyn Error>> {
    let len = usize::try_from(memory.len())?;
    if (1..=room).contains(&len) {
        Ok(len)
    } else {
        Err(format!("the client's pings have {len} bytes, this server (-S) takes {room}").into())
    }
}

/// The memory that the client tells of next; `None` when it has left.
fn memory(end: &mut End) -> Outcome<Option<RemoteMemory>> {
    match end.next()? {
        Next::Message(memory) => Ok(Some(memory)),
        Next::Read | Next::Written(_) => {
            Err("a read or write has ended that was not asked for".into())
        }
        Next::Ended => Ok(None),
    }
}

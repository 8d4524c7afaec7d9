//! Serves many connections as tasks of a tokio runtime, on one thread: each awaits its own completion queue, and sends every message
//! back from the buffer that it arrived in. A connection that ends has its task aborted, which drops what belongs to it.
//!
//! Usage: `tokio_echo ADDR[:PORT] [--count N]`. Try it with several of the example `connect`.

#![expect(
    unsafe_code,
    reason = "tokio wants to be promised that a descriptor stays open"
)]

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use clap::Parser;
use common::link::{self, End};
use rdmacm::{CmId, Completion, ConnRequest, Event, EventChannel, EventKind, Token};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

/// Requests in each queue of a connection.
const DEPTH: u32 = 5;

/// Serves many connections as tasks.
#[derive(Parser)]
struct Args {
    /// Where to listen; the port is 7471 if none is given.
    #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
    addr: SocketAddr,
    /// How many connections to serve before the program ends; without it, until it is interrupted.
    #[arg(long)]
    count: Option<u64>,
}

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A connection: the id, which says when it ends, and the task that serves it until then.
struct Peer {
    _id: CmId,
    task: JoinHandle<()>,
}

fn main() -> ExitCode {
    common::report(run(&Args::parse()))
}

fn run(args: &Args) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> Outcome {
    let (_listener, channel) = link::listen(args.addr)?;
    let events = watched(channel.as_fd())?;
    let mut peers: HashMap<Token, Peer> = HashMap::new();
    let mut served = 0;
    while args.count != Some(served) {
        let event = next_event(&channel, &events).await?;
        let failed = event.failure().is_some();
        match event.kind {
            // One failed connection must not stop the server.
            EventKind::ConnectRequest(request) => match accept(request) {
                Ok((token, peer)) => drop(peers.insert(token, peer)),
                Err(error) => eprintln!("error: {error}"),
            },
            _ if failed => {
                if let Some(peer) = peers.remove(&event.token) {
                    peer.task.abort();
                    served += 1;
                    println!("one is gone, {} left", peers.len());
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The next event of a channel.
async fn next_event(channel: &EventChannel, events: &AsyncFd<OwnedFd>) -> Outcome<Event> {
    loop {
        if let Some(event) = channel.try_event()? {
            return Ok(event);
        }
        // Looked for once more after this: nothing is missed that came meanwhile.
        events.readable().await?.clear_ready();
    }
}

fn accept(request: ConnRequest) -> Outcome<(Token, Peer)> {
    let make_qp = |pd: &_, init: &_| request.create_qp(pd, init);
    let end = End::new(&request.context()?, DEPTH, common::MESSAGE.len(), make_qp)?;
    let id = request.accept()?;
    let task = tokio::spawn(async {
        if let Err(error) = echo(end).await {
            eprintln!("error: {error}");
        }
    });
    Ok((id.token(), Peer { _id: id, task }))
}

async fn echo(mut end: End) -> Outcome {
    let completions = watched(end.cq.event_fd().expect("made with a channel"))?;
    loop {
        while let Some(completion) = end.cq.poll()? {
            match completion {
                Completion::Received(received) => {
                    received.check()?;
                    end.qp.send.send(received.into_buf(), 0)?;
                }
                Completion::Sent(sent) => {
                    sent.check()?;
                    end.qp.recv.post(sent.into_buf(), 0)?;
                }
                _ => {}
            }
        }
        // Arming looks once more.
        if !end.cq.arm()? {
            completions.readable().await?.clear_ready();
        }
    }
}

/// A descriptor for tokio to watch, beside whoever has it.
fn watched(fd: BorrowedFd<'_>) -> Outcome<AsyncFd<OwnedFd>> {
    let fd = fd.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` keeps its one descriptor open for as long as it lives.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

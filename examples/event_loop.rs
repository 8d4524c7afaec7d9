//! Serves many connections on one thread: one event channel, one completion queue, one pool of buffers, and one place to wait.
//! Every message is sent back from the buffer that it arrived in.
//!
//! Usage: `event_loop ADDR[:PORT] [--count N]`. Try it with several of the example `connect`.

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;

use clap::Parser;
use common::link;
use rdmacm::{
    CmId, Completion, CompletionQueue, ConnRequest, Error, EventKind, Pool, ProtectionDomain,
    QueuePair, QueuePairInit, Token,
};
use rustix::event::{PollFd, PollFlags, poll};

/// Requests in each queue of a connection.
const DEPTH: u32 = 4;
/// Connections at a time.
const CONNECTIONS: u32 = 64;

/// Serves many connections on one thread.
#[derive(Parser)]
struct Args {
    /// Where to listen: an address of one device; the port is 7471 if none is given.
    #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
    addr: SocketAddr,
    /// How many connections to serve before the program ends; without it, until it is interrupted.
    #[arg(long)]
    count: Option<u64>,
}

/// A connection, from its request to its end. The order is the order of dropping.
struct Peer {
    qp: QueuePair,
    _id: CmId,
}

/// The server. Peers are known by the number that their work requests carry.
struct Server {
    peers: HashMap<u64, Peer>,
    numbers: HashMap<Token, u64>,
    accepted: u64,
    cq: CompletionQueue,
    pool: Pool,
    pd: ProtectionDomain,
}

fn main() -> ExitCode {
    common::report(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Error> {
    let (listener, channel) = link::listen(args.addr)?;
    // A listener on one address has its device already; one on every address would make these for each request's device.
    let context = listener.context()?;
    let pd = context.alloc_pd()?;
    let mut server = Server {
        peers: HashMap::new(),
        numbers: HashMap::new(),
        accepted: 0,
        cq: context.create_cq_with_channel(CONNECTIONS * DEPTH * 2)?,
        pool: pd.pool((CONNECTIONS * DEPTH) as usize, common::MESSAGE.len())?,
        pd,
    };
    loop {
        while let Some(event) = channel.try_event()? {
            server.on_event(event.token, event.kind);
        }
        server.on_completions()?;
        if args.count == Some(server.accepted) && server.peers.is_empty() {
            return Ok(());
        }
        // What came before this is seen at once, what comes after makes a descriptor readable, and a signal ends the wait only.
        if !server.cq.arm()? {
            let completions = server.cq.event_fd().expect("made with a channel");
            let mut fds = [channel.as_fd(), completions]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, None);
        }
    }
}

impl Server {
    fn on_event(&mut self, id: Token, kind: EventKind) {
        match kind {
            // One failed connection must not stop the server.
            EventKind::ConnectRequest(request) => match self.accept(request) {
                Ok(peer) => println!("accepted {peer}"),
                Err(error) => eprintln!("error: {error}"),
            },
            EventKind::Established(_) => {}
            EventKind::Disconnected(_)
            | EventKind::Rejected(_)
            | EventKind::Unreachable(_)
            | EventKind::ConnectError(_)
            | EventKind::DeviceRemoval => {
                if let Some(&number) = self.numbers.get(&id) {
                    self.end(number);
                }
            }
            other => println!("{other:?}"),
        }
    }

    /// Ends a connection. Nothing waits: the next polls give what is posted back to the pool.
    fn end(&mut self, number: u64) {
        self.numbers.retain(|_, other| *other != number);
        let Some(peer) = self.peers.remove(&number) else {
            return;
        };
        if let Err(error) = peer.qp.destroy() {
            eprintln!("error: {error}");
        }
        println!("one is gone, {} left", self.peers.len());
    }

    fn accept(&mut self, request: ConnRequest) -> Result<u64, Error> {
        let number = self.accepted;
        let init = QueuePairInit::new(&self.cq.handle())
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH);
        let mut qp = request.create_qp(&self.pd, &init)?;
        for buf in (0..DEPTH).map_while(|_| self.pool.take()) {
            qp.recv.post(buf, number)?;
        }
        let id = request.accept()?;
        self.accepted += 1;
        self.numbers.insert(id.token(), number);
        self.peers.insert(number, Peer { qp, _id: id });
        Ok(number)
    }

    fn on_completions(&mut self) -> Result<(), Error> {
        loop {
            let (number, posted) = {
                let Some(completion) = self.cq.poll()? else {
                    return Ok(());
                };
                if !completion.status().is_success() {
                    // The connection is ending; its event says so.
                    continue;
                }
                match completion {
                    Completion::Received(received) => {
                        let (number, buf) = (received.user(), received.into_buf());
                        let peer = self.peers.get_mut(&number);
                        (number, peer.map(|peer| peer.qp.send.send(buf, number)))
                    }
                    Completion::Sent(sent) => {
                        let (number, buf) = (sent.user(), sent.into_buf());
                        let peer = self.peers.get_mut(&number);
                        (number, peer.map(|peer| peer.qp.recv.post(buf, number)))
                    }
                    _ => continue,
                }
            };
            // A peer that cannot be answered has failed, and nobody else has.
            if let Some(Err(refused)) = posted {
                eprintln!("error: {}", Error::from(refused));
                self.end(number);
            }
        }
    }
}

//! Serves many connections on one thread: one event channel, one completion queue, one pool of buffers, and one place to wait.
//! Every message is sent back from the buffer that it arrived in.
//!
//! Usage: `event_loop ADDR[:PORT] [--count N]`. Try it with several of the example `connect`.

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use common::link;
use rdmacm::{
    CmId, Completion, CompletionQueue, ConnRequest, Error, Event, EventKind, Pool, QueuePair,
    QueuePairInit, Token,
};

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
    id: CmId,
}

/// The server. Peers are known by the number that their work requests carry.
struct Server {
    peers: HashMap<u64, Peer>,
    numbers: HashMap<Token, u64>,
    accepted: u64,
    cq: CompletionQueue,
    pool: Pool,
}

fn main() -> ExitCode {
    common::report(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Error> {
    let (listener, channel) = link::listen(args.addr)?;
    // A listener on one address has its device already; one on every address would make these for each request's device.
    let context = listener.context()?;
    let mut server = Server {
        peers: HashMap::new(),
        numbers: HashMap::new(),
        accepted: 0,
        cq: context.create_cq_with_channel(CONNECTIONS * DEPTH * 2)?,
        pool: context
            .alloc_pd()?
            .pool((CONNECTIONS * DEPTH) as usize, common::MESSAGE.len())?,
    };
    loop {
        while let Some(event) = channel.try_event()? {
            server.on_event(event);
        }
        server.on_completions()?;
        if args.count == Some(server.accepted) && server.peers.is_empty() {
            return Ok(());
        }
        // What came before this is seen at once, and what comes after ends the wait.
        if !server.cq.arm()? {
            link::something(&server.cq, &channel);
        }
    }
}

impl Server {
    fn on_event(&mut self, event: Event) {
        let failed = event.failure().is_some();
        match event.kind {
            // One failed connection must not stop the server.
            EventKind::ConnectRequest(request) => match self.accept(request) {
                Ok(peer) => println!("accepted {peer}"),
                Err(error) => eprintln!("error: {error}"),
            },
            _ if failed => {
                let number = self.numbers.remove(&event.token);
                if let Some(peer) = number.and_then(|number| self.peers.remove(&number)) {
                    // Nothing waits: the next polls give what is posted back to the pool.
                    if let Err(error) = peer.qp.destroy() {
                        eprintln!("error: {error}");
                    }
                    println!("one is gone, {} left", self.peers.len());
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self, request: ConnRequest) -> Result<u64, Error> {
        let number = self.accepted;
        let init = QueuePairInit::new(&self.cq.handle())
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH);
        let mut qp = request.create_qp(self.pool.protection_domain(), &init)?;
        for buf in (0..DEPTH).map_while(|_| self.pool.take()) {
            qp.recv.post(buf, number)?;
        }
        let id = request.accept()?;
        self.accepted += 1;
        self.numbers.insert(id.token(), number);
        self.peers.insert(number, Peer { qp, id });
        Ok(number)
    }

    fn on_completions(&mut self) -> Result<(), Error> {
        while let Some(completion) = self.cq.poll()? {
            let (number, checked, buf, has_come) = match completion {
                Completion::Received(received) => {
                    let (number, checked) = (received.user(), received.check());
                    (number, checked, received.into_buf(), true)
                }
                Completion::Sent(sent) => (sent.user(), sent.check(), sent.into_buf(), false),
                _ => continue,
            };
            let Some(peer) = self.peers.get_mut(&number) else {
                continue;
            };
            let posted = checked.and_then(|()| match has_come {
                true => Ok(peer.qp.send.send(buf, number)?),
                false => Ok(peer.qp.recv.post(buf, number)?),
            });
            // A peer has failed, and nobody else has. Its end is an event, even where the machine there is dead.
            if let Err(error) = posted {
                eprintln!("error: {error}");
                let _ = peer.id.disconnect();
            }
        }
        Ok(())
    }
}

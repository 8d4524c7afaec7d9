//! Sends datagrams and gets them back: the connection manager finds the server's queue pair, and verbs do the rest.
//!
//! Usage: `ud_echo ADDR[:PORT]`, and elsewhere `ud_echo ADDR[:PORT] TEXT...`. The server knows nobody before a message comes, and
//! answers whoever its header names.

mod common;

use std::collections::hash_map::{Entry, HashMap};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use common::link;
use rdmacm::{
    CmId, Completion, CompletionQueue, DatagramPair, DatagramWork, Error, EventChannel, EventKind,
    Grh, Pool, QueuePairInit, UDP_QKEY,
};

/// Requests in each queue, as many as it has by default.
const DEPTH: u32 = 16;

/// Sends datagrams back; with texts, sends them and prints what comes back.
#[derive(Parser)]
struct Args {
    /// The server's address, one of a device.
    #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
    addr: SocketAddr,
    /// Texts of at most 256 bytes to send to the server that listens there.
    #[arg(num_args = 0..=16)]
    texts: Vec<String>,
    /// How many messages to answer before the server ends; without it, until it is interrupted.
    #[arg(long)]
    count: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    common::report(match &args.texts[..] {
        [] => serve(args.addr, args.count),
        texts => ask(args.addr, texts),
    })
}

/// A queue pair with its completion queue, and receives posted.
fn open(id: &CmId) -> Result<(DatagramPair, CompletionQueue, Pool), Error> {
    let pd = id.context()?.alloc_pd()?;
    let cq = pd.context().create_cq_with_channel(2 * DEPTH)?;
    let mut pair = id.create_datagram_qp(&pd, &QueuePairInit::new(&cq.handle()))?;
    // A message that is longer than its receive would end the pair: this is room for any, behind its header.
    let size = Grh::LEN + pair.send.max_message_len() as usize;
    let pool = pd.pool(2 * DEPTH as usize, size)?;
    for buf in (0..DEPTH).map_while(|_| pool.take()) {
        pair.recv.post(buf, 0)?;
    }
    Ok((pair, cq, pool))
}

fn serve(addr: SocketAddr, count: Option<u64>) -> Result<(), Error> {
    let channel = EventChannel::new()?;
    let listener = CmId::new_datagram(&channel)?;
    listener.bind_addr(addr)?;
    listener.listen(0)?;
    let (mut pair, mut cq, _pool) = open(&listener)?;
    println!("listening on {}", listener.local_addr().unwrap_or(addr));
    let qp_num = pair.qp_num();
    std::thread::scope(|scope| {
        // Who asks is told the number of the queue pair; a wake without an event ends it.
        scope.spawn(|| {
            while let Ok(Some(event)) = channel.wait(None) {
                if let EventKind::LookupRequest(request) = event.kind {
                    if let Err(failed) = request.accept(qp_num, b"") {
                        eprintln!("error: {}", failed.error());
                    }
                }
            }
        });
        let result = echo(&mut pair, &mut cq, count);
        channel.wake();
        result
    })?;
    pair.close(&mut cq, link::PATIENCE)
}

/// Sends messages back, in the buffers that they came in.
fn echo(
    pair: &mut DatagramPair,
    cq: &mut CompletionQueue,
    count: Option<u64>,
) -> Result<(), Error> {
    let (mut known, mut answered) = (HashMap::new(), 0);
    while count != Some(answered) {
        cq.wait(None)?;
        while let Some(completion) = cq.poll()? {
            match completion {
                Completion::Datagram(message) if message.status().is_success() => {
                    let header = message.grh().expect("over RoCE there is one");
                    let from = (header.source(), message.src_qp());
                    let peer = match known.entry(from) {
                        Entry::Occupied(known) => *known.get(),
                        Entry::Vacant(unknown) => {
                            println!("queue pair {} at {}", from.1, from.0.to_ip());
                            let ah = pair.protection_domain().create_ah(&message.sender()?)?;
                            *unknown.insert(pair.send.add_peer(&ah, from.1, UDP_QKEY)?)
                        }
                    };
                    let work = DatagramWork::send(peer);
                    pair.send.post(work, message.into_buf(), 0)?;
                }
                Completion::Sent(sent) => {
                    answered += 1;
                    pair.recv.post(sent.into_buf(), 0)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn ask(addr: SocketAddr, texts: &[String]) -> Result<(), Error> {
    let channel = EventChannel::new()?;
    let id = CmId::new_datagram(&channel)?;
    link::find(&id, &channel, addr)?;
    let (mut pair, mut cq, pool) = open(&id)?;
    id.look_up(b"")?;
    let EventKind::LookedUp(there) = link::answer(&channel)? else {
        return Ok(());
    };
    let ah = pair.protection_domain().create_ah(&there.address())?;
    let server = pair.send.add_peer(&ah, there.qp_num(), there.qkey())?;
    for text in texts {
        let mut buf = pool.take().expect("there is one for each text");
        buf.fill_from(&text.as_bytes()[..text.len().min(256)]);
        pair.send.send(server, buf, 0)?;
    }
    let mut left = texts.len();
    while left > 0 && cq.wait(Some(link::PATIENCE))? {
        while let Some(completion) = cq.poll()? {
            if let Completion::Datagram(message) = completion {
                message.check()?;
                println!("{}", String::from_utf8_lossy(message.payload()));
                left -= 1;
            }
        }
    }
    if left > 0 {
        println!("{left} without an answer: datagrams may be lost");
    }
    pair.close(&mut cq, link::PATIENCE)
}

//! Sends datagrams and gets them back: the connection manager finds the server's queue pair, and verbs do the rest.
//!
//! Usage: `ud_echo ADDR[:PORT]`, and elsewhere `ud_echo ADDR[:PORT] TEXT...`. The server knows nobody before a message comes, and
//! answers whoever its header names.

mod common;

use std::collections::hash_map::{Entry, HashMap};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use rdmacm::{
    CmId, Completion, CompletionQueue, Context, DatagramPair, DatagramWork, Error, EventChannel,
    EventKind, Grh, Pool, QueuePairInit, UDP_QKEY,
};

/// Requests in each queue.
const DEPTH: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(2);

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
    common::report(if args.texts.is_empty() {
        serve(args.addr, args.count)
    } else {
        ask(args.addr, &args.texts)
    })
}

/// A queue pair with its completion queue, and receives posted.
fn open(id: &CmId, context: &Context) -> Result<(DatagramPair, CompletionQueue, Pool), Error> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq_with_channel(2 * DEPTH)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH);
    let mut pair = id.create_datagram_qp(&pd, &init)?;
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
    let (mut pair, mut cq, _pool) = open(&listener, &listener.context()?)?;
    println!("listening on {}", listener.local_addr().unwrap_or(addr));
    let qp_num = pair.qp_num();
    thread::scope(|scope| {
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
    pair.close(&mut cq, PATIENCE)
}

/// Sends messages back, in the buffers that they came in.
fn echo(
    pair: &mut DatagramPair,
    cq: &mut CompletionQueue,
    count: Option<u64>,
) -> Result<(), Error> {
    let mut known = HashMap::new();
    let mut answered = 0;
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
    id.resolve_addr(None, addr, PATIENCE)?;
    answer(&channel)?;
    id.resolve_route(PATIENCE)?;
    answer(&channel)?;
    let (mut pair, mut cq, pool) = open(&id, &id.context()?)?;
    id.look_up(b"")?;
    let EventKind::LookedUp(there) = answer(&channel)? else {
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
    while left > 0 && cq.wait(Some(PATIENCE))? {
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
    pair.close(&mut cq, PATIENCE)
}

/// The next event, or the error that it stands for.
fn answer(channel: &EventChannel) -> Result<EventKind, Error> {
    loop {
        if let Some(event) = channel.wait(None)? {
            return event.failure().map_or(Ok(event.kind), Err);
        }
    }
}

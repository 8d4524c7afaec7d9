//! Reads, writes and counts in a server's memory, without the server's program doing anything.
//!
//! Usage: `one_sided serve ADDR[:PORT]`, and elsewhere `one_sided visit ADDR[:PORT] TEXT`. The server tells each visitor where
//! its memory is by the private data of its accept; a visitor counts itself, leaves its text, and reads what was there before.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use rdmacm::{
    Access, Buf, CmId, Completion, CompletionQueue, ConnParam, Error, EventChannel, EventKind,
    QueuePairInit, RemoteMemory,
};

/// A counter of eight bytes, and a text behind it.
const SIZE: u32 = 64;

/// Reads, writes and counts in a server's memory.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(Subcommand)]
enum Side {
    /// Exposes memory to one visitor after the other.
    Serve {
        /// Where to listen: an address of one device.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
        /// How many visitors to wait for.
        #[arg(long, default_value_t = 2)]
        count: u32,
    },
    /// Counts itself, reads the text that is there, and leaves another.
    Visit {
        /// The server.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
        /// The text to leave, at most 56 bytes.
        text: String,
    },
}

fn main() -> ExitCode {
    common::report(match Args::parse().side {
        Side::Serve { addr, count } => serve(addr, count),
        Side::Visit { addr, text } => visit(addr, text.as_bytes()),
    })
}

fn serve(addr: SocketAddr, count: u32) -> Result<(), Error> {
    let channel = EventChannel::new()?;
    let listener = CmId::new(&channel)?;
    listener.bind_addr(addr)?;
    listener.listen(0)?;
    let pd = listener.context()?.alloc_pd()?;
    let memory = pd.expose(SIZE as usize, Access::all())?;
    println!("listening on {}", listener.local_addr().unwrap_or(addr));
    let mut cq = pd.context().create_cq(2)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(1)
        .max_recv_wr(1);
    let where_it_is = memory.remote().to_bytes();
    for _ in 0..count {
        let request = loop {
            // What else comes is about visitors that have gone.
            let event = channel.wait(None)?;
            if let Some(EventKind::ConnectRequest(request)) = event.map(|event| event.kind) {
                break request;
            }
        };
        let qp = request.create_qp(&pd, &init)?;
        let id = request.accept_with(&ConnParam::new().private_data(&where_it_is[..]))?;
        loop {
            let event = channel.wait(None)?;
            if event.is_some_and(|event| event.id == id.token() && event.failure().is_some()) {
                break;
            }
        }
        qp.destroy()?;
        // Its room in the completion queue is free again once the queue was polled and found empty.
        while cq.poll()?.is_some() {}
        let mut bytes = [0; SIZE as usize];
        memory.read_at(0, &mut bytes);
        let (counter, text) = bytes.split_at(8);
        println!("visitor {}: {}", count_in(counter), text_in(text));
    }
    Ok(())
}

fn visit(addr: SocketAddr, text: &[u8]) -> Result<(), Error> {
    let patience = Duration::from_secs(5);
    let channel = EventChannel::new()?;
    let id = CmId::new(&channel)?;
    id.resolve_addr(None, addr, patience)?;
    answer(&channel)?;
    id.resolve_route(patience)?;
    answer(&channel)?;
    let pd = id.context()?.alloc_pd()?;
    let mut cq = pd.context().create_cq_with_channel(2)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(1)
        .max_recv_wr(1);
    let mut qp = id.create_qp(&pd, &init)?;
    id.connect(ConnParam::new())?;
    let EventKind::Established(accepted) = answer(&channel)? else {
        return Ok(());
    };
    let told = accepted.private_data().first_chunk();
    let memory = RemoteMemory::from_bytes(*told.expect("the server tells where its memory is"));
    let counter = memory.part(0, 8).expect("the server exposes more");
    let place = memory
        .part(8, SIZE - 8)
        .expect("the server exposes as much");

    let pool = pd.pool(1, SIZE as usize)?;
    let mut buf = pool.take().expect("nobody else takes one");
    qp.send.fetch_add(buf, counter, 1, 0)?;
    buf = done(&mut cq)?;
    println!("visitors before: {}", count_in(&buf));
    buf.set_len(place.len() as usize);
    qp.send.read(buf, place, 0)?;
    buf = done(&mut cq)?;
    println!("the last one left: {}", text_in(&buf));
    buf.fill(0);
    let len = text.len().min(buf.len());
    buf[..len].copy_from_slice(&text[..len]);
    qp.send.write(buf, place, 0)?;
    drop(done(&mut cq)?);
    id.disconnect()?;
    qp.destroy()
}

/// The next event, or the error that it stands for.
fn answer(channel: &EventChannel) -> Result<EventKind, Error> {
    loop {
        if let Some(event) = channel.wait(None)? {
            return event.failure().map_or(Ok(event.kind), Err);
        }
    }
}

/// Waits for the one request that is posted, and gives its buffer back.
fn done(cq: &mut CompletionQueue) -> Result<Buf, Error> {
    loop {
        cq.wait(None)?;
        if let Some(Completion::Sent(sent)) = cq.poll()? {
            sent.check()?;
            return Ok(sent.into_buf());
        }
    }
}

fn count_in(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn text_in(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

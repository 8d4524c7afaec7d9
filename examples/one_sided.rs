//! Reads, writes and counts in a server's memory, without the server's program doing anything.
//!
//! Usage: `one_sided serve ADDR[:PORT]`, and elsewhere `one_sided visit ADDR[:PORT] TEXT`. The server tells each visitor where
//! its memory is by the private data of its accept; a visitor counts itself, leaves its text, and reads what was there before.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use common::link;
use rdmacm::{
    Access, Buf, Completion, CompletionQueue, ConnParam, Error, EventChannel, QueuePairInit,
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
    let (listener, channel) = link::listen(addr)?;
    let pd = listener.context()?.alloc_pd()?;
    let memory = pd.expose(SIZE as usize, Access::all())?;
    let mut cq = pd.context().create_cq(2)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(1)
        .max_recv_wr(1);
    let where_it_is = memory.remote().to_bytes();
    for _ in 0..count {
        let request = link::request(&channel)?;
        let qp = request.create_qp(&pd, &init)?;
        let id = request.accept_with(&ConnParam::new().private_data(&where_it_is[..]))?;
        link::ended(&channel, &id)?;
        qp.close(&mut cq, link::PATIENCE)?;
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
    let (id, channel) = link::resolve(addr)?;
    let pd = id.context()?.alloc_pd()?;
    let mut cq = pd.context().create_cq_with_channel(2)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(1)
        .max_recv_wr(1);
    let mut qp = id.create_qp(&pd, &init)?;
    id.connect(ConnParam::new())?;
    let memory = link::memory_told(&link::established(&channel)?);
    let counter = memory.part(0, 8).expect("the server exposes more");
    let place = memory
        .part(8, SIZE - 8)
        .expect("the server exposes as much");

    let pool = pd.pool(1, SIZE as usize)?;
    let mut buf = pool.take().expect("nobody else takes one");
    qp.send.fetch_add(buf, counter, 1, 0)?;
    buf = done(&mut cq, &channel)?;
    println!("visitors before: {}", count_in(&buf));
    buf.set_len(place.len() as usize);
    qp.send.read(buf, place, 0)?;
    buf = done(&mut cq, &channel)?;
    println!("the last one left: {}", text_in(&buf));
    buf.fill(0);
    let len = text.len().min(buf.len());
    buf[..len].copy_from_slice(&text[..len]);
    qp.send.write(buf, place, 0)?;
    drop(done(&mut cq, &channel)?);
    id.disconnect()?;
    qp.close(&mut cq, link::PATIENCE)
}

/// Waits for the one request that is posted, and gives its buffer back.
fn done(cq: &mut CompletionQueue, channel: &EventChannel) -> Result<Buf, Error> {
    loop {
        link::completion(cq, channel)?;
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

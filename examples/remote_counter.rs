//! Counts together: any number of clients add to one counter in a server's memory, without the server's program doing anything.
//!
//! Each client tells how often it is going to count by the private data of its connect; at the end the server checks the sum.
//!
//! Usage: `remote_counter serve ADDR[:PORT] [--clients N]`, and elsewhere `remote_counter count ADDR[:PORT] [--times N]`.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use common::link;
use rdmacm::{Access, Completion, ConnParam, EventKind, QueuePairInit};

/// Additions under way at a time.
const DEPTH: u32 = 8;

/// Counts together.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(Subcommand)]
enum Side {
    /// Exposes the counter until all clients have come and gone, and checks it.
    Serve {
        /// Where to listen: an address of one device.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
        /// How many clients to wait for.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
        clients: u32,
    },
    /// Adds 1 again and again.
    Count {
        /// The server.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
        /// How often.
        #[arg(long, default_value_t = 1000)]
        times: u64,
    },
}

fn main() -> ExitCode {
    common::report(match Args::parse().side {
        Side::Serve { addr, clients } => serve(addr, clients),
        Side::Count { addr, times } => count(addr, times),
    })
}

fn serve(addr: SocketAddr, clients: u32) -> Result<(), Box<dyn Error>> {
    let (listener, channel) = link::listen(addr)?;
    let pd = listener.context()?.alloc_pd()?;
    let counter = pd.expose(8, Access::ATOMIC)?;
    let where_it_is = counter.remote().to_bytes();
    let mut cq = pd.context().create_cq(2 * clients)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(1)
        .max_recv_wr(1);
    let mut peers = HashMap::new();
    let (mut come, mut gone, mut told) = (0, 0, 0);
    while gone < clients {
        let Some(event) = channel.wait(None)? else {
            continue;
        };
        let has_ended = event.failure().is_some();
        match event.kind {
            EventKind::ConnectRequest(request) if come < clients => {
                told += link::number(request.private_data());
                let qp = request.create_qp(&pd, &init)?;
                let param = ConnParam::new().private_data(&where_it_is[..]);
                let id = request.accept_with(&param)?;
                peers.insert(id.token(), (qp, id));
                come += 1;
            }
            EventKind::ConnectRequest(request) => request.reject(b"enough clients")?,
            _ if has_ended => {
                if let Some((qp, _id)) = peers.remove(&event.token) {
                    qp.close(&mut cq, link::PATIENCE)?;
                    gone += 1;
                }
            }
            _ => {}
        }
    }
    let sum = counter.load_u64(0);
    println!("counted to {sum}, and {told} were told");
    if sum == told {
        Ok(())
    } else {
        Err("the counter is not the sum".into())
    }
}

fn count(addr: SocketAddr, times: u64) -> Result<(), Box<dyn Error>> {
    let (id, channel) = link::resolve(addr)?;
    let pd = id.context()?.alloc_pd()?;
    let mut cq = pd.context().create_cq_with_channel(DEPTH + 1)?;
    let init = QueuePairInit::new(&cq.handle())
        .max_send_wr(DEPTH)
        .max_recv_wr(1);
    let mut qp = id.create_qp(&pd, &init)?;
    id.connect(ConnParam::new().private_data(&times.to_be_bytes()[..]))?;
    let counter = link::memory_told(&link::established(&channel)?);

    let pool = pd.pool(DEPTH as usize, 8)?;
    let (mut asked, mut seen) = (0, Vec::new());
    while (seen.len() as u64) < times {
        while asked < times {
            let Some(buf) = pool.take() else { break };
            qp.send.fetch_add(buf, counter, 1, asked)?;
            asked += 1;
        }
        link::completion(&mut cq, &channel)?;
        while let Some(completion) = cq.poll()? {
            let Completion::Sent(sent) = completion else {
                continue;
            };
            sent.check()?;
            // What the counter was before. A number of the server's byte order, which is taken to be this machine's.
            let before = sent.into_buf();
            let before = u64::from_ne_bytes(*before.first_chunk().ok_or("eight bytes are asked")?);
            if seen.last().is_some_and(|&last| before <= last) {
                return Err(format!("{before} after {seen:?}").into());
            }
            seen.push(before);
        }
    }
    id.disconnect()?;
    qp.close(&mut cq, link::PATIENCE)?;
    if let [first, .., last] = seen[..] {
        println!("counted {times} times, from {first} to {last}");
    }
    Ok(())
}

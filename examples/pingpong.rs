//! Measures latency: a message goes to the server and comes back, again and again.
//!
//! Both sides poll without a pause, and every message is sent from the buffer that the last one arrived in.
//!
//! Usage: `pingpong serve ADDR[:PORT]`, and elsewhere `pingpong play ADDR[:PORT] [--size BYTES] [--rounds N]`.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use clap::{Parser, Subcommand};
use common::link::{self, End};
use rdmacm::{Buf, Completion, ConnParam, Error, EventChannel, EventKind};

/// Receives that are posted: a message must never wait for one.
const DEPTH: u32 = 4;
/// Rounds before those that count.
const WARM_UP: u64 = 10;

/// Measures latency.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    side: Side,
}

#[derive(Subcommand)]
enum Side {
    /// Sends back what one client sends.
    Serve {
        /// Where to listen: an address of one device.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
    },
    /// Sends, waits for the answer, and takes the time.
    Play {
        /// The server.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
        /// Bytes of a message.
        #[arg(long, default_value_t = 64, value_parser = size)]
        size: usize,
        /// How many rounds to measure.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
        rounds: u64,
    },
}

fn main() -> ExitCode {
    common::report(match Args::parse().side {
        Side::Serve { addr } => serve(addr),
        Side::Play { addr, size, rounds } => play(addr, size, rounds),
    })
}

/// Polls for the next message; `None` when the peer has ended the connection.
fn message(end: &mut End, channel: &EventChannel) -> Result<Option<Buf>, Error> {
    let mut idle = 0_u32;
    loop {
        match end.cq.poll()? {
            Some(Completion::Received(received)) => {
                received.check()?;
                return Ok(Some(received.into_buf()));
            }
            Some(Completion::Sent(sent)) => {
                sent.check()?;
                end.qp.recv.post(sent.into_buf(), 0)?;
            }
            _ => idle += 1,
        }
        // Calls into the kernel, so they are rare: a device in software may wait for the processor, and the peer may have gone.
        if idle % 100 == 99 {
            thread::yield_now();
        }
        if idle == 1000 {
            idle = 0;
            let event = channel.try_event()?;
            if let Some(EventKind::Disconnected(_)) = event.map(|event| event.kind) {
                return Ok(None);
            }
        }
    }
}

/// A size that has room for the number of the round.
fn size(text: &str) -> Result<usize, String> {
    let size = text
        .parse()
        .ok()
        .filter(|size| (8..=1 << 20).contains(size));
    size.ok_or_else(|| "8 to 1048576 bytes are needed".to_owned())
}

fn serve(addr: SocketAddr) -> Result<(), Error> {
    let (_listener, channel) = link::listen(addr)?;
    let request = link::request(&channel)?;
    let size = usize::try_from(link::number(request.private_data())).unwrap_or(usize::MAX);
    let mut end = End::new(&request.context()?, DEPTH, size, |pd, init| {
        request.create_qp(pd, init)
    })?;
    let _id = request.accept()?;
    while let Some(message) = message(&mut end, &channel)? {
        end.qp.send.send(message, 0)?;
    }
    end.close()
}

fn play(addr: SocketAddr, size: usize, rounds: u64) -> Result<(), Error> {
    let (id, channel) = link::resolve(addr)?;
    let mut end = End::new(&id.context()?, DEPTH, size, |pd, init| {
        id.create_qp(pd, init)
    })?;
    let size_told = (size as u64).to_be_bytes();
    id.connect(ConnParam::new().private_data(&size_told[..]))?;
    link::established(&channel)?;
    let mut ball = end.pool.take().expect("one is left");
    let mut times = Vec::new();
    for round in 0..WARM_UP + rounds {
        ball[..8].copy_from_slice(&round.to_be_bytes());
        let start = Instant::now();
        end.qp.send.send(ball, 0)?;
        let Some(back) = message(&mut end, &channel)? else {
            eprintln!("the server has ended the connection");
            break;
        };
        let time = start.elapsed();
        assert_eq!(link::number(&back), round, "the number of the round");
        if round >= WARM_UP {
            times.push(time.as_secs_f64() * 1e6 / 2.0);
        }
        ball = back;
    }
    id.disconnect()?;
    end.close()?;
    times.sort_by(f64::total_cmp);
    if let [best, ..] = times[..] {
        let median = times[times.len() / 2];
        let rounds = times.len();
        println!(
            "{rounds} rounds of {size} bytes, one way: best {best:.2} us, median {median:.2} us"
        );
    }
    Ok(())
}

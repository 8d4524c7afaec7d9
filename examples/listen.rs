//! Prints each connection request with its offer and private data, and rejects it with a text.
//!
//! Usage: `listen ADDR[:PORT]`. Try it with the example `connect --private-data hello`.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Error, Listener};

/// Prints each connection request and rejects it with a text.
#[derive(Parser)]
struct Args {
    /// Where to listen; the port is 7471 if none is given.
    #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
    addr: SocketAddr,
    /// How many requests to reject before the program ends; without it, until it is interrupted.
    #[arg(long)]
    count: Option<u32>,
}

fn main() -> ExitCode {
    common::report(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Error> {
    let listener = Listener::bind(args.addr)?;
    println!("listening on {}", listener.local_addr());
    let count = args.count.map_or(usize::MAX, |count| count as usize);
    for request in listener.incoming().take(count) {
        let request = request?;
        let offer = request.offer();
        println!("request from {}", request.peer_addr());
        println!(
            "offered responder_resources {}, initiator_depth {}, flow control {}, retry_count {}, rnr_retry_count {}",
            offer.responder_resources(),
            offer.initiator_depth(),
            offer.flow_control(),
            offer.retry_count().as_raw(),
            offer.rnr_retry().as_raw()
        );
        // Over InfiniBand and RoCE what was sent is followed by zeros, up to 56 bytes.
        println!(
            "{} bytes of private data: \"{}\"",
            offer.private_data().len(),
            offer.private_data().escape_ascii()
        );
        request.reject(b"this server only listens")?;
        println!("rejected");
    }
    Ok(())
}

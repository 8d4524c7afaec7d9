//! Accepts connections and answers a message of 16 bytes on each, as rdma-core's `rdma_server` does.
//!
//! Usage: `accept ADDR[:PORT] [--count N] [--private-data TEXT]`. Try it with the example `connect`, or with `rdma_client`.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Error, Listener, Options, Request};

/// Accepts connections and answers a message of 16 bytes on each.
#[derive(Parser)]
struct Args {
    /// Where to listen; the port is 7471 if none is given.
    #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
    addr: SocketAddr,
    /// How many connections to accept before the program ends.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Private data to accept with, at most 196 bytes.
    #[arg(long, value_name = "TEXT", default_value = "")]
    private_data: String,
}

fn main() -> ExitCode {
    common::report(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Error> {
    let options = Options::new()
        .message_size(common::MESSAGE.len())
        .private_data(args.private_data.as_bytes());
    let listener = Listener::bind(args.addr)?;
    println!("listening on {}", listener.local_addr());
    for request in listener.incoming().take(args.count as usize) {
        // One failed connection must not stop the server.
        if let Err(error) = serve(request?, &options) {
            if args.count == 1 {
                return Err(error);
            }
            eprintln!("error: {error}");
        }
    }
    Ok(())
}

fn serve(request: Request, options: &Options) -> Result<(), Error> {
    println!("request from {}", request.peer_addr());
    let offer = request.offer();
    println!(
        "offered responder_resources {}, initiator_depth {}, rnr_retry_count {}",
        offer.responder_resources(),
        offer.initiator_depth(),
        offer.rnr_retry().as_raw()
    );
    let mut connection = request.accept_with(options)?;
    println!("established");
    if let Some(negotiated) = connection.negotiated() {
        println!(
            "negotiated responder_resources {}, initiator_depth {}",
            negotiated.responder_resources, negotiated.initiator_depth
        );
    }
    while let Some(message) = connection.recv()? {
        println!("received {} bytes", message.len());
        connection.send_buf(message)?;
        println!("sent the answer");
    }
    println!("disconnected");
    connection.close()
}

//! Connects, sends a message of 16 bytes and waits for one, as rdma-core's `rdma_client` does.
//!
//! Usage: `connect ADDR[:PORT] [--private-data TEXT]`. Try it with the example `accept`, or with `rdma_server`.

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Connector, Error, Options};

/// Connects, sends a message of 16 bytes and waits for one.
#[derive(Parser)]
struct Args {
    /// The server; the port is 7471 if none is given.
    #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
    addr: SocketAddr,
    /// Private data to connect with, at most 56 bytes.
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
    let mut connection = Connector::with(options).connect(args.addr)?;
    println!("connected to {}", args.addr);
    if let Some(negotiated) = connection.negotiated() {
        println!(
            "negotiated responder_resources {}, initiator_depth {}",
            negotiated.responder_resources, negotiated.initiator_depth
        );
    }
    let text = connection.private_data().split(|&byte| byte == 0).next();
    if let Some(text @ [_, ..]) = text {
        println!("accepted with \"{}\"", text.escape_ascii());
    }
    connection.send(&common::MESSAGE)?;
    println!("sent {} bytes", common::MESSAGE.len());
    match connection.recv()? {
        Some(message) => println!("received {} bytes", message.len()),
        None => println!("the server ended the connection without an answer"),
    }
    connection.close()?;
    println!("disconnected");
    Ok(())
}

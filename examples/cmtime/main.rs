//! `cmtime`, as in rdma-core 44: makes many connections, and tells how long each step takes.
//!
//! Usage: `cmtime [-b ADDR]`, and elsewhere `cmtime -s ADDR [-c CONNECTIONS]`. Either side may be rdma-core's program of that
//! name, from version 44. The server serves until it is interrupted.

mod client;
#[path = "../common/events.rs"]
mod events;
mod qp;
mod server;
mod table;
#[path = "../common/tool.rs"]
mod tool;

use std::process::ExitCode;

use clap::Parser;

/// Makes many connections to a server and tells how long each step takes; without -s, is that server.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Args {
    /// The server to connect to, by name or address
    #[arg(short = 's', value_name = "SERVER")]
    server: Option<String>,
    /// The address of this side
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// How many connections the client makes
    #[arg(short = 'c', value_name = "N", default_value_t = 100)]
    connections: usize,
    /// The port of the server
    #[arg(short = 'p', value_name = "PORT", default_value_t = 7471)]
    port: u16,
    /// How often a packet that is not answered is sent again, and a resolution that fails is tried again
    #[arg(short = 'r', value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(..=7))]
    retries: u8,
    /// How long a resolution may take, in milliseconds
    #[arg(short = 't', value_name = "MS", default_value_t = 2000)]
    timeout: u64,
}

fn main() -> ExitCode {
    tool::main(1, 1, |args: &Args| match &args.server {
        Some(server) => client::run(args, server),
        None => server::run(args),
    })
}

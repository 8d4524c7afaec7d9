//! `rping`, as in rdma-core: a client tells where its memory is, and the server reads from it and writes back into it.
//!
//! Usage: `rping -s [-P] [-a ADDR] [-p PORT]`, and elsewhere `rping -c -a ADDR [-C COUNT] [-S SIZE] [-vV]`. Either side may be
//! rdma-core's program of that name.

mod client;
mod end;
mod ping;
mod server;
#[path = "../common/tool.rs"]
mod tool;

use std::process::ExitCode;

use clap::{ArgAction, Parser};

/// Exit statuses: `EINVAL` and `ENODEV`.
const BAD_USAGE: u8 = 22;
const NO_DEVICE: u8 = 19;

/// Pings between a client's memory and a server that reads and writes it.
#[derive(Clone, Parser)]
#[command(args_override_self = true)]
struct Args {
    /// Be the server.
    #[arg(short, overrides_with = "client", required_unless_present = "client")]
    server: bool,
    /// Be the client.
    #[arg(short, overrides_with = "server", requires = "address")]
    client: bool,
    /// The server's address or name; on the server, where to listen: without it everywhere (`::0` for IPv6).
    #[arg(short, value_name = "ADDR")]
    address: Option<String>,
    /// The client's own address, where it has several.
    #[arg(short = 'I', value_name = "ADDR")]
    source: Option<String>,
    /// The server's port.
    #[arg(short, default_value_t = 7174)]
    port: u16,
    /// Serve many clients, at a time and one after the other, until the program is killed.
    #[arg(short = 'P')]
    persistent: bool,
    /// How many pings the client does; 0 is without end.
    #[arg(short = 'C', default_value_t = 0)]
    count: u32,
    /// Bytes of a ping; on the server, the largest that is served.
    #[arg(short = 'S', default_value_t = 64, value_parser = clap::value_parser!(u32).range(23..=65535))]
    size: u32,
    /// Print what was read or written.
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,
    /// Check what was read or written.
    #[arg(short = 'V', action = ArgAction::Count)]
    validate: u8,
    /// Print each step.
    #[arg(short, action = ArgAction::Count)]
    debug: u8,
    /// Make the queue pair beside the connection manager.
    #[arg(short = 'q', action = ArgAction::Count)]
    own_qp: u8,
}

impl Args {
    /// Tells a step, with `-d`.
    fn step(&self, step: &str) {
        if self.debug > 0 {
            eprintln!("{step}");
        }
    }
}

fn main() -> ExitCode {
    tool::main(BAD_USAGE, NO_DEVICE, |args: &Args| {
        if args.client {
            client::run(args)
        } else {
            server::run(args)
        }
    })
}

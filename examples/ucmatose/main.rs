//! `ucmatose`, as in rdma-core: makes connections, sends messages over each from the server to the client and back, and ends
//! them.
//!
//! Usage: `ucmatose [-b ADDR]`, and elsewhere `ucmatose -s ADDR`, both with the same `[-c CONNECTIONS] [-C COUNT] [-S SIZE]`.
//! Either side may be rdma-core's program of that name.

#[path = "../common/events.rs"]
mod events;
mod node;
mod run;
#[path = "../common/tool.rs"]
mod tool;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use events::Format;

/// The exit status of options that make no sense, and of a machine without a device.
const BAD_START: u8 = 1;

/// Makes connections, sends messages over each and back, and ends them.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Args {
    /// The server's address or name; without it this is the server.
    #[arg(short)]
    server: Option<String>,
    /// The own address: where to listen or, on the client, which one to use.
    #[arg(short, value_name = "ADDR")]
    bind: Option<String>,
    /// What addresses are: `name` (which may be an address), `ip` or `ipv6`.
    #[arg(short, default_value = "name", value_parser = Format::read)]
    format: Format,
    /// The port space: `tcp`.
    #[arg(short = 'P', default_value = "tcp", value_parser = port_space)]
    port_space: PortSpace,
    /// How many connections.
    #[arg(short, default_value_t = 1)]
    connections: u32,
    /// How many messages go over each connection, each way.
    #[arg(short = 'C', default_value_t = 10)]
    count: u32,
    /// Bytes of a message; without any there are no messages.
    #[arg(short = 'S', default_value_t = 100)]
    size: u32,
    /// The type of service of the client's packets.
    #[arg(short, value_parser = tool::byte)]
    tos: Option<u8>,
    /// The server's port.
    #[arg(short, default_value_t = 7471)]
    port: u16,
    /// Have the connections end on another event channel than the one they began on.
    #[arg(short)]
    migrate: bool,
    /// N: how long a send waits for its acknowledgement, as 4.096 us times 2 to the power of N.
    #[arg(short, value_name = "N", value_parser = ack_timeout)]
    ack_timeout: Option<Duration>,
}

/// The one port space of reliable connections between IP addresses.
#[derive(Clone, Copy)]
struct PortSpace;

fn port_space(text: &str) -> Result<PortSpace, String> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(PortSpace),
        "ib" => Err("ports are those of tcp here, not InfiniBand's services".to_owned()),
        _ => Err("it is tcp".to_owned()),
    }
}

fn ack_timeout(text: &str) -> Result<Duration, String> {
    match tool::byte(text) {
        Ok(power @ 1..=31) => Ok(Duration::from_nanos(4096 << power)),
        _ => Err("a power from 1 to 31 is needed".to_owned()),
    }
}

impl Args {
    /// How many messages there are: those of no bytes are none.
    fn count(&self) -> u32 {
        if self.size == 0 { 0 } else { self.count }
    }
}

fn main() -> ExitCode {
    tool::main(BAD_START, BAD_START, |args: &Args| {
        let PortSpace = args.port_space;
        match &args.server {
            Some(server) => run::client(args, server),
            None => run::server(args),
        }
    })
}

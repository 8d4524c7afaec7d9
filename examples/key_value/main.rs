//! A store of keys and values, for many clients on one thread: requests of all of them arrive in one shared receive queue, so
//! that memory is needed for what is under way, and not for each connection.
//!
//! Usage: `key_value serve ADDR[:PORT] [--count N]`, and elsewhere `key_value ask ADDR[:PORT] KEY[=VALUE]...`. A request is a key,
//! and to store it an equals sign and a value; the answer is the value that there was before, or nothing.

#[path = "../common/mod.rs"]
mod common;
mod server;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use rdmacm::{Buf, Connector, Error, Options};

/// The bytes of a request, and of an answer.
const SIZE: usize = 1024;

/// A store of keys and values.
#[derive(Parser)]
enum Args {
    /// Keeps what clients store.
    Serve {
        /// Where to listen: an address of one device.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
        /// How many clients to serve before the program ends; without it, until it is interrupted.
        #[arg(long)]
        count: Option<u64>,
    },
    /// Stores and asks, in order.
    Ask {
        /// The server.
        #[arg(value_name = "ADDR[:PORT]", value_parser = common::address)]
        addr: SocketAddr,
        /// What to ask for or, with a value, to store.
        #[arg(value_name = "KEY[=VALUE]", required = true)]
        requests: Vec<String>,
    },
}

fn main() -> ExitCode {
    common::report(match Args::parse() {
        Args::Serve { addr, count } => server::serve(addr, count),
        Args::Ask { addr, requests } => ask(addr, &requests),
    })
}

fn ask(addr: SocketAddr, requests: &[String]) -> Result<(), Error> {
    let mut connection = Connector::with(Options::new().message_size(SIZE)).connect(addr)?;
    for request in requests {
        connection.send(request.as_bytes())?;
        let Some(answer) = connection.recv()? else {
            break;
        };
        println!("{}", String::from_utf8_lossy(&answer));
    }
    connection.close()
}

/// Puts the answer where the request was.
fn answer(store: &mut HashMap<Vec<u8>, Vec<u8>>, buf: &mut Buf) {
    let mut parts = buf.splitn(2, |&byte| byte == b'=').map(<[u8]>::to_vec);
    let (key, value) = (parts.next().unwrap_or_default(), parts.next());
    let before = match value {
        Some(value) => store.insert(key, value),
        None => store.get(&key).cloned(),
    };
    buf.fill_from(&before.unwrap_or_default());
}

//! Latency and bandwidth with the safe API alone, measured as perftest's programs of the same name measure them.
//!
//! Usage: `perf TEST`, and elsewhere `perf TEST ADDR`, with the same options. The client prints its figure: the median latency in
//! microseconds, of half a round trip (of a whole one for reads), or the average bandwidth in MiB per second.

mod bandwidth;
mod latency;
mod side;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use side::Side;

/// Measures latency or bandwidth over a connection of its own.
#[derive(Debug, Parser)]
struct Args {
    /// What to measure.
    test: Test,
    /// The server; without, this is the server.
    addr: Option<IpAddr>,
    /// The port of the server.
    #[arg(long, short, default_value_t = 18515)]
    port: u16,
    /// The length of a message in bytes.
    #[arg(long, short)]
    size: usize,
    /// How many messages.
    #[arg(long, short = 'n')]
    iters: usize,
    /// How many may be outstanding.
    #[arg(long, short, default_value_t = 1)]
    tx_depth: u32,
}

/// A test, by the name that perftest gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Test {
    /// Messages to and fro.
    SendLat,
    /// Writes to and fro; each side watches the last byte.
    WriteLat,
    /// Reads, one after the other.
    ReadLat,
    /// As many sends as may be outstanding.
    SendBw,
    /// As many writes.
    WriteBw,
    /// As many reads.
    ReadBw,
}

impl Test {
    /// Whether only the client works.
    fn is_the_clients(self) -> bool {
        matches!(self, Self::ReadLat | Self::WriteBw | Self::ReadBw)
    }
}

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.addr {
        Some(ip) => client(&args, SocketAddr::new(ip, args.port)),
        None => server(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn client(args: &Args, to: SocketAddr) -> Outcome {
    let mut side = Side::connect(args, to)?;
    let figure = match args.test {
        Test::SendLat => latency::send(&mut side, args, true)?,
        Test::WriteLat => latency::write(&mut side, args, true)?,
        Test::ReadLat => latency::read(&mut side, args)?,
        Test::SendBw | Test::WriteBw | Test::ReadBw => bandwidth::client(&mut side, args)?,
    };
    println!("{figure:.3}");
    if args.test.is_the_clients() {
        side.say_done()?;
    }
    side.leave()
}

fn server(args: &Args) -> Outcome {
    let mut side = Side::accept(args)?;
    match args.test {
        Test::SendLat => drop(latency::send(&mut side, args, false)?),
        Test::WriteLat => drop(latency::write(&mut side, args, false)?),
        Test::SendBw => bandwidth::server(&mut side, args)?,
        // The device answers by itself. As perftest's, the server polls meanwhile.
        Test::ReadLat | Test::WriteBw | Test::ReadBw => {
            drop(side.received()?);
        }
    }
    side.wait_for_the_end()
}

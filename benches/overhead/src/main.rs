//! Post and poll beside plain C, against a provider that does nothing.
//!
//! `cargo xtask overhead` runs this under callgrind, on the stand-in for the C libraries, and compares. The argument names a
//! loop, which runs for a few requests that nobody counts, then for two counts, so that what is before and after the loop
//! drops out of the difference. A line of output says for each how many allocations and how many empty polls there were.
//!
//! With the address of an RDMA device, its own provider is behind the loop, one of batches, and each post waits until it is done.

mod alloc;
mod c;
mod device;
mod ends;
mod loops;
mod polls;
mod raw;
mod sizes;

use std::error::Error;
use std::net::IpAddr;
use std::process::ExitCode;

use c::CLoop;
use ends::{Behind, Ends};

/// How many requests, divisible by the batch of 32, the run of 16 and the 8 pairs. The first are for what happens once.
const COUNTS: [u64; 3] = [32, 1600, 3200];

/// A loop of ours: an error says what went wrong.
type RustLoop = fn(&mut Ends, u64) -> Result<(), Box<dyn Error>>;

/// Names loops of ours after their functions.
macro_rules! rust_loops {
    ($($module:ident::$name:ident)*) => {
        const RUST_LOOPS: &[(&str, RustLoop)] = &[$((stringify!($name), $module::$name)),*];
    };
}

rust_loops! {
    raw::loop_rust_send_raw
    loops::loop_rust_send
    loops::loop_rust_send_free_list
    loops::loop_rust_send_scope
    loops::loop_rust_receive
    loops::loop_rust_shared
    loops::loop_rust_inline
    loops::loop_rust_pairs
    loops::loop_rust_batch
    loops::loop_rust_batch_wr
    loops::loop_rust_run
    loops::loop_rust_pieces
}

/// Whose loop it is.
#[derive(Clone, Copy)]
enum Loop {
    C(CLoop),
    Rust(RustLoop),
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let address = args.next().map(|address| address.parse::<IpAddr>());
    let c = c::LOOPS.iter().map(|&(name, of_c)| (name, Loop::C(of_c)));
    let rust = RUST_LOOPS
        .iter()
        .map(|&(name, ours)| (name, Loop::Rust(ours)));
    let all: Vec<(&str, Loop)> = c.chain(rust).collect();
    let Some(&(_, chosen)) = all.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "usage: overhead LOOP [ADDRESS], LOOP one of: {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    let behind = match address {
        None => Behind::Nothing {
            by_calls: name.contains("_batch_wr"),
        },
        Some(Ok(address)) => Behind::Device(address),
        Some(Err(error)) => {
            eprintln!("error: the address of a device: {error}");
            return ExitCode::from(2);
        }
    };
    match run(chosen, behind) {
        // Without the ends' own ends: what is posted is with a provider that the libraries know nothing of.
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("error: {name}: {error}");
            std::process::exit(1)
        }
    }
}

fn run(chosen: Loop, behind: Behind) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::connect(behind)?;
    for count in COUNTS {
        let before = (alloc::count(), polls::empty());
        match chosen {
            Loop::C(of_c) => ends.run(of_c, count)?,
            Loop::Rust(ours) => ours(&mut ends, count)?,
        }
        let after = (alloc::count(), polls::empty());
        println!("{count} {} {}", after.0 - before.0, after.1 - before.1);
    }
    Ok(())
}

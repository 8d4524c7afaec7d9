//! `softroce`: runs a command in a micro-VM that has soft-RoCE devices.

mod cli;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let code = cli::Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("softroce: {error}");
        error.exit_code()
    });
    std::process::ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}

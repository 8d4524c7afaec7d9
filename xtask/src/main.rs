//! The chores of the project: `cargo xtask`.
//!
//! Each chore is one file with its arguments and a `run` that gives the status to exit with. What has gone wrong is
//! told in one message, here. More commands, hidden from the help, are the parts of `demo`, `test`, `bench` and `overhead` that
//! run beside the RDMA device: in the micro-VM this same program is started again with them.

mod bench;
mod bindings;
mod cargo;
mod ci;
mod demo;
mod device;
mod faults;
mod ignored;
mod interop;
mod overhead;
mod pair;
mod setup;
mod standin;
mod sum;
mod tally;
mod test;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The chores of the rdmacm project.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    Demo(demo::Args),
    Test(test::Args),
    Vm(vm::Args),
    Bindings(BindingsArgs),
    Bench(bench::Args),
    Overhead(overhead::Args),
    Ci(ci::Args),
    #[command(hide = true)]
    Pair(pair::Args),
    #[command(hide = true)]
    BenchRuns(bench::runs::Args),
    #[command(hide = true)]
    OverheadLibrxe(overhead::librxe::Args),
    #[command(hide = true)]
    Ignored(ignored::Args),
}

/// Make rdma-sys/src/bindings.rs from the headers in rdma-sys/headers/
#[derive(Debug, clap::Args)]
struct BindingsArgs {
    /// Write nothing: fail when the committed file is not what the headers give
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Demo(args) => demo::run(&args),
        Chore::Test(args) => test::run(&args),
        Chore::Vm(args) => vm::run(&args),
        Chore::Bindings(args) => bindings(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::BenchRuns(args) => bench::runs::run(&args),
        Chore::Overhead(args) => overhead::run(&args),
        Chore::OverheadLibrxe(args) => overhead::librxe::run(&args),
        Chore::Ci(args) => ci::run(&args),
        Chore::Pair(args) => pair::run(&args),
        Chore::Ignored(args) => ignored::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        // A virtual machine that failed has a status of its own, as with `env` and `timeout`.
        let status = error
            .downcast_ref::<softroce::Error>()
            .map_or(1, softroce::Error::exit_code);
        exit_code(status)
    })
}

fn bindings(args: &BindingsArgs) -> Result<ExitCode> {
    if cfg!(feature = "bindings") {
        setup::ensure(setup::BINDINGS, setup::consent(false))?;
    }
    bindings::run(args.check)?;
    Ok(ExitCode::SUCCESS)
}

/// The status of another program as our own.
fn exit_code(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_for_the_vm_keeps_its_own_options() {
        let cli = Cli::try_parse_from([
            "xtask", "vm", "--cpus", "1", "--", "sh", "-c", "exit 7", "--cpus",
        ]);
        let Ok(Cli {
            chore: Chore::Vm(args),
        }) = cli
        else {
            panic!("{cli:?}")
        };
        assert_eq!(args.command, ["sh", "-c", "exit 7", "--cpus"]);
    }

    #[test]
    fn a_status_that_does_not_fit_is_still_a_failure() {
        assert_eq!(exit_code(7), ExitCode::from(7));
        assert_eq!(exit_code(-1), ExitCode::from(1));
        assert_eq!(exit_code(256), ExitCode::from(1));
    }
}

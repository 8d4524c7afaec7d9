//! `cargo xtask vm -- CMD...`: one command beside the RDMA devices of the micro-VM.
//!
//! Everything passes through: standard input, output and error, and the status. This is `softroce run` with the options
//! that a chore needs; `cargo run -p softroce -- run --help` shows all.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use softroce::Vm;

use crate::{exit_code, setup};

/// Run a command as root in the micro-VM, where rxe0 is 10.9.0.1 and fd09::1
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many processors the virtual machine has
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// How much memory it has
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// End the command, with status 124, after so many seconds
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// A folder that the command may write to; everything else it writes is gone afterwards
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    /// Give the command a terminal, as a shell wants it
    #[arg(long, short)]
    terminal: bool,
    /// Run it on this machine and its own RDMA device instead
    #[arg(long)]
    device: bool,
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// The address of `rxe0` in the virtual machine.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));

/// Runs the command and gives its status.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut vm = Vm::new()
        .own_device(args.device)
        .terminal(args.terminal)
        .consent(setup::consent(args.install));
    if let Some(cpus) = args.cpus {
        vm = vm.cpus(cpus);
    }
    if let Some(mib) = args.memory {
        vm = vm.memory_mib(mib);
    }
    if let Some(seconds) = args.time_limit {
        vm = vm.time_limit(Duration::from_secs(seconds));
    }
    for dir in &args.share {
        vm = vm.share(dir);
    }
    let outcome = vm.run(&args.command)?;
    Ok(exit_code(outcome.code))
}

//! `cargo xtask demo`: from a clean checkout to an accepted RDMA connection.

use std::{
    io,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use softroce::{EXIT_TIME_LIMIT, Stdio, Vm, host};

use crate::{
    cargo::{self, Executable},
    device, setup, vm,
};

/// See the example `accept` accept the example `connect` over RDMA
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Use this machine's own RDMA device instead of one in a micro-VM
    #[arg(long)]
    device: bool,
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
}

/// For the boot and both sides. The slowest boot seen under emulation took 17 s.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Runs the demo.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let start = Instant::now();
    let own = host::rdma_devices();
    if !args.device && !own.is_empty() {
        eprintln!(
            "This machine has an RDMA device ({}): `cargo xtask demo --device` uses it.",
            own.join(", ")
        );
    }
    let consent = setup::consent(args.install);
    let (address, place) = if args.device {
        let device = device::find()?;
        (device.address, format!("on this machine's {}", device.name))
    } else {
        (
            vm::ADDRESS,
            "in the micro-VM, on its soft-RoCE device rxe0".to_owned(),
        )
    };
    setup::ensure(&setup::demo_needs(args.device), consent)?;
    let built = cargo::build(&[
        "build",
        "--package",
        "rdmacm",
        "--example",
        "accept",
        "--example",
        "connect",
    ])?;

    eprintln!(
        "The example `accept` listens on {address} {place}; the example `connect` connects to it:"
    );
    let program = setup::this_program()?;
    let argv = [
        program.into_os_string(),
        "pair".into(),
        address.to_string().into(),
        example(&built, "accept")?.into_os_string(),
        example(&built, "connect")?.into_os_string(),
    ];
    let vm = Vm::new()
        .own_device(args.device)
        .consent(consent)
        .time_limit(TIME_LIMIT);
    let outcome = vm.run_with(argv, Stdio::to(io::stdout(), io::stderr()))?;
    match outcome.code {
        0 => {
            println!(
                "An RDMA connection was accepted {place} ({:.1} s).",
                start.elapsed().as_secs_f32()
            );
            Ok(ExitCode::SUCCESS)
        }
        EXIT_TIME_LIMIT => bail!("the demo did not end within {} s", TIME_LIMIT.as_secs()),
        // The pair has said what was missing.
        _ => Ok(ExitCode::FAILURE),
    }
}

fn example(built: &[Executable], name: &str) -> Result<PathBuf> {
    let found = built
        .iter()
        .find(|executable| executable.kind == "example" && executable.name == name);
    Ok(found
        .with_context(|| format!("cargo built no example called {name}"))?
        .path
        .clone())
}

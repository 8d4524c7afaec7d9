//! `cargo xtask test`: every test of the workspace, each where it can run, in one sum.
//!
//! What needs nothing special runs on the machine, by `cargo test`. Of the ignored tests, those of `softroce` and of
//! this program boot virtual machines of their own, so they run on the machine too; those in rdmacm's test programs
//! `device_*` run beside an RDMA device: in the micro-VM, all in one boot, or with `--device` on the machine's own. Those
//! in `standin_*` run on the stand-in for the C libraries. Those in `iwarp_*` run with `--iwarp`, and nothing else then: in a
//! micro-VM that has soft-iWARP too, whose module most kernels come without. With `--interop` only the pairs of `interop` run.
//!
//! Before anything runs, the programs are asked for the list of their tests, so that one which got lost on the way
//! (a crash, a guest that died) counts as failed and not as nothing.

use std::{
    io, iter,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use softroce::{Stdio as VmStdio, Vm};

use crate::{
    cargo::{self, Executable},
    ignored, interop, setup, standin,
    sum::{Ran, Sum},
    tally::{self, Counting},
};

/// Run all tests: on this machine what can run here, beside an RDMA device what needs one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tests whose names contain one of these
    filters: Vec<String>,
    /// Use this machine's own RDMA device instead of one in a micro-VM
    #[arg(long, conflicts_with = "no_vm")]
    device: bool,
    /// Leave out what needs an RDMA device or boots a virtual machine
    #[arg(long)]
    no_vm: bool,
    /// Run those that need soft-iWARP, which the others do not; builds the kernel's module for it once
    #[arg(long, conflicts_with_all = ["device", "no_vm"])]
    iwarp: bool,
    /// Run nothing but the pairs of rdma-core's tools and this crate's, N times in a row: on soft-RoCE, with --iwarp on
    /// soft-iWARP
    #[arg(long, value_name = "N", conflicts_with_all = ["no_vm", "threads"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    interop: Option<u32>,
    /// Install what is missing, with sudo if need be
    #[arg(long)]
    install: bool,
    /// How many device tests run at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
}

impl Args {
    /// All tests, in the micro-VM those that need a device.
    pub(crate) fn all(install: bool) -> Self {
        Self {
            filters: Vec::new(),
            device: false,
            no_vm: false,
            iwarp: false,
            interop: None,
            install,
            threads: 1,
        }
    }

    /// How often each test runs.
    fn rounds(&self) -> u32 {
        self.interop.unwrap_or(1)
    }

    /// What the tests that need a device run on.
    fn device_name(&self) -> &'static str {
        match (self.device, self.iwarp) {
            (true, _) => "this machine's own device",
            (false, true) => "soft-iWARP",
            (false, false) => "soft-RoCE",
        }
    }

    /// Builds the test programs, and what they run.
    fn build(&self) -> Result<Vec<Executable>> {
        match (self.interop, self.iwarp) {
            (Some(_), iwarp) => interop::build(iwarp),
            (None, true) => cargo::build(&["test", "--no-run", "--package", "rdmacm"]),
            (None, false) => cargo::build(&["test", "--no-run", "--workspace"]),
        }
    }
}

/// What the virtual machine may take beyond its programs' own limits.
const BOOT_LIMIT: u64 = 60;

/// Runs the tests and prints the sum as the last line.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::ensure(
        &setup::test_needs(args.no_vm, args.device),
        setup::consent(args.install),
    )?;
    let built = args.build()?;
    let groups = if args.no_vm {
        Vec::new()
    } else {
        choose(&built, args)?
    };
    let device_tests = groups.iter().any(|group| group.place != Place::Machine);
    if !args.no_vm && !device_tests && args.filters.is_empty() {
        let kind = if args.iwarp { "iwarp" } else { "device" };
        bail!("no {kind} test was found: rdmacm has no test program {kind}_* with an ignored test");
    }

    let start = Instant::now();
    let mut sum = Sum::default();
    if !args.iwarp && args.interop.is_none() {
        sum.add("cargo test", on_the_machine(&args.filters)?, None);
        on_the_stand_in(&mut sum, &args.filters)?;
    }
    for group in &groups {
        let ran = group.run(args)?;
        let expected = group.tests * usize::try_from(args.rounds())?;
        sum.add(group.place.name(), ran, Some(expected));
    }
    if sum.tally.ran() == 0 {
        sum.faults
            .push("no test ran: no test has such a name".to_owned());
    }
    for fault in &sum.faults {
        eprintln!("error: {fault}");
    }
    let line = match args.interop {
        Some(rounds) => {
            let pairs = groups.iter().map(|group| group.tests).sum();
            interop::line(
                args.device_name(),
                pairs,
                rounds,
                sum.tally,
                start.elapsed(),
            )
        }
        None => sum.line(),
    };
    // A program that crashed may have left an unfinished line; this one must stand alone.
    println!("\n{line}");
    Ok(if sum.good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Where ignored tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the machine: they boot virtual machines of their own.
    Machine,
    /// On the machine, on its own RDMA device.
    OwnDevice,
    /// In the micro-VM.
    Vm,
    /// In a micro-VM with soft-iWARP.
    IwarpVm,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Machine => "the tests that boot virtual machines",
            Self::OwnDevice => "the tests on this machine's own RDMA device",
            Self::Vm => "the tests in the micro-VM",
            Self::IwarpVm => "the tests on soft-iWARP in the micro-VM",
        }
    }

    /// What one test program may take, in seconds.
    fn program_limit(self) -> u64 {
        match self {
            // A boot takes 10 to 20 s under emulation, and some of these wait for one that hangs.
            Self::Machine => 1200,
            // Under emulation, hundreds of connections take a minute and a half.
            Self::OwnDevice | Self::Vm | Self::IwarpVm => 600,
        }
    }
}

/// The test programs of one package that have ignored tests to run.
#[derive(Debug)]
struct Group {
    place: Place,
    dir: PathBuf,
    programs: Vec<PathBuf>,
    tests: usize,
}

/// Picks the programs whose ignored tests run here: those that boot virtual machines themselves, and those that need a
/// device. With `--device` nothing boots; with `--iwarp` there is nothing but what needs that.
fn choose(built: &[Executable], args: &Args) -> Result<Vec<Group>> {
    let workspace = setup::workspace();
    let mut groups: Vec<Group> = Vec::new();
    for program in built.iter().filter(|program| program.is_test) {
        if args.interop.is_some() && !interop::has_pairs(&program.name) {
            continue;
        }
        let place = match role(program, &workspace) {
            Role::Iwarp if args.iwarp => Place::IwarpVm,
            _ if args.iwarp => continue,
            Role::Device if args.device => Place::OwnDevice,
            Role::Device => Place::Vm,
            Role::Boots if !args.device => Place::Machine,
            Role::Boots | Role::Iwarp | Role::Plain => continue,
        };
        let tests = count_ignored(program, &args.filters)?;
        if tests == 0 {
            continue;
        }
        let dir = program.package_dir();
        let known = |group: &&mut Group| group.place == place && group.dir == dir;
        match groups.iter_mut().find(known) {
            Some(group) => {
                group.programs.push(program.path.clone());
                group.tests += tests;
            }
            None => groups.push(Group {
                place,
                dir: dir.to_owned(),
                programs: vec![program.path.clone()],
                tests,
            }),
        }
    }
    Ok(groups)
}

#[derive(Debug, PartialEq, Eq)]
enum Role {
    /// Its ignored tests boot virtual machines.
    Boots,
    /// Its ignored tests need an RDMA device.
    Device,
    /// Its ignored tests need soft-iWARP.
    Iwarp,
    /// Its ignored tests are nobody's business.
    Plain,
}

fn role(program: &Executable, workspace: &Path) -> Role {
    let Ok(dir) = program.package_dir().strip_prefix(workspace) else {
        return Role::Plain;
    };
    match dir.to_str() {
        Some("") if program.kind == "test" && program.name.starts_with("device_") => Role::Device,
        Some("") if program.kind == "test" && program.name.starts_with("iwarp_") => Role::Iwarp,
        Some("softroce" | "xtask") => Role::Boots,
        _ => Role::Plain,
    }
}

/// Asks a test program how many ignored tests it would run.
fn count_ignored(program: &Executable, filters: &[String]) -> Result<usize> {
    let output = Command::new(&program.path)
        .args(["--ignored", "--list"])
        .args(filters)
        .current_dir(program.package_dir())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", program.path.display()))?;
    if !output.status.success() {
        bail!(
            "{} does not list its tests ({})",
            program.path.display(),
            output.status
        );
    }
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

fn listed(list: &str) -> usize {
    list.lines().filter(|line| line.ends_with(": test")).count()
}

/// Runs everything that is not ignored.
fn on_the_machine(filters: &[String]) -> Result<Ran> {
    counted(
        cargo::command()
            .args(["test", "--workspace", "--no-fail-fast", "--"])
            .args(filters),
    )
}

/// Runs the ignored tests of rdmacm's test programs `standin_*`, on the stand-in for the C libraries.
fn on_the_stand_in(sum: &mut Sum, filters: &[String]) -> Result<()> {
    let folder = standin::build()?;
    let tests = listed(&standin::list(&folder, filters)?);
    if tests == 0 {
        return Ok(());
    }
    let ran = counted(&mut standin::tests(&folder, &[], filters))?;
    sum.add("the tests on the stand-in", ran, Some(tests));
    Ok(())
}

impl Group {
    /// Runs the ignored tests of the programs, by this program's hidden command.
    fn run(&self, args: &Args) -> Result<Ran> {
        let program = setup::this_program()?;
        let limit = self.place.program_limit();
        let line = ignored::Args {
            dir: self.dir.clone(),
            threads: if self.place == Place::Machine {
                1
            } else {
                args.threads
            },
            limit,
            rounds: args.rounds(),
            filter: args.filters.clone(),
            programs: self.programs.clone(),
        };
        println!("\n     Running {}: {}", self.place.name(), self.tests);
        if self.place == Place::Machine {
            return counted(Command::new(program).args(line.to_command_line()));
        }

        let mut vm = Vm::new().consent(setup::consent(args.install));
        if self.place == Place::OwnDevice {
            vm = vm.own_device(true);
        } else {
            let programs = u64::try_from(self.programs.len()).unwrap_or(u64::MAX);
            let limit = limit
                .saturating_mul(programs)
                .saturating_mul(args.rounds().into())
                .saturating_add(BOOT_LIMIT);
            vm = vm
                .time_limit(Duration::from_secs(limit))
                .soft_iwarp(self.place == Place::IwarpVm);
        }
        let counting = Counting::new(io::stdout());
        let seen = counting.seen();
        let argv = iter::once(program.into_os_string()).chain(line.to_command_line());
        let failure = match vm.run_with(argv, VmStdio::to(counting, io::stderr())) {
            Ok(outcome) if outcome.code == 0 => None,
            Ok(outcome) => Some(format!("status {}", outcome.code)),
            // The tests before these have run, so their sum is still wanted.
            Err(error) => Some(error.to_string()),
        };
        Ok(Ran {
            tally: tally::read(&seen).tally,
            failure,
        })
    }
}

/// Runs a command on the machine, and sums up what it says.
fn counted(command: &mut Command) -> Result<Ran> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let Some(mut stdout) = child.stdout.take() else {
        bail!("{name} has no standard output")
    };
    let mut counting = Counting::new(io::stdout());
    let seen = counting.seen();
    io::copy(&mut stdout, &mut counting)
        .with_context(|| format!("cannot pass on what {name} says"))?;
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for {name}"))?;
    Ok(Ran {
        tally: tally::read(&seen).tally,
        failure: (!status.success()).then(|| status.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(manifest: &str, kind: &str, name: &str) -> Executable {
        Executable {
            name: name.into(),
            kind: kind.into(),
            manifest: manifest.into(),
            path: format!("/t/{name}-0123").into(),
            is_test: true,
        }
    }

    #[test]
    fn ignored_tests_run_where_their_program_says() {
        let role = |manifest, kind, name| role(&program(manifest, kind, name), Path::new("/w"));
        assert_eq!(role("/w/Cargo.toml", "test", "device_accept"), Role::Device);
        assert_eq!(role("/w/Cargo.toml", "test", "iwarp_accept"), Role::Iwarp);
        assert_eq!(role("/w/Cargo.toml", "test", "no_device"), Role::Plain);
        assert_eq!(role("/w/Cargo.toml", "example", "device_list"), Role::Plain);
        assert_eq!(role("/w/softroce/Cargo.toml", "test", "boot"), Role::Boots);
        assert_eq!(
            role("/w/rdma-sys/Cargo.toml", "test", "device_layout"),
            Role::Plain
        );
        assert_eq!(
            role("/elsewhere/Cargo.toml", "test", "device_accept"),
            Role::Plain
        );
    }

    #[test]
    fn pairs_run_once_or_more_and_where_there_is_a_device() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let read = |words: &[&str]| {
            let line = [&["test"], words].concat();
            <Line as clap::Parser>::try_parse_from(line).map(|line| line.args)
        };
        let ten = read(&["--interop", "10", "rping"]).expect("good options");
        assert_eq!((ten.rounds(), ten.device_name()), (10, "soft-RoCE"));
        let iwarp = read(&["--interop", "1", "--iwarp"]).expect("good options");
        assert_eq!((iwarp.rounds(), iwarp.device_name()), (1, "soft-iWARP"));
        let own = read(&["--interop", "2", "--device"]).expect("good options");
        assert_eq!(own.device_name(), "this machine's own device");
        assert_eq!(read(&[]).expect("good options").rounds(), 1);
        for (words, wanted) in [
            (&["--interop", "0"][..], "0 is not in 1..=1000"),
            (&["--interop", "1001"], "1001 is not in 1..=1000"),
            (&["--interop", "often"], "invalid value 'often'"),
            (&["--interop"], "a value is required for '--interop <N>'"),
            (
                &["--interop", "1", "--no-vm"],
                "cannot be used with '--no-vm'",
            ),
            (&["--interop", "1", "--threads", "2"], "cannot be used with"),
        ] {
            let error = read(words).expect_err("bad options").to_string();
            assert!(error.contains(wanted), "{words:?}: {error}");
        }
    }

    #[test]
    fn only_tests_are_counted_in_a_list() {
        assert_eq!(
            listed("a::b: test\nc: test\nd: benchmark\n\n2 tests, 1 benchmarks\n"),
            2
        );
        assert_eq!(listed("0 tests, 0 benchmarks\n"), 0);
    }
}

//! The command line.

use std::{ffi::OsString, io::Write, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use softroce::{Error, Level, Vm, packages::Consent};

/// Runs a command in a micro-VM that has soft-RoCE devices: no root, no RDMA hardware.
///
/// The guest's root is this machine's own file system; what is written to it is gone afterwards. In it there are rxe0 (10.9.0.1 and fd09::1 on d0) and
/// rxe1 (10.9.1.1 on d1), and the command is root.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Runs one command; standard streams and the exit status pass through.
    ///
    /// Exit status: the command's own; 128+N when signal N ended it; 124 when the time limit ran out; 125 when the virtual machine failed; 126 when the command
    /// cannot be executed; 127 when it does not exist.
    Run {
        #[command(flatten)]
        options: Options,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Opens a shell: $SHELL, or /bin/sh.
    Shell {
        #[command(flatten)]
        options: Options,
    },
    /// Says what this machine has, what it lacks, and what would be done about it. Exit status: 0 when a command could be run.
    Doctor {
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Debug, Args)]
struct Options {
    /// Ends the command after so many seconds, with status 124.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time_limit: Option<Duration>,
    /// Shares a folder, writable, under the same path; may be given more than once.
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    /// Processors of the machine.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory of the machine in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u32,
    /// A kernel: a vmlinuz file, or the version of an installed one.
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<PathBuf>,
    /// Loads one more kernel module, a .ko file; may be given more than once.
    #[arg(long, value_name = "PATH")]
    module: Vec<PathBuf>,
    /// Adds a soft-iWARP device, siw0 with 10.9.2.1 and fd09:2::1; builds its module, once, where the kernel comes without.
    #[arg(long, conflicts_with = "device")]
    siw: bool,
    /// Loads more of the kernel's own modules, such as veth,sch_netem.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    modules: Vec<String>,
    /// Sets a variable of the command's environment (this program's own otherwise); may be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// The command's current folder.
    #[arg(long, short = 'C', value_name = "DIR")]
    current_dir: Option<PathBuf>,
    /// Where kernels are kept.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Installs missing packages with sudo.
    #[arg(long)]
    install: bool,
    /// Installs nothing, not even as root.
    #[arg(long, conflicts_with = "install")]
    no_install: bool,
    /// Uses the RDMA device of this machine: runs the command here, in no virtual machine.
    #[arg(long)]
    device: bool,
    /// Gives the command a terminal.
    #[arg(long, short = 't')]
    terminal: bool,
    /// Says nothing about downloads and the boot.
    #[arg(long, short)]
    quiet: bool,
    /// Shows the kernel's messages.
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
}

impl Options {
    fn consent(&self) -> Consent {
        match (self.install, self.no_install) {
            (true, _) => Consent::Given,
            (_, true) => Consent::Never,
            _ => Consent::IfRoot,
        }
    }

    fn vm(&self) -> Vm {
        let mut vm = Vm::new()
            .cpus(self.cpus)
            .memory_mib(self.memory)
            .consent(self.consent())
            .own_device(self.device)
            .soft_iwarp(self.siw)
            .terminal(self.terminal)
            .quiet(self.quiet)
            .verbose(self.verbose);
        if let Some(limit) = self.time_limit {
            vm = vm.time_limit(limit);
        }
        if let Some(kernel) = &self.kernel {
            vm = vm.kernel(kernel);
        }
        if let Some(folder) = &self.current_dir {
            vm = vm.current_dir(folder);
        }
        if let Some(folder) = &self.cache_dir {
            vm = vm.cache_dir(folder);
        }
        vm = self.share.iter().fold(vm, Vm::share);
        vm = self.module.iter().fold(vm, Vm::module);
        vm = self.modules.iter().fold(vm, Vm::kernel_module);
        self.env
            .iter()
            .fold(vm, |vm, (key, value)| vm.env(key, value))
    }
}

impl Cli {
    /// Does what was asked and returns the status to exit with.
    pub(crate) fn run(self) -> Result<i32, Error> {
        match self.action {
            Action::Run { options, command } => Ok(options.vm().run(command)?.code),
            Action::Shell { options } => {
                let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
                Ok(options.vm().terminal(true).run([shell])?.code)
            }
            Action::Doctor { options } => {
                let findings = options.vm().diagnose();
                let mut out = std::io::stdout().lock();
                for finding in &findings {
                    // A reader that has gone needs no report.
                    let _ = writeln!(out, "{finding}");
                }
                Ok(i32::from(
                    findings.iter().any(|finding| finding.level == Level::Bad),
                ))
            }
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| "must be more than 0".to_owned())
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not of the form KEY=VALUE")?;
    if key.is_empty() {
        Err("the name is empty".into())
    } else {
        Ok((key.into(), value.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, String> {
        Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_command_is_its_own() {
        for line in [
            "softroce run --cpus 3 -- sh -c --cpus",
            "softroce run --cpus 3 sh -c --cpus",
        ] {
            let Action::Run { options, command } = parse(line).unwrap().action else {
                panic!("{line}")
            };
            assert_eq!(
                (options.cpus, command),
                (3, ["sh", "-c", "--cpus"].map(OsString::from).to_vec()),
                "{line}"
            );
        }
    }

    #[test]
    fn lists_and_repeated_options_are_read() {
        let line = "softroce shell --share /a --share /b --modules veth,sch_netem --env A=b=c --time-limit 1.5";
        let Action::Shell { options } = parse(line).unwrap().action else {
            panic!()
        };
        assert_eq!(options.share, ["/a", "/b"].map(PathBuf::from));
        assert_eq!(options.modules, ["veth", "sch_netem"]);
        assert_eq!(options.env, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(options.time_limit, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn mistakes_are_refused() {
        for line in [
            "softroce run",
            "softroce run --no-such-option true",
            "softroce run --time-limit 0 true",
            "softroce run --time-limit -1 true",
            "softroce run --time-limit x true",
            "softroce run --cpus x true",
            "softroce run --env novalue true",
            "softroce run --env =x true",
            "softroce run --install --no-install true",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}

//! The virtual machine, as a builder.

mod accel;
mod console;
mod direct;
mod environment;
mod input;
mod qemu;
mod session;
mod stdio;
mod terminal;

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub(crate) use accel::KvmState;
pub use stdio::Stdio;

use self::{
    accel::{Accel, Knowledge},
    qemu::Machine,
    session::{End, Session},
};
use crate::{
    Error,
    cache::Cache,
    doctor::{self, Finding},
    host,
    kernel::{BootFiles, Extra, Kernel, siw},
    packages::{self, Consent, Need},
    progress::Progress,
    protocol::Job,
    tools::Interrupts,
};

/// How long a guest under KVM may take to its first sign of life: ten times what it needs.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long an emulated guest may take to it before it is booted once more, without a limit. On a machine with nine processes for two
/// processors it took 15 s.
///
/// One boot in some fifty on such a machine hangs in the guest's kernel: both processors run into the breakpoint by which it patches a
/// static key (`sched_clock_idle_wakeup_event`, QEMU 7.2), which the emulator goes on seeing after it has been taken away.
const EMULATION_PATIENCE: Duration = Duration::from_secs(90);

/// A micro-VM to run commands in.
///
/// ```no_run
/// # fn main() -> Result<(), softroce::Error> {
/// let outcome = softroce::Vm::new().run(["rdma", "link"])?;
/// std::process::exit(outcome.code);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Vm {
    cpus: u32,
    memory_mib: u32,
    time_limit: Option<Duration>,
    shares: Vec<PathBuf>,
    cache_dir: Option<PathBuf>,
    kernel: Option<PathBuf>,
    extra: Extra,
    soft_iwarp: bool,
    env: Vec<(OsString, OsString)>,
    current_dir: Option<PathBuf>,
    consent: Consent,
    own_device: bool,
    terminal: bool,
    quiet: bool,
    verbose: bool,
}

impl Default for Vm {
    fn default() -> Self {
        Self {
            cpus: 2,
            memory_mib: 2048,
            time_limit: None,
            shares: Vec::new(),
            cache_dir: None,
            kernel: None,
            extra: Extra::default(),
            soft_iwarp: false,
            env: Vec::new(),
            current_dir: None,
            consent: Consent::default(),
            own_device: false,
            terminal: false,
            quiet: false,
            verbose: false,
        }
    }
}

impl Vm {
    /// A machine with 2 processors, 2 GiB of memory and no time limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of processors.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Sets the memory, in MiB. What the command writes to the root is kept there too, at most 80 % of it.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Ends the command, with status 124, after this time. The boot counts, downloading a kernel does not.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Shares a folder of the machine, writable, under the same path in the guest. May be called more than once.
    #[must_use]
    pub fn share(mut self, dir: impl Into<PathBuf>) -> Self {
        self.shares.push(dir.into());
        self
    }

    /// Sets the folder where the kernel and what is made from it are kept. Otherwise that is `softroce` in
    /// `$CARGO_TARGET_DIR`, in the target folder that this program was built into, or in the user's cache.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache_dir = Some(dir.into());
        self
    }

    /// Uses this kernel: a `vmlinuz` file with its modules beside it or in `/lib/modules`, or a version such as `6.1.0-50-amd64`.
    #[must_use]
    pub fn kernel(mut self, kernel: impl Into<PathBuf>) -> Self {
        self.kernel = Some(kernel.into());
        self
    }

    /// Loads one more kernel module, a file, after the standard ones. With a `siw.ko` there is also a soft-iWARP device, `siw0` on
    /// `s0` with 10.9.2.1 and fd09:2::1.
    #[must_use]
    pub fn module(mut self, ko: impl Into<PathBuf>) -> Self {
        self.extra.files.push(ko.into());
        self
    }

    /// Loads one more module of the kernel, by name (`veth`, `sch_netem`), with all that it depends on.
    #[must_use]
    pub fn kernel_module(mut self, name: impl Into<String>) -> Self {
        self.extra.names.push(name.into());
        self
    }

    /// Adds a soft-iWARP device: `siw0` on `s0` with 10.9.2.1 and fd09:2::1. Its module is the kernel's own; where the kernel
    /// comes without, as Debian's do, one is built for it, once, which takes a download of 150 MB.
    #[must_use]
    pub fn soft_iwarp(mut self, on: bool) -> Self {
        self.soft_iwarp = on;
        self
    }

    /// Sets a variable of the command's environment, which is otherwise this process's own.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Sets the command's current folder; otherwise it is this process's own.
    #[must_use]
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(dir.into());
        self
    }

    /// Says whether missing packages may be installed.
    #[must_use]
    pub fn consent(mut self, consent: Consent) -> Self {
        self.consent = consent;
        self
    }

    /// Runs the command on the machine itself, on its own RDMA device, without a virtual machine.
    #[must_use]
    pub fn own_device(mut self, own: bool) -> Self {
        self.own_device = own;
        self
    }

    /// Gives the command a terminal, if this process has one.
    #[must_use]
    pub fn terminal(mut self, terminal: bool) -> Self {
        self.terminal = terminal;
        self
    }

    /// Says nothing about downloads and the boot.
    #[must_use]
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Shows the kernel's messages on standard error.
    #[must_use]
    pub fn verbose(mut self, verbose: bool) -> Self {
        self.verbose = verbose;
        self
    }

    /// Runs a command with this process's standard streams and waits for its end.
    ///
    /// A command that is not found, cannot be executed, or runs into the time limit is an outcome, and a message on standard error.
    ///
    /// # Errors
    ///
    /// The machine could not be started, or did not give the command's status. The message has not been printed.
    pub fn run<I, S>(&self, argv: I) -> Result<Outcome, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.run_with(argv, Stdio::inherit())
    }

    /// Runs a command with the given standard streams and waits for its end.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_with<I, S>(&self, argv: I, stdio: Stdio) -> Result<Outcome, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let argv: Vec<OsString> = argv
            .into_iter()
            .map(|argument| argument.as_ref().to_owned())
            .collect();
        let job = self.job(&argv)?;
        if self.own_device {
            if host::rdma_devices().is_empty() {
                return Err(Error::NoDevice);
            }
            return direct::run(&job, &self.env, self.time_limit, stdio)
                .map(|code| Outcome { code });
        }
        if !cfg!(target_arch = "x86_64") {
            return Err(Error::BadSetting(
                "guests are for x86-64 machines only so far; --device runs a command on this one"
                    .into(),
            ));
        }
        let mut progress = Progress::new(self.quiet);
        let cache = Cache::new(self.cache_dir.as_deref())?;
        // What the user got wrong comes before what the machine lacks.
        let named = self
            .kernel
            .as_ref()
            .map(|name| Kernel::named(name, &Kernel::roots(&cache)))
            .transpose()?;
        packages::ensure(&[Need::Qemu, Need::Iproute2], self.consent)?;
        let interrupts = Interrupts::watch()?;
        let kernel = match named {
            Some(kernel) => kernel,
            None => Kernel::find_or_download(&cache, &mut progress)?,
        };
        let program = packages::find_program(qemu::PROGRAM)
            .ok_or_else(|| Error::NotStarted(format!("{} is not in PATH", qemu::PROGRAM)))?;
        let mut extra = self.extra.clone();
        if self.soft_iwarp {
            siw::add(&mut extra, &kernel, &cache, self.consent, &mut progress)?;
        }
        let boot = BootFiles::prepare(&kernel, &extra, &cache, &mut progress)?;
        interrupts.check()?;
        let shares = self.share_paths()?;
        let job = Job {
            module_tree: tree_to_show(&kernel),
            ..job
        };
        let limit = self
            .time_limit
            .map(|length| (Instant::now() + length, length));
        let mut session = Session::new(&job, limit, stdio);
        let knowledge = Knowledge::new(&cache, &program, &kernel.image);
        let machine = |accel| Machine {
            program: &program,
            accel,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            boot: &boot,
            shares: &shares,
            verbose: self.verbose,
        };
        let state = knowledge.state();
        let choice = state.first_choice();
        if choice == Accel::Kvm {
            progress.step(format!("booting Linux {} with KVM", kernel.version));
            let result = session.attempt(&machine(Accel::Kvm), Some(PATIENCE), &mut progress);
            let failed = matches!(
                result,
                Err(Error::NotStarted(_) | Error::Panicked(_)) | Ok(End::NoLife)
            );
            if session.alive() || !failed {
                if state == KvmState::Untried && session.alive() {
                    knowledge.remember(true);
                }
                return result.map(Outcome::from);
            }
        }
        progress.step(format!("booting Linux {} under emulation", kernel.version));
        let mut result = session.attempt(
            &machine(Accel::Tcg),
            Some(EMULATION_PATIENCE),
            &mut progress,
        );
        if matches!(result, Ok(End::NoLife)) {
            progress.step("the guest hangs; booting it once more");
            result = session.attempt(&machine(Accel::Tcg), None, &mut progress);
        }
        // Only now is it certain that KVM was at fault, not a setting.
        if choice == Accel::Kvm && session.alive() {
            knowledge.remember(false);
        }
        result.map(Outcome::from)
    }

    /// Looks at what the machine has and lacks for running a command.
    pub fn diagnose(&self) -> Vec<Finding> {
        let mut findings = vec![
            doctor::need("QEMU", Need::Qemu),
            doctor::need("iproute2", Need::Iproute2),
        ];
        match Cache::new(self.cache_dir.as_deref()) {
            Ok(cache) => {
                findings.extend([
                    doctor::kernel(self.kernel.as_deref(), &cache),
                    doctor::folder(&cache),
                ]);
                let kernel = self.kernel.as_ref().map_or_else(
                    || Kernel::newest(&Kernel::roots(&cache)),
                    |name| Kernel::named(name, &Kernel::roots(&cache)).ok(),
                );
                let known = packages::find_program(qemu::PROGRAM).zip(kernel);
                let state = known.map_or_else(KvmState::unknown, |(program, kernel)| {
                    Knowledge::new(&cache, &program, &kernel.image).state()
                });
                findings.push(doctor::kvm(state));
            }
            Err(error) => findings.push(doctor::unusable(&error)),
        }
        findings.push(doctor::devices());
        findings
    }

    /// What the guest, or this machine, is to do.
    fn job(&self, argv: &[OsString]) -> Result<Job, Error> {
        let [_, ..] = argv else {
            return Err(Error::BadSetting("no command was given".into()));
        };
        if self.cpus == 0 || self.memory_mib < 256 {
            return Err(Error::BadSetting(
                "a machine needs at least one processor and 256 MiB of memory".into(),
            ));
        }
        let current_dir = match &self.current_dir {
            Some(folder) => {
                std::path::absolute(folder).map_err(|source| Error::io("enter", folder, source))?
            }
            None => env::current_dir()
                .map_err(|source| Error::io("find", "the current folder", source))?,
        };
        let terminal = self.terminal && terminal::is_interactive();
        let shares = self.share_paths()?;
        let shares = shares.iter().enumerate().flat_map(|(index, path)| {
            [
                qemu::share_tag(index).into_bytes(),
                path.as_os_str().as_bytes().to_vec(),
            ]
        });
        Ok(Job {
            argv: argv
                .iter()
                .map(|argument| argument.as_bytes().to_vec())
                .collect(),
            env: environment::for_guest(env::vars_os(), &self.env)
                .into_iter()
                .map(OsString::into_vec)
                .collect(),
            current_dir: current_dir.into_os_string().into_vec(),
            shares: shares.collect(),
            module_tree: Vec::new(),
            terminal: if terminal { terminal::size() } else { (0, 0) },
        })
    }

    fn share_paths(&self) -> Result<Vec<PathBuf>, Error> {
        let path = |folder: &PathBuf| {
            let path =
                fs::canonicalize(folder).map_err(|source| Error::io("share", folder, source))?;
            if path.is_dir() {
                Ok(path)
            } else {
                Err(Error::io(
                    "share",
                    folder,
                    std::io::ErrorKind::NotADirectory.into(),
                ))
            }
        };
        self.shares.iter().map(path).collect()
    }
}

/// The folder of modules, unless it is where the guest sees it anyway.
fn tree_to_show(kernel: &Kernel) -> Vec<u8> {
    let usual = [Path::new("/lib/modules"), Path::new("/usr/lib/modules")];
    let in_place = kernel
        .modules
        .parent()
        .is_some_and(|parent| usual.contains(&parent));
    if in_place {
        Vec::new()
    } else {
        kernel.modules.as_os_str().as_bytes().to_vec()
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The status to exit with: the command's own; 128 + the signal that ended it; 124 when the time limit ran out;
    /// 126 or 127 when it could not be executed or found.
    pub code: i32,
}

impl From<End> for Outcome {
    fn from(end: End) -> Self {
        match end {
            End::Status(code) => Self { code },
            End::NoLife => Self {
                code: crate::EXIT_VM_FAILED,
            },
        }
    }
}

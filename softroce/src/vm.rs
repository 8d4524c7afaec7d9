//! The virtual machine, as a builder.

use std::{
    ffi::{OsStr, OsString},
    io::{Read, Write},
    path::PathBuf,
    time::Duration,
};

use crate::{Error, packages::Consent};

/// Where a command's standard streams lead.
pub struct Stdio {
    stdin: Option<Box<dyn Read + Send>>,
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
}

impl Stdio {
    /// This process's own streams.
    pub fn inherit() -> Self {
        Self {
            stdin: Some(Box::new(std::io::stdin())),
            stdout: Box::new(std::io::stdout()),
            stderr: Box::new(std::io::stderr()),
        }
    }

    /// No standard input; output to the two writers.
    pub fn to(stdout: impl Write + Send + 'static, stderr: impl Write + Send + 'static) -> Self {
        Self {
            stdin: None,
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
        }
    }
}

impl std::fmt::Debug for Stdio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stdio")
            .field("stdin", &self.stdin.is_some())
            .finish_non_exhaustive()
    }
}

/// A micro-VM to run commands in.
#[derive(Debug, Clone, Default)]
pub struct Vm {
    cpus: Option<u32>,
    memory_mib: Option<u32>,
    time_limit: Option<Duration>,
    shares: Vec<PathBuf>,
    cache_dir: Option<PathBuf>,
    kernel: Option<PathBuf>,
    modules: Vec<PathBuf>,
    env: Vec<(OsString, OsString)>,
    current_dir: Option<PathBuf>,
    consent: Consent,
    own_device: bool,
}

impl Vm {
    /// A machine with 2 CPUs, 2 GiB, no time limit.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets the number of CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = Some(cpus);
        self
    }
    /// Sets the memory, in MiB.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = Some(mib);
        self
    }
    /// Ends the command, with status 124, after this time. The boot counts.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }
    /// Shares a folder of the machine, writable, under the same path. May be called more than once.
    #[must_use]
    pub fn share(mut self, dir: impl Into<PathBuf>) -> Self {
        self.shares.push(dir.into());
        self
    }
    /// Sets the folder for the kernel and what is made from it.
    #[must_use]
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cache_dir = Some(dir.into());
        self
    }
    /// Uses this kernel: a `vmlinuz` file, or a version such as `6.1.0-50-amd64`.
    #[must_use]
    pub fn kernel(mut self, kernel: impl Into<PathBuf>) -> Self {
        self.kernel = Some(kernel.into());
        self
    }
    /// Loads one more kernel module (a `.ko` file) after the standard ones.
    #[must_use]
    pub fn module(mut self, ko: impl Into<PathBuf>) -> Self {
        self.modules.push(ko.into());
        self
    }
    /// Sets a variable of the command's environment.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.as_ref().into(), value.as_ref().into()));
        self
    }
    /// Sets the command's current folder (this process's own by default).
    #[must_use]
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(dir.into());
        self
    }
    /// Allows missing packages to be installed.
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
    /// Runs a command with this process's standard streams and waits for its end.
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
        let _ = (argv.into_iter().count(), stdio);
        Err(Error::Other("not built yet".into()))
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

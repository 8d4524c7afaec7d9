//! Why a command could not be run.

use std::{io, path::PathBuf};

/// Why a command could not be run, in one message for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something is missing on the machine; the message says how to install it.
    #[error("{what} {}; {how}", if *.many { "are missing" } else { "is missing" })]
    Missing {
        /// What is missing.
        what: String,
        /// Whether that is more than one thing.
        many: bool,
        /// How to get it: a sentence with the command.
        how: String,
    },
    /// There is no such kernel.
    #[error("there is no kernel `{name}` here: {why}")]
    UnknownKernel {
        /// What was asked for.
        name: String,
        /// What was looked for.
        why: String,
    },
    /// No kernel with `rdma_rxe` is installed, and none could be downloaded.
    #[error("no kernel with the module rdma_rxe was found: {0}")]
    NoKernel(String),
    /// The kernel lacks a module.
    #[error("the kernel lacks the module {name}")]
    NoModule {
        /// Its name.
        name: String,
    },
    /// The kernel comes without soft-iWARP, and none could be built for it.
    #[error("Linux {version} comes without soft-iWARP (siw), and it could not be built: {why}")]
    NoSiw {
        /// The kernel's version.
        version: String,
        /// What is in the way.
        why: String,
    },
    /// A file given as a module is none.
    #[error("cannot use {} as a kernel module: {why}", path.display())]
    BadModule {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No space is left where files are kept.
    #[error("no space left for {}: free some (a kernel takes 500 MiB), or name another folder with --cache-dir", path.display())]
    NoSpace {
        /// What could not be written.
        path: PathBuf,
    },
    /// A file could not be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The verb: `read`, `write`, `make`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another program failed.
    #[error("`{command}` failed: {reason}")]
    Tool {
        /// The command line.
        command: String,
        /// Its last words, or how it ended.
        reason: String,
    },
    /// The virtual machine did not start.
    #[error("the virtual machine did not start: {0}")]
    NotStarted(String),
    /// The guest's kernel panicked.
    #[error("the guest's kernel panicked: {0}")]
    Panicked(String),
    /// The machine stopped before the command had ended.
    #[error("the virtual machine stopped before the command had ended{0}")]
    Stopped(String),
    /// The guest could not be set up, or not run the command in the given surroundings.
    #[error("{0}")]
    Guest(String),
    /// The machine has no RDMA device of its own.
    #[error(
        "this machine has no RDMA device (nothing in /sys/class/infiniband); without --device the command runs in a virtual machine that has one"
    )]
    NoDevice,
    /// A signal asked this process to end before the command had started.
    #[error("interrupted by signal {signal}")]
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    BadSetting(String),
}

impl Error {
    /// Returns the status that a program should exit with: 125, as with `env`, `timeout` and container runtimes; 128 + the
    /// signal after one.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Interrupted { signal } => 128 + signal,
            _ => crate::EXIT_VM_FAILED,
        }
    }

    /// An input/output error with what was being done; "no space" gets a message of its own.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            _ => Self::Io {
                doing,
                path,
                source,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart() {
        let full = Error::io("write", "/x", io::ErrorKind::StorageFull.into());
        assert!(
            full.to_string().starts_with("no space left for /x"),
            "{full}"
        );
        let other = Error::io("write", "/x", io::ErrorKind::NotFound.into());
        assert!(
            other.to_string().starts_with("cannot write /x: "),
            "{other}"
        );
        assert_eq!(full.exit_code(), 125);
    }
}

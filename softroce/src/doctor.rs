//! What a machine has and lacks, in lines for a person.

use std::fmt;

use rustix::fs::statvfs;

use crate::{
    cache::Cache,
    host,
    kernel::Kernel,
    packages::{self, Manager, Need},
    vm::KvmState,
};

/// How good or bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// No command can be run like this.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How good or bad it is.
    pub level: Level,
    /// What was looked at.
    pub subject: &'static str,
    /// What was found.
    pub text: String,
}

impl Finding {
    fn new(level: Level, subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            level,
            subject,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.level {
            Level::Good => "ok  ",
            Level::Note => "note",
            Level::Bad => "BAD ",
        };
        write!(f, "{mark}  {:<9} {}", self.subject, self.text)
    }
}

/// A program or package that must be there.
pub(crate) fn need(subject: &'static str, need: Need) -> Finding {
    if need.is_met() {
        return Finding::new(Level::Good, subject, need.name());
    }
    let how = packages::install_line(&[need]).map_or_else(
        || "install it from your distribution".to_owned(),
        |line| format!("install with: {line}"),
    );
    Finding::new(
        Level::Bad,
        subject,
        format!("{} is missing; {how}", need.name()),
    )
}

/// The kernel that a command would run on.
pub(crate) fn kernel(wanted: Option<&std::path::Path>, cache: &Cache) -> Finding {
    let roots = Kernel::roots(cache);
    let found = match wanted {
        Some(name) => Kernel::named(name, &roots).map(Some),
        None => Ok(Kernel::newest(&roots)),
    };
    match (found, Manager::detect()) {
        (Err(error), _) => Finding::new(Level::Bad, "kernel", error.to_string()),
        (Ok(Some(kernel)), _) => Finding::new(
            Level::Good,
            "kernel",
            format!("{} ({})", kernel.version, kernel.image.display()),
        ),
        (Ok(None), Some(manager)) => {
            let text = format!(
                "none with rdma_rxe is installed; the distribution's is downloaded with {} when it is first needed",
                manager.program()
            );
            Finding::new(Level::Note, "kernel", text)
        }
        (Ok(None), None) => Finding::new(
            Level::Bad,
            "kernel",
            "none with rdma_rxe is installed, and the package manager is unknown: name one with --kernel",
        ),
    }
}

/// The folder where kernels are kept.
pub(crate) fn folder(cache: &Cache) -> Finding {
    let folder = match cache.folder() {
        Ok(folder) => folder,
        Err(error) => return Finding::new(Level::Bad, "cache", error.to_string()),
    };
    let free = statvfs(folder).map_or(0, |known| {
        known.f_bavail.saturating_mul(known.f_frsize) >> 20
    });
    let level = if free < 500 { Level::Note } else { Level::Good };
    Finding::new(
        level,
        "cache",
        format!("{} ({free} MiB free)", folder.display()),
    )
}

/// The cache cannot even be named.
pub(crate) fn unusable(error: &crate::Error) -> Finding {
    Finding::new(Level::Bad, "cache", error.to_string())
}

/// Whether the processor can execute the guest.
pub(crate) fn kvm(state: KvmState) -> Finding {
    match state {
        KvmState::Absent => Finding::new(
            Level::Note,
            "KVM",
            "/dev/kvm is missing or not for this user: guests are emulated (a boot takes seconds longer)",
        ),
        KvmState::Untried => Finding::new(
            Level::Note,
            "KVM",
            "/dev/kvm is there; whether it works is tried at the next run",
        ),
        KvmState::Works => Finding::new(Level::Good, "KVM", "works"),
        KvmState::Fails => Finding::new(
            Level::Note,
            "KVM",
            "/dev/kvm is there but has not worked since this machine was started: guests are emulated",
        ),
    }
}

/// The machine's own RDMA devices.
pub(crate) fn devices() -> Finding {
    match host::rdma_devices().as_slice() {
        [] => Finding::new(
            Level::Note,
            "RDMA",
            "no device of this machine's own: commands run in the virtual machine",
        ),
        names => Finding::new(
            Level::Note,
            "RDMA",
            format!(
                "this machine has {}: --device runs commands on it",
                names.join(", ")
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::new(Level::Bad, "QEMU", "is missing");
        assert_eq!(finding.to_string(), "BAD   QEMU      is missing");
        assert_eq!(kvm(KvmState::Works).to_string(), "ok    KVM       works");
    }

    #[test]
    fn an_unknown_kernel_is_bad_and_a_missing_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path())).unwrap();
        assert_eq!(
            kernel(Some(Path::new("no-such-kernel")), &cache).level,
            Level::Bad
        );
        if Manager::detect().is_some() {
            assert_ne!(kernel(None, &cache).level, Level::Bad);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_bad() {
        let cache = Cache::new(Some(Path::new("/proc/no/such"))).unwrap();
        assert_eq!(folder(&cache).level, Level::Bad);
    }
}

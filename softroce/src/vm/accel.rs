//! KVM or emulation: which one works here is found by trying, and remembered.

use std::{fs, path::Path};

use rustix::fs::{Access, access};

use crate::cache::{Cache, Key};

/// How the guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accel {
    /// By the processor.
    Kvm,
    /// By QEMU.
    Tcg,
}

/// What is known about KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KvmState {
    /// There is no device that this user may open.
    Absent,
    /// It has not been tried.
    Untried,
    /// A guest has shown a sign of life.
    Works,
    /// It was tried in vain.
    Fails,
}

impl KvmState {
    fn new(device: bool, answer: &str) -> Self {
        match answer {
            _ if !device => Self::Absent,
            "works" => Self::Works,
            "" => Self::Untried,
            _ => Self::Fails,
        }
    }

    /// What is known without a QEMU and a kernel to try it with.
    pub(crate) fn unknown() -> Self {
        Self::new(device(), "")
    }

    /// What to try first.
    pub(crate) fn first_choice(self) -> Accel {
        match self {
            Self::Works | Self::Untried => Accel::Kvm,
            Self::Absent | Self::Fails => Accel::Tcg,
        }
    }
}

/// What has been remembered about KVM on this machine since it was started.
#[derive(Debug)]
pub(crate) struct Knowledge<'a> {
    cache: &'a Cache,
    name: String,
}

impl<'a> Knowledge<'a> {
    /// An answer holds for one QEMU, one kernel and one boot of the machine.
    pub(crate) fn new(cache: &'a Cache, qemu: &Path, kernel: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let key = Key::default().with(boot).with_file(qemu).with_file(kernel);
        Self {
            cache,
            name: format!("kvm-{}", key.text()),
        }
    }

    /// What is known.
    pub(crate) fn state(&self) -> KvmState {
        let answer = fs::read_to_string(self.cache.path(&self.name)).unwrap_or_default();
        KvmState::new(device(), answer.trim())
    }

    /// Remembers whether KVM works. Failing to is harmless: it is tried again.
    pub(crate) fn remember(&self, works: bool) {
        let _ = self.cache.write(
            &self.name,
            if works {
                b"works\n"
            } else {
                b"does not work\n"
            },
        );
    }
}

fn device() -> bool {
    access("/dev/kvm", Access::READ_OK | Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_tried_unless_it_is_known_not_to_work() {
        let choice = |device, answer| KvmState::new(device, answer).first_choice();
        assert_eq!(choice(true, ""), Accel::Kvm);
        assert_eq!(choice(true, "works"), Accel::Kvm);
        assert_eq!(choice(true, "does not work"), Accel::Tcg);
        assert_eq!(choice(false, ""), Accel::Tcg);
        assert_eq!(choice(false, "works"), Accel::Tcg);
    }

    #[test]
    fn an_answer_is_remembered_for_one_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path())).unwrap();
        let knowledge = Knowledge::new(&cache, Path::new("/qemu"), Path::new("/kernel"));
        knowledge.remember(false);
        assert_eq!(
            fs::read_to_string(cache.path(&knowledge.name)).unwrap(),
            "does not work\n"
        );
        assert_eq!(knowledge.state().first_choice(), Accel::Tcg);
        let other = Knowledge::new(&cache, Path::new("/qemu"), Path::new("/other-kernel"));
        assert_ne!(other.name, knowledge.name);
    }
}

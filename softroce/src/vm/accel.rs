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

/// What is known about KVM on this machine since it was started.
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

    /// What to try first. Returns also whether that has worked before.
    pub(crate) fn first_choice(&self) -> (Accel, bool) {
        let answer = fs::read_to_string(self.cache.path(&self.name)).unwrap_or_default();
        choose(
            access("/dev/kvm", Access::READ_OK | Access::WRITE_OK).is_ok(),
            answer.trim(),
        )
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

fn choose(device: bool, answer: &str) -> (Accel, bool) {
    match answer {
        _ if !device => (Accel::Tcg, true),
        "works" => (Accel::Kvm, true),
        "" => (Accel::Kvm, false),
        _ => (Accel::Tcg, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_tried_unless_it_is_known_not_to_work() {
        assert_eq!(choose(true, ""), (Accel::Kvm, false));
        assert_eq!(choose(true, "works"), (Accel::Kvm, true));
        assert_eq!(choose(true, "does not work"), (Accel::Tcg, true));
        assert_eq!(choose(false, ""), (Accel::Tcg, true));
        assert_eq!(choose(false, "works"), (Accel::Tcg, true));
    }

    #[test]
    fn an_answer_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path())).unwrap();
        let knowledge = Knowledge::new(&cache, Path::new("/qemu"), Path::new("/kernel"));
        knowledge.remember(false);
        assert_eq!(knowledge.first_choice().0, Accel::Tcg);
        let other = Knowledge::new(&cache, Path::new("/qemu"), Path::new("/other-kernel"));
        assert_ne!(other.name, knowledge.name);
    }
}

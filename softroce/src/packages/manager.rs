//! The package managers of distributions.

use std::{env, path::Path, process::Command};

use rustix::process::geteuid;

/// A package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Manager {
    /// Debian, Ubuntu.
    Apt,
    /// Fedora, RHEL.
    Dnf,
    /// Arch.
    Pacman,
    /// Alpine.
    Apk,
    /// openSUSE.
    Zypper,
}

impl Manager {
    /// Every manager, in the order in which they are looked for.
    pub(crate) const ALL: [Self; 5] = [Self::Apt, Self::Dnf, Self::Zypper, Self::Apk, Self::Pacman];

    /// Finds the machine's package manager.
    pub fn detect() -> Option<Self> {
        // Not only in PATH: a broken PATH is no reason not to name the command.
        let usual = |manager: &Self| {
            ["/usr/bin", "/sbin"]
                .iter()
                .any(|folder| Path::new(folder).join(manager.program()).is_file())
        };
        Self::ALL
            .into_iter()
            .find(|manager| super::find_program(manager.program()).is_some() || usual(manager))
    }

    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Apt => "apt-get",
            Self::Dnf => "dnf",
            Self::Pacman => "pacman",
            Self::Apk => "apk",
            Self::Zypper => "zypper",
        }
    }

    /// The arguments that install packages without a question.
    fn install_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Apt => &["install", "-y", "--no-install-recommends"],
            Self::Dnf => &["install", "-y"],
            Self::Pacman => &["-Sy", "--needed", "--noconfirm"],
            Self::Apk => &["add"],
            Self::Zypper => &["--non-interactive", "install"],
        }
    }

    /// The command line that installs packages, for a person to type.
    pub fn install_line(self, packages: &[&str]) -> String {
        let refresh = if self == Self::Apt && !apt_has_lists() {
            "sudo apt-get update && "
        } else {
            ""
        };
        let sudo = if geteuid().is_root() { "" } else { "sudo " };
        let refresh = if sudo.is_empty() {
            refresh.replace("sudo ", "")
        } else {
            refresh.to_owned()
        };
        format!(
            "{refresh}{sudo}{} {} {}",
            self.program(),
            self.install_arguments().join(" "),
            packages.join(" ")
        )
    }

    /// The commands that install packages, in order; with `sudo` when the user is not root.
    pub(crate) fn install_commands(self, packages: &[&str]) -> Vec<Command> {
        let mut commands = Vec::new();
        if self == Self::Apt {
            commands.push(self.command(&["update", "-q"]));
        }
        let mut install = self.command(self.install_arguments());
        install.args(packages);
        commands.push(install);
        commands
    }

    fn command(self, arguments: &[&str]) -> Command {
        let mut command = if geteuid().is_root() {
            Command::new(self.program())
        } else {
            let mut sudo = Command::new("sudo");
            sudo.arg(self.program());
            sudo
        };
        if self == Self::Apt {
            // Another installation may be under way.
            command.args(["-o", "DPkg::Lock::Timeout=120"]);
        }
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// Tells whether apt knows any package at all: images for containers come without the lists.
fn apt_has_lists() -> bool {
    let folder = Path::new("/var/lib/apt/lists");
    std::fs::read_dir(folder).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    })
}

/// Where programs are looked for: `PATH`, then where programs for root are.
pub(crate) fn program_folders() -> Vec<std::path::PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    env::split_paths(&path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .chain(system)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_what_a_person_types() {
        let line = Manager::Dnf.install_line(&["iproute", "qemu-system-x86-core"]);
        let sudo = if geteuid().is_root() { "" } else { "sudo " };
        assert_eq!(
            line,
            format!("{sudo}dnf install -y iproute qemu-system-x86-core")
        );
        assert!(
            Manager::Apt
                .install_line(&["iproute2"])
                .ends_with("apt-get install -y --no-install-recommends iproute2")
        );
        assert!(
            Manager::Pacman
                .install_line(&["qemu-base"])
                .ends_with("pacman -Sy --needed --noconfirm qemu-base")
        );
    }

    #[test]
    fn apt_refreshes_its_lists_first() {
        let commands = Manager::Apt.install_commands(&["gcc"]);
        let lines: Vec<String> = commands.iter().map(crate::tools::line).collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].ends_with("update -q")
                && lines[1].ends_with("install -y --no-install-recommends gcc"),
            "{lines:?}"
        );
        assert_eq!(Manager::Apk.install_commands(&["gcc"]).len(), 1);
    }
}

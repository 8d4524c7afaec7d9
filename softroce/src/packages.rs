//! What a machine needs, and how its distribution installs it.
//!
//! Whether something is there is decided by the file or program itself, not by a package database: it may come from elsewhere.

mod manager;
mod need;

use std::path::PathBuf;

use rustix::process::geteuid;

pub use manager::Manager;
pub use need::Need;

use crate::{Error, tools::Interrupts};

/// Whether packages may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consent {
    /// Only when the user is root.
    #[default]
    IfRoot,
    /// Yes, with `sudo` when the user is not root.
    Given,
    /// Never: what is missing is an error.
    Never,
}

impl Consent {
    fn allows(self) -> bool {
        match self {
            Self::IfRoot => geteuid().is_root(),
            Self::Given => true,
            Self::Never => false,
        }
    }
}

/// Returns those of `needs` that the machine does not have.
pub fn missing(needs: &[Need]) -> Vec<Need> {
    needs
        .iter()
        .copied()
        .filter(|need| !need.is_met())
        .collect()
}

/// Returns the command that installs `needs` on this machine; `None` when its package manager is unknown, or has
/// no package for any of them.
pub fn install_line(needs: &[Need]) -> Option<String> {
    let manager = Manager::detect()?;
    let packages = names(needs, manager);
    (!packages.is_empty()).then(|| manager.install_line(&packages))
}

/// Makes sure that the machine has all of `needs`.
///
/// What is installed is reported in one line on standard error.
///
/// # Errors
///
/// [`Error::Missing`] with the command that installs what is missing, when it may not be installed; [`Error::Tool`] when
/// the package manager failed.
pub fn ensure(needs: &[Need], consent: Consent) -> Result<(), Error> {
    let absent = missing(needs);
    if absent.is_empty() {
        return Ok(());
    }
    let Some(manager) = Manager::detect() else {
        return Err(refusal(&absent, "install it from your distribution".into()));
    };
    let packages = names(&absent, manager);
    if packages.is_empty() {
        return Err(refusal(
            &absent,
            "your distribution has no package for it".into(),
        ));
    }
    let line = manager.install_line(&packages);
    if !consent.allows() {
        return Err(refusal(
            &absent,
            format!("install with: {line} (or say --install)"),
        ));
    }
    if !geteuid().is_root() && find_program("sudo").is_none() {
        return Err(refusal(
            &absent,
            format!(
                "there is no sudo to install it with: as root, {}",
                line.replace("sudo ", "")
            ),
        ));
    }
    eprintln!("softroce: installing {}", packages.join(" "));
    let interrupts = Interrupts::watch()?;
    for mut command in manager.install_commands(&packages) {
        interrupts.run_attended(&mut command)?;
    }
    match missing(&absent).as_slice() {
        [] => Ok(()),
        still => Err(refusal(still, format!("{line} has not changed that"))),
    }
}

fn refusal(needs: &[Need], how: String) -> Error {
    let names: Vec<&str> = needs.iter().map(|need| need.name()).collect();
    Error::Missing {
        what: names.join(" and "),
        many: names.len() > 1,
        how,
    }
}

fn names(needs: &[Need], manager: Manager) -> Vec<&'static str> {
    let mut names: Vec<&str> = needs
        .iter()
        .flat_map(|need| need.packages(manager))
        .copied()
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Finds a program in `PATH`, or where programs for root are.
pub fn find_program(name: &str) -> Option<PathBuf> {
    manager::program_folders()
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_once() {
        assert_eq!(
            names(
                &[Need::RdmacmUtils, Need::IbverbsUtils, Need::Qemu],
                Manager::Pacman
            ),
            ["qemu-system-x86", "rdma-core"]
        );
    }

    #[test]
    fn the_message_names_what_is_missing_and_the_command() {
        let one = refusal(&[Need::Qemu], "install with: x".into()).to_string();
        assert_eq!(one, "QEMU (qemu-system-x86_64) is missing; install with: x");
        let two = refusal(&[Need::Qemu, Need::Iproute2], "install with: x".into()).to_string();
        assert_eq!(
            two,
            "QEMU (qemu-system-x86_64) and iproute2 (ip, rdma) are missing; install with: x"
        );
    }

    #[test]
    fn what_is_there_needs_no_package_manager() {
        assert!(missing(&[Need::Cc]).is_empty());
        assert!(ensure(&[Need::Cc], Consent::Never).is_ok());
        assert!(find_program("sh").is_some() && find_program("no-such-program-here").is_none());
    }
}

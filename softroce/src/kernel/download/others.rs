//! The other distributions, as far as their documentation goes: none of this has been run on one.

use std::{fs, path::Path, process::Command};

use super::{LEFT_OUT, Work};
use crate::{Error, packages::Manager};

/// Downloads the kernel's packages and unpacks what is needed of them.
pub(super) fn fetch(manager: Manager, work: &mut Work<'_>) -> Result<(), Error> {
    work.progress
        .step(format!("downloading the kernel with {}", manager.program()));
    for mut command in downloads(manager, &work.packages) {
        work.download(&mut command, None)?;
    }
    work.progress.step("unpacking the kernel");
    for ending in [".rpm", ".pkg.tar.zst", ".apk"] {
        for package in work.files(ending) {
            unpack(work, &package, ending)?;
        }
    }
    // Usrmerge: what these call /usr/lib/modules is found there too.
    Ok(())
}

/// The commands that put the packages into a folder, without installing them and without root.
fn downloads(manager: Manager, folder: &Path) -> Vec<Command> {
    let command = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    let here = folder.to_string_lossy().into_owned();
    match manager {
        Manager::Dnf => vec![command(
            "dnf",
            &[
                "download",
                "--destdir",
                &here,
                "kernel-core",
                "kernel-modules-core",
                "kernel-modules",
                "kernel-modules-extra",
            ],
        )],
        Manager::Zypper => vec![command(
            "zypper",
            &[
                "--non-interactive",
                "--pkg-cache-dir",
                &here,
                "download",
                "kernel-default",
            ],
        )],
        Manager::Apk => vec![command("apk", &["fetch", "--output", &here, "linux-lts"])],
        // pacman downloads for root only, but tells everybody from where.
        Manager::Pacman => vec![command(
            "sh",
            &[
                "-ec",
                "curl -fsSLO \"$(pacman -Sp --print-format %l linux)\"",
            ],
        )],
        Manager::Apt => Vec::new(),
    }
}

fn unpack(work: &Work<'_>, package: &Path, ending: &str) -> Result<(), Error> {
    let archive = if ending == ".rpm" {
        // Writes an archive beside the package.
        let mut convert = Command::new("rpm2archive");
        work.interrupts.run(convert.arg(package), &mut || ())?;
        package.with_file_name(format!(
            "{}.tgz",
            package.file_name().unwrap_or_default().to_string_lossy()
        ))
    } else {
        package.to_owned()
    };
    let mut tar = Command::new("tar");
    tar.arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(&work.root)
        .args(LEFT_OUT.iter().map(|part| format!("--exclude={part}")));
    work.interrupts.run(&mut tar, &mut || ())?;
    for file in [package, &archive] {
        let _ = fs::remove_file(file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_manager_has_a_way() {
        for manager in Manager::ALL {
            let lines: Vec<String> = downloads(manager, Path::new("/d"))
                .iter()
                .map(crate::tools::line)
                .collect();
            assert_eq!(
                lines.is_empty(),
                manager == Manager::Apt,
                "{manager:?}: {lines:?}"
            );
        }
        assert_eq!(
            crate::tools::line(&downloads(Manager::Apk, Path::new("/d"))[0]),
            "apk fetch --output /d linux-lts"
        );
    }
}

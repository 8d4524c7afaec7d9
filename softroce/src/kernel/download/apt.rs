//! Debian and Ubuntu. Needs no root: `apt-get download` writes where it is told, and lists that are missing or out of date are fetched into a folder of
//! our own.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{LEFT_OUT, Work};
use crate::{Error, child, kernel::siw::Release};

/// The packages that always depend on the newest kernel: Debian's and Ubuntu's.
const META: [&str; 2] = ["linux-image-amd64", "linux-image-generic"];

/// Downloads the kernel's packages and unpacks what is needed of them.
pub(super) fn fetch(work: &mut Work<'_>) -> Result<(), Error> {
    work.step("looking for the distribution's kernel");
    with_lists(work, |work, options| {
        let packages = resolve(|name| depends(work, options, name))?;
        download(work, options, &packages)
    })?;
    work.step("unpacking the kernel");
    let left_out = LEFT_OUT.map(|part| format!("--exclude={part}"));
    for package in work.files(".deb") {
        unpack(work, &package, &left_out)?;
        let _ = fs::remove_file(package);
    }
    Ok(())
}

/// Downloads what modules for a kernel are built with, and unpacks it as it would be installed; and of the kernel's source the
/// folder `part`, under its own path.
pub(in crate::kernel) fn unpack_part_of_source(
    work: &mut Work<'_>,
    release: &Release,
    part: &str,
) -> Result<(), Error> {
    let (headers, source) = (release.headers(), release.source());
    work.step(format!(
        "looking for the source of Linux {}",
        release.series()
    ));
    with_lists(work, |work, options| {
        let mut packages = builders(&depends(work, options, &headers)?);
        packages.insert(headers.clone());
        download(work, options, &packages)?;
        // The source of the same patch level, or else the newest of the series.
        let version = version(work, options, &headers)?;
        match download(work, options, &[format!("{source}={version}")].into()) {
            Err(Error::Tool { .. }) => download(work, options, &[source.clone()].into()),
            result => result,
        }
    })?;
    work.step("unpacking the source");
    for package in work.files(".deb") {
        let all_but_documents = ["--exclude=*/usr/share".to_owned()];
        unpack(work, &package, &all_but_documents)?;
        let _ = fs::remove_file(package);
    }
    let archive = work.root.join(format!("usr/src/{source}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(&archive).arg("-C").arg(&work.root);
    // Without the first folder, whose name is that of the series.
    tar.args(["--strip-components=1", "--no-same-owner"])
        .arg(format!("{source}/{part}"));
    work.run(&mut tar)?;
    let _ = fs::remove_file(archive);
    Ok(())
}

/// Tries with the machine's package lists, and then with lists of our own: those may be missing or out of date, and only root
/// may change them.
fn with_lists(
    work: &mut Work<'_>,
    attempt: impl Fn(&mut Work<'_>, &[String]) -> Result<(), Error>,
) -> Result<(), Error> {
    let own = own_lists(work)?;
    match attempt(work, &[]) {
        Err(error @ (Error::Interrupted { .. } | Error::NoSpace { .. })) => return Err(error),
        Err(_) => {}
        Ok(()) => return Ok(()),
    }
    work.step("fetching the distribution's package lists");
    let mut update = Command::new("apt-get");
    update.args(&own).args(["-q", "update"]);
    work.run(&mut update)?;
    attempt(work, &own)
}

/// Options that make apt keep its lists in our folder.
fn own_lists(work: &Work<'_>) -> Result<Vec<String>, Error> {
    let folder = work.packages.join("apt");
    for part in ["lists/partial", "cache/archives/partial"] {
        let path = folder.join(part);
        fs::create_dir_all(&path).map_err(|source| Error::io("make", path, source))?;
    }
    let option = |name: &str, part: &str| format!("-o{name}={}", folder.join(part).display());
    Ok(vec![
        option("Dir::State::Lists", "lists"),
        option("Dir::Cache", "cache"),
    ])
}

/// What `apt-cache depends` says of a package.
fn depends(work: &Work<'_>, options: &[String], name: &str) -> Result<String, Error> {
    apt_cache(work, options, &["depends", name])
}

/// The version of a package that apt would download.
fn version(work: &Work<'_>, options: &[String], name: &str) -> Result<String, Error> {
    let shown = apt_cache(work, options, &["show", "--no-all-versions", name])?;
    let version = shown
        .lines()
        .find_map(|line| line.strip_prefix("Version: "));
    Ok(version.unwrap_or_default().to_owned())
}

fn apt_cache(work: &Work<'_>, options: &[String], arguments: &[&str]) -> Result<String, Error> {
    let mut command = Command::new("apt-cache");
    command.args(options).args(arguments).env("LC_ALL", "C");
    let output = work.run(&mut command)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Downloads packages, `NAME` or `NAME=VERSION`.
fn download(
    work: &mut Work<'_>,
    options: &[String],
    packages: &BTreeSet<String>,
) -> Result<(), Error> {
    let mut uris = Command::new("apt-get");
    uris.args(options)
        .args(["-qq", "--print-uris", "download"])
        .args(packages);
    let total = total_size(&String::from_utf8_lossy(&work.run(&mut uris)?));
    work.progress.step(format!(
        "downloading {}",
        packages
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    ));
    let mut download = Command::new("apt-get");
    // As root, apt would hand the download to a user who cannot write here.
    download
        .args(options)
        .args(["-qq", "-oAPT::Sandbox::User=root", "download"])
        .args(packages);
    work.download(&mut download, total)
}

/// Follows the dependencies from the packages that stand for the newest kernel to those that hold it.
fn resolve(depends: impl Fn(&str) -> Result<String, Error>) -> Result<BTreeSet<String>, Error> {
    let mut last = Error::NoKernel("apt knows no package of a kernel".into());
    for meta in META {
        let found = match depends(meta) {
            Ok(output) => parts(&output),
            Err(error @ Error::Interrupted { .. }) => return Err(error),
            Err(error) => {
                last = error;
                continue;
            }
        };
        let mut open: Vec<String> = found.into_iter().collect();
        let mut packages = BTreeSet::new();
        while let Some(name) = open.pop() {
            if packages.insert(name.clone()) {
                open.extend(parts(&depends(&name)?));
            }
        }
        if !packages.is_empty() {
            return Ok(packages);
        }
    }
    Err(last)
}

/// The packages that modules are built with, of those that the headers depend on. The compiler, which is among them too, is the
/// machine's.
fn builders(output: &str) -> BTreeSet<String> {
    let names = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    names
        .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"))
        .map(str::to_owned)
        .collect()
}

/// The packages of a kernel's parts that the output of `apt-cache depends` names: `linux-image-6.1.0-50-amd64`, `linux-modules-...`.
fn parts(output: &str) -> BTreeSet<String> {
    let names = output.lines().filter_map(|line| {
        line.trim_start_matches([' ', '|'])
            .strip_prefix("Depends: ")
    });
    let is_part = |name: &&str| {
        let kinds = [
            "linux-image-",
            "linux-modules-extra-",
            "linux-modules-",
            "linux-binary-",
        ];
        let rest = kinds.iter().find_map(|kind| name.strip_prefix(kind));
        rest.is_some_and(|rest| {
            rest.starts_with(|first: char| first.is_ascii_digit()) && !rest.ends_with("-unsigned")
        })
    };
    names
        .map(str::trim)
        .filter(is_part)
        .map(str::to_owned)
        .collect()
}

/// Adds the sizes in `'URI' FILE SIZE HASH` lines up.
fn total_size(uris: &str) -> Option<u64> {
    let sizes = uris
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    Some(sizes.sum()).filter(|total| *total > 0)
}

/// Unpacks a package, except for what tar's arguments `left_out` say.
fn unpack(work: &Work<'_>, package: &Path, left_out: &[String]) -> Result<(), Error> {
    let mut files = Command::new("dpkg-deb");
    files.arg("--fsys-tarfile").arg(package);
    files
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut files = child::bind(&mut files).spawn();
    let stream = files.as_mut().ok().and_then(|files| files.stdout.take());
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(&work.root).args(left_out);
    tar.arg("--no-same-owner");
    let done = work.interrupts.run_on(
        &mut tar,
        stream.map_or_else(Stdio::null, Stdio::from),
        &mut || (),
    );
    // Its own failure is the other's too: a stream cut short.
    let first = files.and_then(|mut files| files.wait());
    done?;
    match first {
        Ok(status) if status.success() => Ok(()),
        result => Err(Error::Tool {
            command: format!("dpkg-deb --fsys-tarfile {}", package.display()),
            reason: format!("{result:?}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UBUNTU: &str = "linux-image-generic\n  Depends: linux-image-6.8.0-60-generic\n  Depends: linux-modules-extra-6.8.0-60-generic\n  Depends: linux-firmware\n";

    #[test]
    fn the_parts_are_followed_to_the_end() {
        let packages = resolve(|name| {
            match name {
            "linux-image-generic" => Ok(UBUNTU.into()),
            "linux-image-6.8.0-60-generic" => {
                Ok(" |Depends: linux-image-unsigned-6.8.0-60-generic\n  Depends: linux-modules-6.8.0-60-generic\n  Depends: kmod\n".into())
            }
            name if name.starts_with("linux-modules") => Ok(String::new()),
            _ => Err(Error::NoKernel("unknown".into())),
        }
        });
        let packages: Vec<String> = packages.unwrap().into_iter().collect();
        assert_eq!(
            packages,
            [
                "linux-image-6.8.0-60-generic",
                "linux-modules-6.8.0-60-generic",
                "linux-modules-extra-6.8.0-60-generic"
            ]
        );
    }

    #[test]
    fn no_package_at_all_is_an_error() {
        assert!(
            resolve(|_| Err(Error::NoKernel("no lists".into())))
                .unwrap_err()
                .to_string()
                .contains("no lists")
        );
        assert!(resolve(|_| Ok("linux-image-amd64\n".into())).is_err());
    }

    #[test]
    fn only_kernels_count_and_not_their_unsigned_twins() {
        let output = "x\n  Depends: linux-image-6.1.0-50-amd64-unsigned\n  Depends: linux-base\n  Conflicts: linux-image-5.1-amd64\n";
        assert!(parts(output).is_empty());
    }

    #[test]
    fn modules_are_built_with_the_common_headers_and_tools() {
        let output = "linux-headers-6.1.0-57-amd64\n  Depends: linux-headers-6.1.0-57-common\n  Depends: linux-kbuild-6.1\n  Depends: linux-compiler-gcc-12-x86\n";
        let packages: Vec<String> = builders(output).into_iter().collect();
        assert_eq!(
            packages,
            ["linux-headers-6.1.0-57-common", "linux-kbuild-6.1"]
        );
    }

    #[test]
    fn sizes_are_added_up() {
        let uris = "'http://x/a.deb' a.deb 70 SHA256:0\n'http://x/b.deb' b.deb 5 SHA256:0\n";
        assert_eq!(total_size(uris), Some(75));
        assert_eq!(total_size(""), None);
    }
}

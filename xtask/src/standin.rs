//! The tests on the stand-in for the C libraries: rdmacm's test programs `standin_*`.
//!
//! The stand-in is built as a shared object and put into a folder under the real names of librdmacm and libibverbs. The
//! test programs are linked against that folder, in a target folder of their own, and find it on the library path when
//! they run. It is not preloaded: a test checks that no real library is mapped.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::{cargo, setup};

/// The file that is loaded under both names, and the links to it: what linkers and loaders look for.
const FILE: &str = "librdmacm.so.1";
const LINKS: &[&str] = &["librdmacm.so", "libibverbs.so", "libibverbs.so.1"];

/// Builds the stand-in, and gives the folder that it is in under the real names.
pub(crate) fn build() -> Result<PathBuf> {
    let status = command("build")
        .args(["--quiet", "--package", "standin"])
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the stand-in does not build; what cargo said is above");
    }
    let folder = target().join("lib");
    lay_out(&target().join("debug/libstandin.so"), &folder)
        .with_context(|| format!("cannot put the stand-in into {}", folder.display()))?;
    Ok(folder)
}

/// `cargo test` for the test programs on the stand-in in `folder`.
pub(crate) fn tests(folder: &Path, arguments: &[&str], filters: &[String]) -> Command {
    let mut command = command("test");
    command
        .args([
            "--package",
            "rdmacm",
            "--test",
            "standin_*",
            "--no-fail-fast",
        ])
        .args(["--", "--ignored"])
        .args(arguments)
        .args(filters)
        .env("RDMA_CORE_LIB_DIR", folder)
        .env("LD_LIBRARY_PATH", library_path(folder));
    command
}

/// Builds a program of the workspace with the release profile, on the stand-in in `folder`, and gives its path.
pub(crate) fn release(folder: &Path, package: &str) -> Result<PathBuf> {
    let status = command("build")
        .args(["--quiet", "--release", "--package", package])
        .env("RDMA_CORE_LIB_DIR", folder)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("`{package}` does not build; what cargo said is above");
    }
    Ok(target().join("release").join(package))
}

/// The list of those tests, as their programs print it.
pub(crate) fn list(folder: &Path, filters: &[String]) -> Result<String> {
    let output = tests(folder, &["--list"], filters)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "the tests on the stand-in do not build, or do not list themselves; what cargo said is above"
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn target() -> PathBuf {
    setup::workspace().join("target/standin")
}

/// cargo with the target folder of these tests. A million connections are made, so the workspace's own code is optimised;
/// what is asserted in debug builds still is.
fn command(what: &str) -> Command {
    let mut command = cargo::command();
    command
        .arg(what)
        .arg("--target-dir")
        .arg(target())
        .args(["--config", r#"profile.dev.package."*".opt-level=0"#])
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    command
}

/// Puts `built` into `folder` under all names. A file that is the same already stays, so that nothing is linked again.
fn lay_out(built: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let file = folder.join(FILE);
    let new = fs::read(built)?;
    if fs::read(&file).ok().as_ref() != Some(&new) {
        fs::write(&file, new)?;
    }
    for link in LINKS {
        match symlink(FILE, folder.join(link)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The library path with `folder` in front.
fn library_path(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stand_in_is_found_under_every_name_and_copied_once() {
        let folder = std::env::temp_dir().join(format!("xtask-standin-{}", std::process::id()));
        let built = folder.join("built");
        fs::create_dir_all(&folder).unwrap();
        fs::write(&built, b"a library").unwrap();
        let lib = folder.join("lib");
        lay_out(&built, &lib).unwrap();
        let changed = || fs::metadata(lib.join(FILE)).unwrap().modified().unwrap();
        let before = changed();
        lay_out(&built, &lib).unwrap();
        assert_eq!(changed(), before);
        for name in LINKS {
            assert_eq!(fs::read(lib.join(name)).unwrap(), b"a library", "{name}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}

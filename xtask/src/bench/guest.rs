//! The micro-VM, made ready for hundreds of short runs.
//!
//! Under software emulation most of a run's time would go into starting its programs: their files come from the host, each
//! library is translated anew where it lies elsewhere in memory, and libibverbs loads every provider there is. None of it is
//! measured, and both programs start alike.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, mount};

/// A folder in memory.
const FOLDER: &str = "/dev/shm/rdmacm-bench";

/// What the runs start.
const PROGRAMS: &[&str] = &[
    "rdma",
    "cmtime",
    "ib_send_lat",
    "ib_write_lat",
    "ib_read_lat",
    "ib_send_bw",
    "ib_write_bw",
    "ib_read_bw",
];

/// Ours in that folder, where `cmtime` is C's.
pub(crate) const PERF: &str = "perf";
pub(crate) const CMTIME: &str = "our-cmtime";

/// Makes it ready. To be called in the guest alone: it changes the machine.
pub(crate) fn prepare(perf: &Path, cmtime: &Path) -> Result<()> {
    fs::create_dir_all(FOLDER)?;
    let path = env::var_os("PATH").unwrap_or_default();
    for name in PROGRAMS {
        let mut folders = env::split_paths(&path);
        if let Some(file) =
            folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
        {
            copy(&file, name)?;
        }
    }
    copy(perf, PERF)?;
    copy(cmtime, CMTIME)?;
    fs::write("/proc/sys/kernel/randomize_va_space", "0")?;
    only_rxe(Path::new("/etc/libibverbs.d"))
}

fn copy(from: &Path, name: &str) -> Result<()> {
    let to = Path::new(FOLDER).join(name);
    fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Leaves libibverbs one provider to load.
fn only_rxe(config: &Path) -> Result<()> {
    if config.is_dir() {
        mount("none", config, "tmpfs", MountFlags::empty(), None)
            .with_context(|| format!("cannot mount over {}", config.display()))?;
        fs::write(config.join("rxe.driver"), "driver rxe\n")?;
    }
    Ok(())
}

/// Where a program is: in the folder that `prepare` made, if it has it, or wherever `PATH` leads.
pub(crate) fn program(name: &str) -> PathBuf {
    let copied = Path::new(FOLDER).join(name);
    if copied.is_file() {
        copied
    } else {
        name.into()
    }
}

/// Where one of ours is: in that folder, or where it was built.
pub(crate) fn ours(name: &str, built: &Path) -> PathBuf {
    let copied = Path::new(FOLDER).join(name);
    if copied.is_file() {
        copied
    } else {
        built.to_owned()
    }
}

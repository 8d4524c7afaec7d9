//! A kernel from the distribution's archive: downloaded and unpacked into the cache, not installed.

pub(super) mod apt;
mod others;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock, statvfs},
    io::Errno,
    process::{Pid, getpid, test_kill_process},
};

use super::{Kernel, installed};
use crate::{Error, cache::Cache, packages::Manager, progress::Progress, tools::Interrupts};

/// Room for the packages, what is unpacked of them, and what is made from it.
const ROOM: u64 = 500 << 20;

const SCRATCH: &str = ".unpacking-";

/// What a distribution's way needs: a folder to download into, a folder to unpack into, and the means to run tools.
pub(super) struct Work<'a> {
    packages: PathBuf,
    pub(super) root: PathBuf,
    interrupts: &'a Interrupts,
    progress: &'a mut Progress,
}

impl Work<'_> {
    /// Begins a step that the user sees.
    pub(super) fn step(&mut self, text: impl Into<String>) {
        self.progress.step(text);
    }

    /// Runs a tool and returns what it says on its standard output.
    pub(super) fn run(&self, command: &mut Command) -> Result<Vec<u8>, Error> {
        self.interrupts.run(command, &mut || ())
    }

    /// Runs a tool that adds to the folder of packages, showing how far it is.
    fn download(&mut self, command: &mut Command, total: Option<u64>) -> Result<(), Error> {
        self.progress.download(total);
        let (folder, progress) = (self.packages.clone(), &mut *self.progress);
        let done = self.interrupts.run(command.current_dir(&folder), &mut || {
            progress.reached(size(&folder))
        });
        done.map(drop)
    }

    /// The downloaded files whose names end so.
    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.packages)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let mut files: Vec<PathBuf> = entries
            .filter(|path| path.to_string_lossy().ends_with(ending))
            .collect();
        files.sort();
        files
    }
}

/// Downloads and unpacks the distribution's kernel into `cache/kernel`, unless another process has done so meanwhile.
pub(crate) fn download(cache: &Cache, progress: &mut Progress) -> Result<Kernel, Error> {
    let manager = Manager::detect().ok_or_else(|| {
        Error::NoKernel(
            "none is installed, and this distribution's package manager is unknown".into(),
        )
    })?;
    let target = cache.path("kernel");
    let there = || installed(&target).into_iter().next();
    in_turn(cache, progress, there, |work| fetch(manager, work, &target))
}

/// Makes something in scratch folders of the cache, which are removed afterwards, unless it is `there` once the other
/// processes that do so have finished.
pub(super) fn in_turn<T>(
    cache: &Cache,
    progress: &mut Progress,
    there: impl FnOnce() -> Option<T>,
    make: impl FnOnce(&mut Work<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let interrupts = Interrupts::watch()?;
    let folder = cache.folder()?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: std::io::Error| Error::io("make", path, source)
    };
    let lock_path = cache.path("lock");
    let lock = fs::File::create(&lock_path).map_err(failed(&lock_path))?;
    take_turn(&lock, &interrupts, progress)?;
    if let Some(found) = there() {
        return Ok(found);
    }
    remove_abandoned(folder);
    require_room(folder)?;
    let scratch = tempfile::Builder::new()
        .prefix(&format!("{SCRATCH}{}-", getpid().as_raw_nonzero()))
        .tempdir_in(folder)
        .map_err(failed(folder))?;
    let mut work = Work {
        packages: scratch.path().join("packages"),
        root: scratch.path().join("root"),
        interrupts: &interrupts,
        progress,
    };
    for folder in [&work.packages, &work.root] {
        fs::create_dir(folder).map_err(failed(folder))?;
    }
    let made = make(&mut work)?;
    progress.finish();
    Ok(made)
}

fn fetch(manager: Manager, work: &mut Work<'_>, target: &Path) -> Result<Kernel, Error> {
    match manager {
        Manager::Apt => apt::fetch(work)?,
        other => others::fetch(other, work)?,
    }
    let root = work.root.clone();
    if installed(&root).is_empty() {
        return Err(Error::NoKernel(format!(
            "the packages that {} downloaded have none",
            manager.program()
        )));
    }
    for kernel in installed(&root) {
        // So that modprobe works in the guest; where it is not installed, neither is this.
        let mut index = Command::new("depmod");
        let _ = work.run(index.arg("-b").arg(&root).arg(&kernel.version));
    }
    work.interrupts.check()?;
    let _ = fs::remove_dir_all(target);
    fs::rename(&root, target).map_err(|source| Error::io("make", target, source))?;
    installed(target)
        .into_iter()
        .next()
        .ok_or_else(|| Error::NoKernel("what was unpacked has gone".into()))
}

/// Waits until no other process downloads into the same cache.
fn take_turn(
    lock: &fs::File,
    interrupts: &Interrupts,
    progress: &mut Progress,
) -> Result<(), Error> {
    let mut told = false;
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(Error::io("lock", "the cache", error.into())),
        }
        if !told {
            progress.step("waiting for another download");
            told = true;
        }
        interrupts.check()?;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Removes what a process that was killed has left.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(SCRATCH)
            .and_then(|rest| rest.split('-').next()?.parse().ok())
            .and_then(Pid::from_raw);
        if pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn require_room(folder: &Path) -> Result<(), Error> {
    let known = statvfs(folder).map_err(|error| Error::io("use", folder, error.into()))?;
    if known.f_bavail.saturating_mul(known.f_frsize) < ROOM {
        Err(Error::NoSpace {
            path: folder.to_owned(),
        })
    } else {
        Ok(())
    }
}

/// The bytes in a folder of files.
fn size(folder: &Path) -> u64 {
    let mut folders = vec![folder.to_owned()];
    let mut total = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => total += metadata.len(),
                Err(_) => {}
            }
        }
    }
    total
}

/// Parts of the tree of modules that no guest here can use, left out to save three quarters of the space.
pub(crate) const LEFT_OUT: [&str; 14] = [
    "*/kernel/sound",
    "*/kernel/drivers/gpu",
    "*/kernel/drivers/media",
    "*/kernel/drivers/staging",
    "*/kernel/drivers/iio",
    "*/kernel/drivers/hwmon",
    "*/kernel/drivers/usb",
    "*/kernel/drivers/scsi",
    "*/kernel/drivers/net/ethernet",
    "*/kernel/drivers/net/wireless",
    "*/kernel/drivers/input",
    "*/kernel/drivers/platform",
    "*/usr/share",
    "*/boot/System.map*",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = folder.path().join(format!("{SCRATCH}{}-x", child.id()));
        let own = folder
            .path()
            .join(format!("{SCRATCH}{}-x", std::process::id()));
        let other = folder.path().join("kernel");
        for path in [&dead, &own, &other] {
            fs::create_dir(path).unwrap();
        }
        remove_abandoned(folder.path());
        assert!(!dead.exists() && own.exists() && other.exists());
    }

    #[test]
    fn sizes_add_up() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("partial")).unwrap();
        fs::write(folder.path().join("partial/a"), [0; 10]).unwrap();
        fs::write(folder.path().join("b"), [0; 5]).unwrap();
        assert_eq!(size(folder.path()), 15);
    }
}

//! The root the command sees: the machine's own file system, read-only over 9p, under an overlay in memory.

use std::{fs, io, os::unix::fs::symlink, path::Path};

use crate::sys;

const NEW_ROOT: &str = "/newroot";

/// Options of every 9p mount; the message size is the largest that old and new kernels take.
const NINE_P: &str = "trans=virtio,version=9p2000.L,msize=512000,access=any";

/// Mounts what the init itself needs. Failure is fatal: the init could not even say so.
pub(crate) fn mount_early() -> io::Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        fs::create_dir_all(target)?;
        sys::mount_fs(kind, target, kind, 0, "")?;
    }
    Ok(())
}

/// Puts the new root together under `/newroot`.
pub(crate) fn assemble() -> Result<(), String> {
    for folder in ["/ro", "/rw", NEW_ROOT] {
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {folder}: {error}"))?;
    }
    mount(
        "root",
        "/ro",
        "9p",
        sys::MS_RDONLY,
        &format!("{NINE_P},cache=loose"),
    )?;
    mount("tmpfs", "/rw", "tmpfs", 0, "size=80%")?;
    for folder in ["/rw/upper", "/rw/work"] {
        fs::create_dir(folder).map_err(|error| format!("cannot make {folder}: {error}"))?;
    }
    mount(
        "overlay",
        NEW_ROOT,
        "overlay",
        0,
        "lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work",
    )?;
    let run = inside("/run")?;
    mount("tmpfs", &run, "tmpfs", 0, "mode=755")
}

/// Makes the new root this process's root, with the kernel's file systems in it.
pub(crate) fn enter() -> Result<(), String> {
    for source in ["/proc", "/sys", "/dev"] {
        mount(source, &inside(source)?, "", sys::MS_MOVE, "")?;
    }
    std::env::set_current_dir(NEW_ROOT)
        .map_err(|error| format!("cannot enter {NEW_ROOT}: {error}"))?;
    mount(".", "/", "", sys::MS_MOVE, "")?;
    std::os::unix::fs::chroot(".")
        .and_then(|()| std::env::set_current_dir("/"))
        .map_err(|error| format!("cannot change the root: {error}"))?;
    for (target, kind, options) in [
        ("/dev/pts", "devpts", "mode=620,ptmxmode=666,gid=5"),
        ("/dev/shm", "tmpfs", "mode=1777"),
        ("/dev/mqueue", "mqueue", ""),
    ] {
        fs::create_dir_all(target).map_err(|error| format!("cannot make {target}: {error}"))?;
        let result = mount(kind, target, kind, 0, options);
        // A kernel may lack message queues; nothing here needs them.
        if kind != "mqueue" {
            result?;
        }
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        let _ = symlink(target, link);
    }
    Ok(())
}

/// Mounts a writable folder of the machine at its own path.
pub(crate) fn share(tag: &str, path: &str) -> Result<(), String> {
    mount(tag, path, "9p", 0, &format!("{NINE_P},cache=mmap"))
}

/// Shows a folder of modules, which the host has unpacked somewhere, as `/lib/modules/VERSION`.
pub(crate) fn show_modules(tree: &str) {
    let Some(version) = Path::new(tree).file_name() else {
        return;
    };
    let target = Path::new("/lib/modules").join(version);
    // Only a convenience (for modprobe): the modules that are needed are loaded already.
    if fs::create_dir_all(&target).is_ok() {
        let _ = sys::mount_fs(tree, &target.to_string_lossy(), "", sys::MS_BIND, "");
    }
}

fn inside(path: &str) -> Result<String, String> {
    let target = format!("{NEW_ROOT}{path}");
    fs::create_dir_all(&target).map_err(|error| format!("cannot make {path}: {error}"))?;
    Ok(target)
}

fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: std::ffi::c_ulong,
    data: &str,
) -> Result<(), String> {
    sys::mount_fs(source, target, kind, flags, data)
        .map_err(|error| format!("cannot mount {source} at {target}: {error}"))
}

//! What to do about an errno, where that is known.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use super::{Cause, Error, ErrorKind};

/// The errno as text: the C library's words and the number.
pub(super) fn errno_text(errno: i32) -> String {
    if errno == 524 {
        return "Operation not supported by the kernel (os error 524)".to_owned();
    }
    io::Error::from_raw_os_error(errno).to_string()
}

/// A sentence that starts with its own separator, or nothing.
pub(super) fn advice(op: &str, kind: ErrorKind, errno: i32) -> String {
    match (kind, errno) {
        (ErrorKind::NoDevice, libc::ENOENT) => {
            "; /dev/infiniband/rdma_cm is missing or not permitted: load it with \
             `modprobe rdma_ucm`, or let this user open it"
                .to_owned()
        }
        (ErrorKind::NoDevice, _) => format!(
            "; no RDMA device reaches this: `rdma link` lists the devices, and \
             `rdma link add rxe0 type rxe netdev NAME` makes one in software{}{}",
            withheld(Path::new("/dev/infiniband")),
            known_to_the_kernel(Path::new("/sys/class/infiniband"))
        ),
        (ErrorKind::AddrInUse, libc::EADDRNOTAVAIL) => {
            "; another id has this port, at this address or at another of the machine".to_owned()
        }
        (ErrorKind::PeerGone, _) => "; the peer gave up before it was answered".to_owned(),
        (ErrorKind::OutOfMemory, libc::EMFILE) => {
            "; this process has as many descriptors open as it may: raise the limit (`ulimit -n`, or LimitNOFILE= of the service)"
                .to_owned()
        }
        (_, libc::EPERM | libc::ENOMEM) if locks_memory(op) => {
            lock_limit().and_then(|limit| locked_memory(errno, limit)).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Whether the call locks memory that counts against the limit of the process: what is registered, and the queues themselves.
fn locks_memory(op: &str) -> bool {
    matches!(
        op,
        "ibv_reg_mr" | "ibv_create_cq" | "ibv_create_qp" | "rdma_create_qp" | "ibv_create_srq"
    )
}

/// Names the devices that the kernel has: without their provider, librdmacm passes over them in silence.
fn known_to_the_kernel(folder: &Path) -> String {
    let devices = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = devices
        .map(|device| device.file_name().to_string_lossy().into_owned())
        .collect();
    if names.is_empty() {
        return String::new();
    }
    names.sort();
    format!(
        "; the kernel has {}: where `ibv_devices` does not list them, install their providers \
         (ibverbs-providers, or rdma-core)",
        names.join(", ")
    )
}

/// Names the device nodes in `folder` that this user may not open: librdmacm passes over their devices in silence.
fn withheld(folder: &Path) -> String {
    let nodes = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = nodes
        .map(|node| node.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("uverbs")
        })
        .filter(|path| {
            let opened = OpenOptions::new().read(true).write(true).open(path);
            opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        })
        .map(|path| path.display().to_string())
        .collect();
    if names.is_empty() {
        return String::new();
    }
    names.sort();
    format!("; this user may not open {}", names.join(", "))
}

/// How many KiB of memory this process may lock, if there is a limit.
fn lock_limit() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current?;
    Some(limit / 1024)
}

/// What to do about a limit of `limit` KiB.
fn raise(limit: u64) -> String {
    format!(
        "this process may lock {limit} KiB of memory: raise it (`ulimit -l`, or LimitMEMLOCK= of the service)"
    )
}

/// Names the limit where it may be the reason: the usual one for ENOMEM, and one for EPERM only where nothing may be locked at
/// all.
fn locked_memory(errno: i32, limit: u64) -> Option<String> {
    (errno == libc::ENOMEM || limit == 0).then(|| format!("; {}", raise(limit)))
}

/// The error of a registration of `bytes`: the limit of locked memory is the usual reason for ENOMEM.
pub(crate) fn not_registered(op: &'static str, errno: i32, bytes: usize) -> Error {
    if errno != libc::ENOMEM {
        return Error::os(op, errno);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    explained(op, errno, locked_text(bytes, pinned(&status), lock_limit()))
}

fn locked_text(bytes: usize, pinned: u64, limit: Option<u64>) -> String {
    let asked = format!(
        "registering these {} KiB locks them, beside {pinned} KiB registered already",
        bytes.div_ceil(1024)
    );
    match limit {
        Some(limit) => format!("{asked}, and {}", raise(limit)),
        None => format!(
            "{asked}; this process may lock as much as it likes, so the machine or the device has no room"
        ),
    }
}

/// How many KiB devices hold of this process, by its status in /proc.
fn pinned(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB"));
    number
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

/// The error of a mapping of `pages` huge pages of `size` bytes.
pub(crate) fn no_huge_pages(op: &'static str, errno: i32, pages: usize, size: usize) -> Error {
    if errno != libc::ENOMEM {
        return Error::os(op, errno);
    }
    let kib = size / 1024;
    let folder = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB");
    let number = |name: &str| -> Option<usize> {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let counts = number("nr_hugepages")
        .zip(number("free_hugepages"))
        .zip(number("resv_hugepages"));
    explained(op, errno, huge_text(pages, kib, &folder, counts))
}

/// `counts`: how many pages of the size the machine has, how many of them are free, and how many of those are promised.
fn huge_text(
    pages: usize,
    kib: usize,
    folder: &str,
    counts: Option<((usize, usize), usize)>,
) -> String {
    let needed = format!("this needs huge pages of {kib} KiB: {pages}");
    let Some(((all, free), promised)) = counts else {
        return format!("{needed}; this machine has none of this size");
    };
    let free = free.saturating_sub(promised);
    let wanted = all.saturating_add(pages).saturating_sub(free);
    format!(
        "{needed}, of which {free} are free: reserve more (`echo {wanted} > {folder}/nr_hugepages`)"
    )
}

fn explained(op: &'static str, errno: i32, advice: String) -> Error {
    let kind = ErrorKind::of_errno(errno);
    Error::new(
        op,
        Cause::Explained {
            errno,
            kind,
            advice,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_errno_has_words() {
        assert_eq!(
            errno_text(524),
            "Operation not supported by the kernel (os error 524)"
        );
        assert_eq!(errno_text(22), "Invalid argument (os error 22)");
    }

    #[test]
    fn devices_without_a_provider_are_named() {
        let folder = std::env::temp_dir().join(format!("rdmacm-hint-{}", std::process::id()));
        assert_eq!(known_to_the_kernel(&folder), "");
        for device in ["mlx5_1", "mlx5_0"] {
            std::fs::create_dir_all(folder.join(device)).unwrap();
        }
        let text = known_to_the_kernel(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("the kernel has mlx5_0, mlx5_1: "), "{text}");
        assert!(text.contains("ibverbs-providers"), "{text}");
    }

    #[test]
    fn the_limit_of_locked_memory_is_told_with_what_was_asked() {
        let status = "VmLck:\t       0 kB\nVmPin:\t      12 kB\n";
        assert_eq!(pinned(status), 12);
        assert_eq!(pinned(""), 0);
        let text = locked_text(4097, 12, Some(64));
        assert!(text.contains("5 KiB locks them, beside 12 KiB"), "{text}");
        assert!(text.contains("may lock 64 KiB"), "{text}");
        assert!(text.contains("LimitMEMLOCK="), "{text}");
        let text = locked_text(4096, 0, None);
        assert!(!text.contains("ulimit"), "{text}");
        let error = not_registered("ibv_reg_mr", libc::EINVAL, 1);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn huge_pages_that_are_promised_are_not_free() {
        assert_eq!(
            huge_text(3, 2048, "/sys", Some(((10, 4), 2))),
            "this needs huge pages of 2048 KiB: 3, of which 2 are free: reserve more (`echo 11 > /sys/nr_hugepages`)"
        );
        let text = huge_text(3, 2048, "/sys", None);
        assert!(
            text.ends_with("this machine has none of this size"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_device_node_names_the_module() {
        let advice = |kind, errno| advice("rdma_bind_addr", kind, errno);
        assert!(advice(ErrorKind::NoDevice, libc::ENOENT).contains("modprobe rdma_ucm"));
        assert!(advice(ErrorKind::NoDevice, libc::ENODEV).contains("rdma link"));
        assert_eq!(advice(ErrorKind::AddrInUse, libc::EADDRINUSE), "");
    }

    #[test]
    fn only_calls_that_lock_memory_speak_of_its_limit() {
        let queues = [
            "ibv_create_cq",
            "ibv_create_qp",
            "rdma_create_qp",
            "ibv_create_srq",
        ];
        let others = [
            "ibv_modify_qp",
            "ibv_create_ah",
            "rdma_connect",
            "rdma_create_id",
            "mmap",
        ];
        for (errno, kind) in [
            (libc::ENOMEM, ErrorKind::OutOfMemory),
            (libc::EPERM, ErrorKind::PermissionDenied),
        ] {
            for op in others {
                assert_eq!(advice(op, kind, errno), "", "{op}");
            }
            for op in queues {
                // Where there is no limit, nothing is to be said.
                let wanted = lock_limit().and_then(|limit| locked_memory(errno, limit));
                assert_eq!(advice(op, kind, errno), wanted.unwrap_or_default(), "{op}");
            }
        }
        assert!(queues.into_iter().all(locks_memory));
        assert!(!others.into_iter().any(locks_memory));
    }

    #[test]
    fn a_permission_is_a_matter_of_locked_memory_only_where_none_may_be_locked() {
        assert_eq!(locked_memory(libc::EPERM, 64), None);
        let none = locked_memory(libc::EPERM, 0).unwrap();
        assert!(none.starts_with("; this process may lock 0 KiB"), "{none}");
        let full = locked_memory(libc::ENOMEM, 64).unwrap();
        assert!(
            full.contains("may lock 64 KiB") && full.contains("ulimit -l"),
            "{full}"
        );
    }
}

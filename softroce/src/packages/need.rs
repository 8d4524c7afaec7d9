//! What a machine may need, by what it is for, and the packages that have it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Manager, find_program};

/// Something that a machine must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Need {
    /// A C compiler and linker (`cc`).
    Cc,
    /// The C library's headers.
    LibcHeaders,
    /// `pkg-config`.
    PkgConfig,
    /// The headers and link names of librdmacm and libibverbs.
    RdmaCoreHeaders,
    /// The user-space drivers of libibverbs (`librxe-rdmav*.so`).
    IbverbsProviders,
    /// librdmacm's programs: `rping`, `rdma_server`, `rdma_client`, `ucmatose`, ...
    RdmacmUtils,
    /// libibverbs' programs: `ibv_devices`, `ibv_devinfo`, ...
    IbverbsUtils,
    /// `ib_send_lat` and the other benchmarks.
    Perftest,
    /// QEMU for this machine's architecture.
    Qemu,
    /// `ip` and `rdma`.
    Iproute2,
    /// `libclang`, for bindgen.
    Libclang,
    /// GNU `make`.
    Make,
    /// `valgrind`, with its tools memcheck and callgrind.
    Valgrind,
    /// `objdump`.
    Binutils,
    /// `xz`, which kernel sources are packed with.
    Xz,
}

/// Folders of libraries, on one distribution or another.
const LIBRARIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
];

impl Need {
    /// Every need.
    pub const ALL: [Self; 15] = [
        Self::Cc,
        Self::LibcHeaders,
        Self::PkgConfig,
        Self::RdmaCoreHeaders,
        Self::IbverbsProviders,
        Self::RdmacmUtils,
        Self::IbverbsUtils,
        Self::Perftest,
        Self::Qemu,
        Self::Iproute2,
        Self::Libclang,
        Self::Make,
        Self::Valgrind,
        Self::Binutils,
        Self::Xz,
    ];

    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cc => "a C compiler (cc)",
            Self::LibcHeaders => "the C library's headers",
            Self::PkgConfig => "pkg-config",
            Self::RdmaCoreHeaders => "the headers of librdmacm and libibverbs",
            Self::IbverbsProviders => "the drivers of libibverbs (librxe)",
            Self::RdmacmUtils => "the programs of librdmacm (rping, rdma_server, ...)",
            Self::IbverbsUtils => "the programs of libibverbs (ibv_devices, ...)",
            Self::Perftest => "perftest (ib_send_lat, ...)",
            Self::Qemu => "QEMU (qemu-system-x86_64)",
            Self::Iproute2 => "iproute2 (ip, rdma)",
            Self::Libclang => "libclang",
            Self::Make => "make",
            Self::Valgrind => "valgrind",
            Self::Binutils => "binutils (objdump)",
            Self::Xz => "xz",
        }
    }

    /// The packages that have it; none where the distribution has no such package.
    pub fn packages(self, manager: Manager) -> &'static [&'static str] {
        let [apt, dnf, pacman, apk, zypper]: [&'static [&'static str]; 5] = match self {
            Self::Cc => [&["gcc"], &["gcc"], &["gcc"], &["gcc"], &["gcc"]],
            Self::LibcHeaders => [
                &["libc6-dev"],
                &["glibc-devel"],
                &["glibc", "linux-api-headers"],
                &["musl-dev"],
                &["glibc-devel"],
            ],
            Self::PkgConfig => [
                &["pkg-config"],
                &["pkgconf-pkg-config"],
                &["pkgconf"],
                &["pkgconf"],
                &["pkgconf-pkg-config"],
            ],
            Self::RdmaCoreHeaders => [
                &["librdmacm-dev", "libibverbs-dev"],
                &["rdma-core-devel"],
                &["rdma-core"],
                &["rdma-core-dev"],
                &["rdma-core-devel"],
            ],
            Self::IbverbsProviders => [
                &["ibverbs-providers"],
                &["libibverbs"],
                &["rdma-core"],
                &["rdma-core"],
                &["libibverbs"],
            ],
            Self::RdmacmUtils => [
                &["rdmacm-utils"],
                &["librdmacm-utils"],
                &["rdma-core"],
                &["rdma-core"],
                &["librdmacm-utils"],
            ],
            Self::IbverbsUtils => [
                &["ibverbs-utils"],
                &["libibverbs-utils"],
                &["rdma-core"],
                &["rdma-core"],
                &["libibverbs-utils"],
            ],
            Self::Perftest => [&["perftest"], &["perftest"], &[], &[], &["perftest"]],
            Self::Qemu => [
                &["qemu-system-x86"],
                &["qemu-system-x86-core"],
                &["qemu-system-x86"],
                &["qemu-system-x86_64"],
                &["qemu-x86"],
            ],
            Self::Iproute2 => [
                &["iproute2"],
                &["iproute"],
                &["iproute2"],
                &["iproute2", "iproute2-rdma"],
                &["iproute2"],
            ],
            Self::Libclang => [
                &["libclang-dev"],
                &["clang-devel"],
                &["clang"],
                &["clang-dev"],
                &["clang-devel"],
            ],
            Self::Make => [&["make"]; 5],
            Self::Valgrind => [&["valgrind"]; 5],
            Self::Binutils => [&["binutils"]; 5],
            Self::Xz => [&["xz-utils"], &["xz"], &["xz"], &["xz"], &["xz"]],
        };
        match manager {
            Manager::Apt => apt,
            Manager::Dnf => dnf,
            Manager::Pacman => pacman,
            Manager::Apk => apk,
            Manager::Zypper => zypper,
        }
    }

    /// Tells whether the machine has it, by the files themselves: it may come from elsewhere than a package.
    pub fn is_met(self) -> bool {
        let program = |name: &str| find_program(name).is_some();
        let header = |name: &str| {
            ["/usr/include", "/usr/local/include"]
                .iter()
                .any(|folder| Path::new(folder).join(name).is_file())
        };
        match self {
            Self::Cc => program("cc"),
            Self::LibcHeaders => header("stdio.h"),
            Self::PkgConfig => program("pkg-config") || program("pkgconf"),
            Self::RdmaCoreHeaders => header("rdma/rdma_cma.h") && header("infiniband/verbs.h"),
            Self::IbverbsProviders => LIBRARIES
                .iter()
                .any(|folder| holds(&Path::new(folder).join("libibverbs"), "librxe-rdmav")),
            Self::RdmacmUtils => {
                program("rping") && program("rdma_server") && program("rdma_client")
            }
            Self::IbverbsUtils => program("ibv_devices"),
            Self::Perftest => program("ib_send_lat"),
            Self::Qemu => program("qemu-system-x86_64"),
            Self::Iproute2 => program("ip") && program("rdma"),
            Self::Make => program("make"),
            Self::Valgrind => program("valgrind"),
            Self::Binutils => program("objdump"),
            Self::Xz => program("xz"),
            Self::Libclang => clang_folders()
                .iter()
                .any(|folder| holds(folder, "libclang.so") || holds(folder, "libclang-")),
        }
    }
}

fn clang_folders() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let llvm = versions.filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("llvm"))
    });
    LIBRARIES
        .iter()
        .map(PathBuf::from)
        .chain(llvm.map(|path| path.join("lib")))
        .collect()
}

fn holds(folder: &Path, prefix: &str) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_has_a_package_but_perftest_on_two_distributions() {
        for manager in Manager::ALL {
            for need in Need::ALL {
                let excused =
                    need == Need::Perftest && matches!(manager, Manager::Pacman | Manager::Apk);
                assert_eq!(
                    need.packages(manager).is_empty(),
                    excused,
                    "{need:?} {manager:?}"
                );
            }
        }
        assert_eq!(
            Need::RdmaCoreHeaders.packages(Manager::Apt),
            ["librdmacm-dev", "libibverbs-dev"]
        );
    }

    #[test]
    fn files_are_looked_for_by_the_start_of_their_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("librxe-rdmav34.so"), "").unwrap();
        assert!(holds(folder.path(), "librxe-rdmav"));
        assert!(!holds(folder.path(), "libmlx"));
        assert!(!holds(Path::new("/nonexistent"), ""));
    }

    #[test]
    fn the_compiler_that_linked_this_test_is_found() {
        assert!(Need::Cc.is_met());
    }
}

//! What a machine needs, and how its distribution installs it.

use crate::Error;

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
    /// Finds the machine's package manager.
    pub fn detect() -> Option<Self> {
        None
    }
}

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
}

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

/// Returns those of `needs` that the machine does not have.
pub fn missing(needs: &[Need]) -> Vec<Need> {
    let _ = needs;
    Vec::new()
}

/// Makes sure that the machine has all of `needs`.
///
/// # Errors
///
/// [`Error::Missing`] with the command that installs what is missing, when it may not be installed.
pub fn ensure(needs: &[Need], consent: Consent) -> Result<(), Error> {
    let _ = (needs, consent);
    Ok(())
}

/// Finds a program in `PATH`, or where programs for root are.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

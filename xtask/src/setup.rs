//! What the chores need on the machine, and this program's own place on it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use softroce::packages::{self, Consent, Need};

/// Building anything that links with rdma-core.
const BUILD: &[Need] = &[
    Need::Cc,
    Need::LibcHeaders,
    Need::PkgConfig,
    Need::RdmaCoreHeaders,
];

/// Talking to an RDMA device, wherever it is.
const DEVICE: &[Need] = &[Need::IbverbsProviders, Need::Iproute2];

/// Having one in a micro-VM.
const VM: &[Need] = &[Need::Qemu];

/// The programs of others that the device tests talk to.
const PEERS: &[Need] = &[Need::RdmacmUtils, Need::IbverbsUtils];

/// What device tests watch a child of theirs with.
const WATCHING: &[Need] = &[Need::Valgrind];

/// Counting instructions.
const COUNTING: &[Need] = &[Need::Valgrind, Need::Binutils];

/// Making the bindings. The headers, the C library's among them, are in the repository.
pub(crate) const BINDINGS: &[Need] = &[Need::Libclang];

/// What `cargo xtask demo` needs.
pub(crate) fn demo_needs(own_device: bool) -> Vec<Need> {
    let vm = if own_device { &[] } else { VM };
    [BUILD, DEVICE, vm].concat()
}

/// What `cargo xtask test` needs.
pub(crate) fn test_needs(no_device: bool, own_device: bool) -> Vec<Need> {
    if no_device {
        BUILD.to_vec()
    } else {
        [&demo_needs(own_device), PEERS, WATCHING].concat()
    }
}

/// What `cargo xtask bench` needs.
pub(crate) fn bench_needs(own_device: bool) -> Vec<Need> {
    [&demo_needs(own_device)[..], &[Need::Perftest]].concat()
}

/// What `cargo xtask overhead` needs.
pub(crate) fn overhead_needs(librxe: bool) -> Vec<Need> {
    if librxe {
        [&demo_needs(false)[..], COUNTING].concat()
    } else {
        [BUILD, COUNTING].concat()
    }
}

/// What `cargo xtask ci` needs.
pub(crate) fn ci_needs() -> Vec<Need> {
    let mut needs = [&test_needs(false, false), BINDINGS, COUNTING].concat();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// Root gets what is missing installed; others must say `--install`.
pub(crate) fn consent(install: bool) -> Consent {
    if install {
        Consent::Given
    } else {
        Consent::IfRoot
    }
}

/// Sees to it that the machine has all of `needs`, in one go of its package manager.
pub(crate) fn ensure(needs: &[Need], consent: Consent) -> Result<()> {
    Ok(packages::ensure(needs, consent)?)
}

/// The folder of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
}

/// The path of this program, for starting it again beside the device.
///
/// cargo may have put a newer build in its place while it runs; the kernel then calls the old one deleted.
pub(crate) fn this_program() -> Result<PathBuf> {
    let path = std::env::current_exe()
        .context("cannot find this program's own file; is /proc mounted?")?;
    Ok(
        match path
            .to_str()
            .and_then(|path| path.strip_suffix(" (deleted)"))
        {
            Some(replaced) => PathBuf::from(replaced),
            None => path,
        },
    )
}

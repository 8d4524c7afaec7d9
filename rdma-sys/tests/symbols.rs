//! Which names of the C libraries this crate refers to: all that it should, and none that keeps a program from starting
//! where the library is old.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![expect(
    unsafe_code,
    reason = "C's own way of looking a function up is the measure"
)]

#[path = "symbols/elf.rs"]
mod elf;
#[path = "symbols/text.rs"]
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;

use rdma_sys::probe;

/// The newest versions of symbols, by the beginning of their names.
type Versions = [(&'static str, u32); 2];

/// Those that rdma-core 39 has.
const FLOOR: Versions = [("RDMACM_1.", 3), ("IBVERBS_1.", 14)];

/// Those of rdma-core 65, whose headers the bindings are made from.
const BINDINGS: Versions = [("RDMACM_1.", 5), ("IBVERBS_1.", 18)];

/// Inline functions of C that are left out; `src/inline.rs` says why.
const LEFT_OUT: [&str; 3] = [
    "ibv_create_flow_action_esp",
    "ibv_modify_flow_action_esp",
    "__ibv_get_device_list",
];

/// Inline functions that C hides behind a macro of another name.
const RENAMED: [(&str, &str); 3] = [
    ("___ibv_query_port", "ibv_query_port"),
    ("__ibv_reg_mr", "ibv_reg_mr"),
    ("__ibv_reg_mr_iova", "ibv_reg_mr_iova"),
];

/// The symbols of both libraries. Calls one function of each, so that the linker keeps the library.
fn libraries() -> BTreeMap<String, elf::Symbol> {
    // SAFETY: takes no pointer, and gives null or a channel that is not used.
    std::hint::black_box(unsafe { rdma_sys::rdma_create_event_channel() });
    // SAFETY: takes any number, and gives a static string.
    std::hint::black_box(unsafe { rdma_sys::ibv_wc_status_str(rdma_sys::ibv_wc_status(0)) });
    let mut symbols = elf::symbols(&elf::loaded("librdmacm.so"));
    symbols.extend(elf::symbols(&elf::loaded("libibverbs.so")));
    symbols.retain(|_, symbol| symbol.is_defined);
    symbols
}

/// Whether a symbol's version is public, and not newer than these.
fn is_within(versions: &Versions, version: &str) -> bool {
    versions.iter().any(|(start, newest)| {
        let number = version
            .strip_prefix(start)
            .and_then(|number| number.parse::<u32>().ok());
        number.is_some_and(|number| number <= *newest)
    })
}

#[test]
fn every_declared_function_is_as_old_as_the_oldest_supported_library() {
    let libraries = libraries();
    let declared = text::declared();
    assert!(declared.len() > 90, "{declared:?}");
    for name in &declared {
        let symbol = libraries
            .get(name)
            .unwrap_or_else(|| panic!("the libraries do not export {name}"));
        let version = symbol.version.as_deref().unwrap_or("none");
        assert!(
            is_within(&FLOOR, version),
            "{name} has the version {version}: it must be a probe"
        );
    }
}

#[test]
fn every_public_function_of_the_library_is_declared_probed_or_inline() {
    let mut known = text::declared();
    known.extend(text::blocked_as_newer());
    known.extend(text::rust_inlines().into_keys());
    let left_out = |name: &str| {
        // Sockets over RDMA, and the entry of the static linker.
        let is_socket = name.starts_with('r') && !name.starts_with("rdma_");
        is_socket || name == "ibv_static_providers"
    };
    for (name, symbol) in libraries() {
        let version = symbol.version.as_deref().unwrap_or_default();
        // A newer library than that of the headers may have more. Version nodes are symbols, too.
        let is_public = symbol.is_default && is_within(&BINDINGS, version) && name != version;
        if is_public && !left_out(&name) && !is_internal(&name) {
            assert!(known.contains(&name), "{name}@{version} is nowhere");
        }
    }
}

/// Exported for the library's own tools and for old programs; no header declares them.
fn is_internal(name: &str) -> bool {
    [
        "ibv_cmd_",
        "ibv_copy_",
        "ibv_register_driver",
        "ibv_read_sysfs_file",
        "ibv_get_sysfs_path",
        "ibv_dontfork_range",
        "ibv_dofork_range",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

#[test]
fn this_program_needs_no_version_newer_than_the_oldest_supported_library() {
    std::hint::black_box(libraries());
    std::hint::black_box(probe::all());
    let mut needed = BTreeSet::new();
    for (name, symbol) in elf::symbols(&elf::this_program()) {
        let Some(version) = symbol.version.filter(|_| !symbol.is_defined) else {
            continue;
        };
        if version.starts_with("RDMACM_") || version.starts_with("IBVERBS_") {
            assert!(
                is_within(&FLOOR, &version),
                "{name} is needed with the version {version}"
            );
            needed.insert(name);
        }
    }
    assert!(needed.contains("rdma_create_event_channel"), "{needed:?}");
}

#[test]
fn probes_and_the_dynamic_linker_agree() {
    let libraries = libraries();
    let probes: BTreeMap<&str, bool> = probe::all().into();
    let names: BTreeSet<String> = probes.keys().copied().map(String::from).collect();
    assert_eq!(
        names,
        text::blocked_as_newer(),
        "the list PROBED and the probes"
    );
    assert!(names.is_disjoint(&text::declared()));
    for (name, found) in &probes {
        assert_eq!(
            *found,
            libraries.contains_key(*name),
            "{name}, beside the library's own list"
        );
        let name = CString::new(*name).expect("a name");
        // SAFETY: a C string, looked up in what is loaded.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert_eq!(*found, !address.is_null(), "{name:?}, beside dlsym");
    }
    let resolve = probe::rdma_resolve_addrinfo().is_some();
    println!(
        "newer functions: {}",
        if resolve {
            "rdma-core 60 or later"
        } else {
            "before rdma-core 60"
        }
    );
    // The second answer comes out of the cache.
    assert_eq!(resolve, probe::rdma_resolve_addrinfo().is_some());
    assert_eq!(resolve, probe::rdma_query_addrinfo().is_some());
    assert_eq!(resolve, probe::rdma_write_cm_event().is_some());
}

#[test]
fn every_inline_function_of_the_headers_is_here_and_calls_the_same_entry() {
    let c = text::c_inlines();
    let rust = text::rust_inlines();
    assert!(c.len() > 95, "{}", c.len());
    for (name, member) in &c {
        if LEFT_OUT.contains(&name.as_str()) || name == "rdma_seterrno" {
            continue;
        }
        let name = RENAMED
            .iter()
            .find(|(c, _)| c == name)
            .map_or(name.as_str(), |(_, rust)| rust);
        let Some(own) = rust.get(name) else {
            panic!("{name} is nowhere in src/inline")
        };
        assert_eq!(own, member, "what {name} calls");
    }
}

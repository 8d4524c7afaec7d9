//! Finds librdmacm and libibverbs and tells cargo how to link them.
//!
//! What it passes on to the build scripts of dependents (`links = "rdmacm"`): `DEP_RDMACM_RDMA_CORE_VERSION`, the
//! version of rdma-core (such as `44.0`; absent when unknown), and `DEP_RDMACM_LIB_DIR`, the folder
//! of the libraries. Both are for messages: which functions the library has is found out when the
//! program runs.

#[cfg(feature = "buildtime-bindgen")]
#[path = "build/from_machine.rs"]
mod from_machine;

use std::env;
use std::path::{Path, PathBuf};

/// A library: its pkg-config package, its name for the linker and the oldest version that works.
/// The version is `1.<ABI level>.<version of rdma-core>`.
struct Library {
    package: &'static str,
    name: &'static str,
    version: &'static str,
}

/// The floor is rdma-core 39.
const LIBRARIES: [Library; 2] = [
    Library {
        package: "librdmacm",
        name: "rdmacm",
        version: "1.3.39",
    },
    Library {
        package: "libibverbs",
        name: "ibverbs",
        version: "1.14.39",
    },
];

/// Where the libraries are, instead of asking pkg-config.
const LIB_DIR: &str = "RDMA_CORE_LIB_DIR";

const PACKAGES: &str = "\
Install rdma-core's development files and pkg-config:
  Debian, Ubuntu:  apt-get install librdmacm-dev libibverbs-dev pkg-config
  Fedora, RHEL:    dnf install rdma-core-devel pkgconf-pkg-config
  Arch:            pacman -S rdma-core pkgconf
  Alpine:          apk add rdma-core-dev pkgconf
  openSUSE:        zypper install rdma-core-devel pkg-config
or set RDMA_CORE_LIB_DIR to the folder that holds librdmacm.so and libibverbs.so.
In a checkout of the project, `cargo xtask demo` installs what it needs.";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-env-changed={LIB_DIR}");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    // docs.rs has no rdma-core, and documentation is not linked. `bindings.rs` is the committed one then, too.
    println!("cargo::rustc-check-cfg=cfg(from_machine)");
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Err(message) = build() {
        // Cargo prints these lines and fails, without the script's output around them.
        for line in message.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn build() -> Result<(), String> {
    warn_of_static_linking();
    let include_paths = link()?;
    #[cfg(feature = "buildtime-bindgen")]
    from_machine::generate(&include_paths)?;
    drop(include_paths);
    Ok(())
}

fn target(property: &str) -> String {
    env::var(format!("CARGO_CFG_TARGET_{property}")).unwrap_or_default()
}

fn warn_of_static_linking() {
    if target("ENV") == "musl"
        && target("FEATURE")
            .split(',')
            .any(|name| name == "crt-static")
    {
        println!(
            "cargo::warning=librdmacm and libibverbs are shared libraries that load their drivers at run time, and a \
             static program cannot use them: build with RUSTFLAGS=\"-C target-feature=-crt-static\""
        );
    }
}

/// Prints how to link, and gives the folders of the headers.
fn link() -> Result<Vec<PathBuf>, String> {
    if let Some(folder) = env::var_os(LIB_DIR) {
        return link_from(Path::new(&folder));
    }
    if target("OS") == "freebsd" {
        // Part of the base system, without .pc files.
        for library in &LIBRARIES {
            println!("cargo::rustc-link-lib={}", library.name);
        }
        return Ok(Vec::new());
    }
    let mut include_paths = Vec::new();
    for library in &LIBRARIES {
        let found = pkg_config::Config::new()
            .atleast_version(library.version)
            .probe(library.package)
            .map_err(|cause| missing(library, &cause))?;
        if library.name == "rdmacm" {
            if let Some(version) = found.version.splitn(3, '.').nth(2) {
                println!("cargo::metadata=rdma_core_version={version}");
            }
            // Not among `link_paths`, which leaves out the system's folders.
            if let Ok(folder) = pkg_config::get_variable(library.package, "libdir") {
                println!("cargo::metadata=lib_dir={folder}");
            }
        }
        include_paths.extend(found.include_paths);
    }
    Ok(include_paths)
}

/// Links what is in a folder that the user has named.
fn link_from(folder: &Path) -> Result<Vec<PathBuf>, String> {
    for library in &LIBRARIES {
        let file = folder.join(format!("lib{}.so", library.name));
        if !file.exists() {
            return Err(format!(
                "{LIB_DIR} names {}, which has no lib{}.so\n{PACKAGES}",
                folder.display(),
                library.name
            ));
        }
        println!("cargo::rerun-if-changed={}", file.display());
        println!("cargo::rustc-link-lib={}", library.name);
    }
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::metadata=lib_dir={}", folder.display());
    Ok(Vec::new())
}

/// One message for whatever kept pkg-config from finding the library.
fn missing(library: &Library, cause: &pkg_config::Error) -> String {
    let Library {
        package, version, ..
    } = library;
    let reason = match cause {
        pkg_config::Error::Command { .. } => String::from("pkg-config is not installed"),
        pkg_config::Error::CrossCompilation => String::from(
            "the target is not this machine: set PKG_CONFIG_ALLOW_CROSS=1 and PKG_CONFIG_PATH for it",
        ),
        pkg_config::Error::EnvNoPkgConfig(name) => format!("{name} is set"),
        _ => match pkg_config::Config::new()
            .cargo_metadata(false)
            .probe(package)
        {
            Ok(found) => format!("version {} is installed", found.version),
            Err(_) => format!("pkg-config knows no {package}"),
        },
    };
    format!("cannot find {package} {version} or later (rdma-core 39): {reason}\n{PACKAGES}")
}

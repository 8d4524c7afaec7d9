//! Finds librdmacm and libibverbs and tells cargo how to link them.
//!
//! What it passes on to the build scripts of dependents (`links = "rdmacm"`): `DEP_RDMACM_RDMA_CORE_VERSION`, the
//! version of rdma-core (such as `44.0`; absent when unknown), and `DEP_RDMACM_LIB_DIR`, the folder of the
//! libraries. Both are for messages: which functions the library has is found out when the program runs.

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// The oldest rdma-core that works, as pkg-config has it: `1.<ABI level>.<version of rdma-core>`.
const LIBRARIES: [(&str, &str, &str); 2] = [
    ("librdmacm", "rdmacm", "1.3.39"),
    ("libibverbs", "ibverbs", "1.14.39"),
];

/// Where the libraries are, instead of asking pkg-config.
const LIB_DIR: &str = "RDMA_CORE_LIB_DIR";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={LIB_DIR}");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    // docs.rs has no rdma-core, and documentation is not linked.
    let linked = if env::var_os("DOCS_RS").is_some() {
        Ok(())
    } else {
        link()
    };
    match linked {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn link() -> Result<(), String> {
    let target_os = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let target_env = env::var("CARGO_CFG_TARGET_ENV").unwrap_or_default();
    let target_feature = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if target_env == "musl"
        && target_feature
            .split(',')
            .any(|feature| feature == "crt-static")
    {
        println!(
            "cargo::warning=librdmacm and libibverbs are shared libraries that load their drivers at run time: a static \
             program cannot use them. Build with RUSTFLAGS=\"-C target-feature=-crt-static\"."
        );
    }
    if let Some(folder) = env::var_os(LIB_DIR) {
        return link_from(Path::new(&folder));
    }
    if target_os == "freebsd" {
        // Part of the base system, without .pc files.
        for (_, library, _) in LIBRARIES {
            println!("cargo::rustc-link-lib={library}");
        }
        return Ok(());
    }
    for (package, _, version) in LIBRARIES {
        let found = pkg_config::Config::new()
            .atleast_version(version)
            .probe(package)
            .map_err(|cause| missing(package, version, &cause))?;
        if package == "librdmacm" {
            if let Some(version) = found.version.splitn(3, '.').nth(2) {
                println!("cargo::metadata=rdma_core_version={version}");
            }
            if let Some(folder) = found.link_paths.first() {
                println!("cargo::metadata=lib_dir={}", folder.display());
            }
        }
    }
    Ok(())
}

/// Links what is in a folder that the user has named.
fn link_from(folder: &Path) -> Result<(), String> {
    for (_, library, _) in LIBRARIES {
        let file = folder.join(format!("lib{library}.so"));
        if !file.exists() {
            return Err(format!(
                "{LIB_DIR} is set to {}, but there is no {}",
                folder.display(),
                file.display()
            ));
        }
        println!("cargo::rustc-link-lib={library}");
    }
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::metadata=lib_dir={}", folder.display());
    Ok(())
}

fn missing(package: &str, version: &str, cause: &pkg_config::Error) -> String {
    format!("{package} {version} missing {cause}")
}

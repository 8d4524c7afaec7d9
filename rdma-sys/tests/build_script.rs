//! What a build says on a machine without the libraries. Runs cargo on this package, in a target folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("build-script")
        .join(name);
    std::fs::create_dir_all(&folder).expect("the target folder can be written to");
    folder
}

/// `cargo check` of this package where pkg-config finds nothing but what is in `packages`.
fn check(packages: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["check", "--quiet", "--offline", "--lib", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(folder("target"))
        .env("PKG_CONFIG_LIBDIR", packages)
        .envs(variables.iter().copied());
    for name in [
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
        "RDMA_CORE_LIB_DIR",
        "DOCS_RS",
        "RUSTFLAGS",
    ] {
        if variables.iter().all(|(set, _)| *set != name) {
            command.env_remove(name);
        }
    }
    command.output().expect("cargo starts")
}

/// The text of a build that must fail.
fn failure(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success(),
        "the build must fail, and says:\n{text}"
    );
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn without_the_libraries_one_message_names_the_packages() {
    let text = failure(&check(&folder("empty"), &[]));
    for part in [
        "cannot find librdmacm 1.3.39 or later (rdma-core 39): pkg-config knows no librdmacm",
        "Debian, Ubuntu:  apt-get install librdmacm-dev libibverbs-dev pkg-config",
        "Fedora, RHEL:    dnf install rdma-core-devel pkgconf-pkg-config",
        "Arch:            pacman -S rdma-core pkgconf",
        "Alpine:          apk add rdma-core-dev pkgconf",
        "openSUSE:        zypper install rdma-core-devel pkg-config",
        "RDMA_CORE_LIB_DIR",
        "cargo xtask demo",
    ] {
        assert_eq!(text.matches(part).count(), 1, "{part:?} once in:\n{text}");
    }
    assert!(
        text.lines().count() < 15,
        "short enough to be read:\n{text}"
    );
}

#[test]
fn a_library_that_is_too_old_is_named_with_its_version() {
    let packages = folder("old");
    std::fs::write(
        packages.join("librdmacm.pc"),
        "Name: librdmacm\nDescription: old\nVersion: 1.2.38.0\n",
    )
    .expect("the target folder can be written to");
    let text = failure(&check(&packages, &[]));
    assert!(text.contains("version 1.2.38.0 is installed"), "{text}");
}

#[test]
fn a_missing_pkg_config_is_named() {
    let text = failure(&check(
        &folder("empty"),
        &[("PKG_CONFIG", "/nonexistent/pkg-config")],
    ));
    assert!(text.contains("pkg-config is not installed"), "{text}");
}

#[test]
fn a_named_folder_without_the_libraries_is_named() {
    let empty = folder("empty");
    let name = empty.to_str().expect("the target folder is UTF-8");
    let text = failure(&check(&empty, &[("RDMA_CORE_LIB_DIR", name)]));
    assert!(
        text.contains(name) && text.contains("has no librdmacm.so"),
        "{text}"
    );
}

#[test]
fn documentation_needs_no_library() {
    let output = check(&folder("empty"), &[("DOCS_RS", "1")]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

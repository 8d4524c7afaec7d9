//! Compiles the guest's init (`init/main.rs`), which the library carries.
//!
//! A static program needs nothing in the initial file system beside it. Where the C library has no static form
//! (Fedora keeps it in a package of its own) it becomes a dynamic one, and the library adds what it needs.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn main() {
    for input in ["build.rs", "init", "src/protocol.rs"] {
        println!("cargo::rerun-if-changed={input}");
    }
    println!("cargo::rerun-if-env-changed=SOFTROCE_DYNAMIC_INIT");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("init");
    let dynamic = env::var_os("SOFTROCE_DYNAMIC_INIT").is_some_and(|value| value == "1");
    if !dynamic && compile(&out, true).status.success() {
        return;
    }
    let output = compile(&out, false);
    assert!(
        output.status.success(),
        "cannot compile the guest's init:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn compile(out: &Path, fixed: bool) -> Output {
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc.args([
        "--edition",
        "2024",
        "--crate-name",
        "softroce_init",
        "--crate-type",
        "bin",
        "--cap-lints",
        "allow",
    ]);
    rustc.args([
        "-C",
        "opt-level=2",
        "-C",
        "panic=abort",
        "-C",
        "strip=symbols",
        "-C",
        "codegen-units=1",
    ]);
    rustc
        .arg("--target")
        .arg(env::var_os("TARGET").expect("cargo sets TARGET"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc
            .arg("-C")
            .arg(format!("linker={}", linker.to_string_lossy()));
    }
    if fixed {
        rustc.args([
            "-C",
            "target-feature=+crt-static",
            "-C",
            "relocation-model=static",
        ]);
    }
    rustc.arg("-o").arg(out).arg("init/main.rs");
    rustc.output().expect("rustc runs")
}

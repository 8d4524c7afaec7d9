//! Compiles the C loops and what is put behind them, each as a translation unit of its own.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The headers that the bindings are made from, so that the inlines are the same on every machine.
const HEADERS: [&str; 2] = [
    "../../rdma-sys/headers/rdma-core",
    "../../rdma-sys/headers/kernel",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-env-changed=CC");
    for unit in ["loops", "provider", "device"] {
        match compile(unit) {
            Ok(object) => println!("cargo::rustc-link-arg-bins={}", object.display()),
            Err(message) => {
                println!("cargo::error={message}");
                return;
            }
        }
    }
}

fn compile(unit: &str) -> Result<PathBuf, String> {
    let folder = env::var_os("OUT_DIR").ok_or("cargo has named no OUT_DIR")?;
    let object = PathBuf::from(folder).join(format!("{unit}.o"));
    let source = format!("c/{unit}.c");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    for folder in HEADERS {
        command.arg("-I").arg(folder);
        println!("cargo::rerun-if-changed={folder}");
    }
    command.args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror"]);
    command.args(["-c", &source, "-o"]).arg(&object);
    let output = command
        .output()
        .map_err(|error| format!("cannot run {}: {error}", compiler.to_string_lossy()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{source} does not compile: {}",
            text.replace('\n', " | ")
        ));
    }
    Ok(object)
}

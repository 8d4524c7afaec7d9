//! Passes on what `rdma-sys` found, for error texts and `--version`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = std::env::var("DEP_RDMACM_RDMA_CORE_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=RDMACM_RDMA_CORE_VERSION={version}");
}

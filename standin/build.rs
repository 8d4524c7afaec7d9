//! Gives the library the name under which programs ask for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What is linked with `-lrdmacm` or `-libverbs` needs this file; the other name is a link to it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librdmacm.so.1");
}

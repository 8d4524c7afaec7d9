//! The C types, and the declarations that the functions here are checked against.
//!
//! Taken from the file of bindings and not from the crate: that one would link the real libraries.
#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unsafe_code,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::missing_safety_doc,
    reason = "generated: C's names, and no text of ours"
)]

include!("../../rdma-sys/src/bindings.rs");

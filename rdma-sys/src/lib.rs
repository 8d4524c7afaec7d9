//! Raw bindings to librdmacm and libibverbs.

#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::missing_safety_doc,
    reason = "generated: C's names, and no text of ours"
)]
#[rustfmt::skip]
mod bindings;

pub use bindings::*;

//! Raw bindings to librdmacm and libibverbs.
#![expect(unsafe_code, reason = "everything here is C's")]

#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::missing_safety_doc,
    reason = "generated: C's names, and no text of ours"
)]
mod bindings {
    #[cfg(not(from_machine))]
    include!("bindings.rs");
    #[cfg(from_machine)]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
#[allow(non_camel_case_types, reason = "C's names")]
mod consts;
mod inline;
pub mod probe;

pub use bindings::*;
pub use consts::*;
pub use inline::*;
/// Types of the C library that the structures and functions here use.
pub use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

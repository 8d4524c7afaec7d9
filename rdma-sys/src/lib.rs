//! Raw bindings to [librdmacm and libibverbs](https://github.com/linux-rdma/rdma-core): every public function, structure
//! and constant of `infiniband/verbs.h` and `rdma/rdma_cma.h`, under C's names, and the functions of
//! `rdma/rdma_verbs.h` that are none of its inline helpers.
//!
//! The safe crate on top is `rdmacm`. Here nothing is checked, and the manual pages are the documentation.
//!
//! # Versions
//!
//! One committed file serves every rdma-core from 39 (2022) to 65, and later ones. It is made from the newest headers;
//! users need no libclang and no C compiler. That is right because of these facts, which `tests/layout.rs` compares
//! with the C compiler's view of the installed headers:
//!
//! - Nothing was removed or renumbered. What a newer kernel or library adds arrives at a program made for an older one
//!   as a number. So C's enums are no Rust enums: those that hold one value of a list are a newtype with constants
//!   (`rdma_cm_event_type::RDMA_CM_EVENT_REJECTED`), and flags are plain integers (`IBV_ACCESS_LOCAL_WRITE`).
//! - The structures are the same, but for four that grow at one end: [`ibv_port_attr`], [`ibv_qp_ex`],
//!   [`ibv_mr_init_attr`] and [`verbs_context`]. None of them may be sized or copied for the library:
//!   [`ibv_query_port`] passes its size on, `ibv_qp_ex` is made by the library, `comp_mask` guards the tail of
//!   `ibv_mr_init_attr`.
//! - The functions declared here are those of rdma-core 39. Newer ones are looked up when the program runs: [`probe`].
//!
//! On FreeBSD, whose libraries are from 2017, the same structures hold as far as its own go; functions that it does not
//! have fail to link if they are called.
//!
//! # Inline functions
//!
//! Half of the interface has no symbol: `ibv_poll_cq`, `ibv_post_send`, `ibv_wr_start` and a hundred more are inline
//! functions of the headers, which call the driver through a table of functions. They are written in Rust here, inline
//! again, so there is no C shim to compile. `src/inline.rs` lists the few that are left out.
//!
//! # The extended table
//!
//! What was added to a device context over the years lies in a [`verbs_context`] around the [`ibv_context`] that the
//! library hands out, with new entries at its *front*. An older library's is shorter: reading an entry that it does not
//! have reads memory in front of it. The inline functions check for that. To read an entry by hand:
//!
//! - Only if [`verbs_get_ctx`] does not give null.
//! - Only if `sz` is at least `size_of::<verbs_context>() - offset_of!(verbs_context, entry)`.
//! - By a raw pointer to the entry. A reference to the whole structure would claim memory that may not be there.
//!
//! # Linking
//!
//! The build script finds the libraries by pkg-config, or in the folder that `RDMA_CORE_LIB_DIR` names. They are shared
//! libraries, which load their drivers as plug-ins: static linking is not supported. With `DOCS_RS` set nothing is
//! looked for. A dependent's build script finds `DEP_RDMACM_RDMA_CORE_VERSION` and `DEP_RDMACM_LIB_DIR` in its
//! environment.
//!
//! The feature `buildtime-bindgen` makes the bindings from the headers of the machine (or of `RDMA_CORE_INCLUDE_DIR`),
//! for headers newer than this crate or changed by a distribution. It needs libclang. What those headers are too old to
//! have is taken from the committed file.
//!
//! # Not here
//!
//! Sockets over RDMA (`rsocket.h`), the interfaces of single drivers (`mlx5dv.h` and others), `ibv_wr_opcode_str`
//! (a private symbol of each release), the helpers of `rdma_verbs.h` that build one work request.

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
pub use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t, timespec};

/// The README's example is compiled, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! The headers' `static inline` functions, in Rust.
//!
//! They have no symbol in the libraries. Each does what C's does: it calls the driver through a table, or hands its own
//! idea of a structure's size to the library. Where a table comes from an older library than an entry is from, a
//! function that returns a number gives `EOPNOTSUPP`, and one that returns a pointer gives null with `errno` set to it.
//!
//! | file | what |
//! |---|---|
//! | `context` | the extended table in front of an `ibv_context`: how to find an entry |
//! | `post` | posting and polling, through the table inside `ibv_context` |
//! | `cq_ex` | the extended completion queue: `ibv_start_poll`, `ibv_wc_read_*` |
//! | `qp_ex` | the extended queue pair: `ibv_wr_*` |
//! | `objects` | what makes, changes and ends an object through the extended table |
//! | `memory` | registration, memory windows, device memory |
//! | `query` | devices, ports, GIDs, counters |
//! | `cm` | `rdma_get_local_addr`, `rdma_get_peer_addr` |
//!
//! # Left out
//!
//! - `ibv_create_flow_action_esp`, `ibv_modify_flow_action_esp`: their argument is made of unions of kernel headers.
//! - `ibv_get_device_list` under `RDMA_STATIC_PROVIDERS`: for static linking, which is not supported.
//! - `ibv_wr_opcode_str`: no inline, but a *private* symbol of the library, whose version tag changes with each release.
//!   A program that uses it starts with a few versions only.
//! - All of `rdma_verbs.h` (`rdma_post_send`, `rdma_get_send_comp`, `rdma_reg_msgs`, ...): thin helpers that build one
//!   work request or wait for one completion. They assert, `rdma_post_sendv` leaves parts of the request
//!   uninitialised, `rdma_post_recv` and `rdma_post_read` dereference a null region.

mod cm;
mod context;
mod cq_ex;
mod memory;
mod objects;
mod post;
mod qp_ex;
mod query;

pub use cm::*;
pub use context::verbs_get_ctx;
pub use cq_ex::*;
pub use memory::*;
pub use objects::*;
pub use post::*;
pub use qp_ex::*;
pub use query::*;

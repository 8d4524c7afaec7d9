//! librdmacm: the connection manager. One file per C object.
//!
//! # Design notes
//!
//! **Two locks** keep the library from crashing. The channel's *gate* ([`channel`]) is held while an event is read, mapped to
//! its handle, copied and acknowledged, and around whatever frees or replaces what the library touches meanwhile: the end of a
//! queue pair, `rdma_resolve_addr`, `rdma_leave_multicast`, `rdma_migrate_id` (both channels' gates, in the order of their addresses). The id's own
//! *lock* ([`handle`]) spans the check of its phase and the call, for every call that reads `id->qp`. The order is: id, then
//! gate. A reader takes an id's lock only outside the gate. Inside it runs no code of the program's, and drops no handle: the
//! last one would take the gate again. Calls that may wait (`rdma_connect` over iWARP, `rdma_destroy_id`, `rdma_resolve_route` where
//! `ibacm` runs) are made without it.
//!
//! **From id to handle.** `id->context` holds a number ([`Token`]) that is never used again, never a pointer. The channel's
//! table leads from it to a weak [`handle::Handle`]. An event of an unknown number is acknowledged and forgotten. Before a call
//! whose event may come at once, the phase is already the one that waits, since the event may be read before the call returns.
//!
//! **Acknowledgement.** Every event but a request is copied and acknowledged in the gate, so nothing that a program holds makes
//! `rdma_destroy_id` wait. A request's event ([`unacked`]) counts on its listener, whose end ([`listen`]) is handed to a
//! thread while requests are outstanding. [`pending`] owns the order: accept or reject returns, then the ack, then the id.
//!
//! **What is shared.** A handle is held by its [`CmId`], by its queue pair's owner ([`qp`], [`external`]) and for a moment by the
//! reader of its event. So the order queue pair, id, channel holds whatever is dropped first.
//!
//! **Multicast.** A queued event points to the library's group, which leaving frees. So what is queued is read first and kept
//! in the gate for the readers ([`gate`]), and a group of a removed device is not left: the kernel would refuse, and the
//! library free it all the same.
//!
//! **Devices.** librdmacm keeps a device open while an id is bound to it. A `Context` holds such an id of its own ([`anchor`]).

mod addr;
mod anchor;
mod channel;
mod connect;
mod ece;
mod event;
mod event_status;
mod external;
mod framing;
mod gate;
mod group;
mod handle;
mod id;
mod listen;
mod lookup;
mod multicast;
mod option;
mod param;
mod pending;
mod phase;
mod qp;
mod request;
mod unacked;

pub use self::channel::EventChannel;
pub use self::ece::Ece;
pub use self::event::{Answer, Event, EventKind};
pub use self::event_status::EventStatus;
pub use self::framing::{frame, unframe};
pub use self::handle::Token;
pub use self::id::CmId;
pub(crate) use self::id::WeakId;
pub use self::lookup::{Destination, LookupFailure, LookupRequest, UDP_QKEY};
pub use self::multicast::{JoinState, Membership};
pub use self::option::Notice;
pub use self::param::{ConnParam, ConnectParam, Negotiated};
pub use self::request::{ConnRequest, Offer};

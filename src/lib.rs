//! The RDMA connection manager and verbs, safe: librdmacm and libibverbs for servers written in Rust.
//!
//! From safe code nobody can corrupt memory, crash inside the C libraries, or wait for ever on something that this crate
//! could have known. Between a program and the device there is nothing but the providers' own functions.
//!
//! # Where to start
//!
//! - Those who know sockets take [`Listener`], [`Connector`] and [`Connection`]: blocking, in the shape of `std::net`, whole
//!   messages instead of a stream of bytes.
//! - Those who know librdmacm find every object under its own name: [`EventChannel`] (`rdma_event_channel`), [`CmId`]
//!   (`rdma_cm_id`), [`Event`] (`rdma_cm_event`), [`ConnRequest`] (the new id of a connection request, with its event),
//!   [`ConnParam`] (`rdma_conn_param`). C's names lead there in the search: try `rdma_accept`. Functions without a safe form lead
#![cfg_attr(doc, doc = "  to [`not_wrapped`], which says why,")]
#![cfg_attr(not(doc), doc = "  to `not_wrapped`, which says why,")]
//!   and names the types, enum values and flags without one.
//! - Datagrams, to one or to a group: [`CmId::new_datagram`], [`DatagramPair`], [`Membership`].
//! - Data moves through verbs: [`Context`], [`ProtectionDomain`], [`Pool`] and [`Buf`] (registered memory), [`QueuePair`],
//!   [`CompletionQueue`]. Memory that the peer reads and writes by itself is [`Exposed`], and a [`Window`] opens a part of it.
//! - A [`Context`] tells what its device is like ([`DeviceLimits`], [`Port`], [`Gid`]) and what happens to it
//!   ([`AsyncEvents`]). Queue pairs can be [connected by hand](ProtectionDomain::create_qp), too.
//!
//! ```no_run
//! # fn main() -> Result<(), rdmacm::Error> {
//! let listener = rdmacm::Listener::bind("0.0.0.0:7471")?;
//! for request in listener.incoming() {
//!     // One failed connection must not stop the server.
//!     if let Err(error) = echo(request?) {
//!         eprintln!("{error}");
//!     }
//! }
//! # Ok(())
//! # }
//!
//! fn echo(request: rdmacm::Request) -> Result<(), rdmacm::Error> {
//!     let mut connection = request.accept()?;
//!     while let Some(message) = connection.recv()? {
//!         connection.send_buf(message)?; // the very buffer that the device wrote
//!     }
//!     connection.close()
//! }
//! ```
//!
//! # The life of a connection
//!
//! ```text
//!           client                                        server
//!
//!    CmId::new                                     CmId::new
//!        │ resolve_addr                                │ bind_addr, listen
//!        ▼                                             ▼
//!    AddrResolved                                  (listening)
//!        │ resolve_route                               │
//!        ▼                                             │
//!    RouteResolved                                     │
//!        │ create_qp, post receives                    │
//!        │ connect ──────────── request ─────────▶ ConnectRequest ── a ConnRequest: new id, un-acknowledged event
//!        │                                             │ create_qp, post receives
//!        │                    ┌──── answer ─────────── │ accept            or  reject, or dropped: the client
//!        ▼                    │                        │                       gets Rejected
//!    Established ◀────────────┘ ── ready to use ──▶ Established
//!        │                                             │
//!        │ disconnect ───────── goodbye ─────────▶ Disconnected
//!        ▼                                             │ (answered by this crate)
//!    Disconnected ◀────────────────────────────────────┘
//! ```
//!
//! A method called in the wrong phase returns [`ErrorKind::State`] and does not call C. A request's event stays
//! un-acknowledged until accept or reject has returned, as `rdma_accept(3)` asks; every other event is copied and
//! acknowledged before it is handed out, so nothing that a program keeps can make an end wait.
//!
//! # Many connections at once
//!
//! One [`EventChannel`] for all ids, and a thread that reads every event there is before it answers a few: what nobody has read
//! counts against the listener's backlog. The same thread may answer. A few completion queues and one domain for all queue pairs.
//! On the connecting side each step is started for all ids before the next one is. So does the example `cmtime`, which
//! `cargo xtask bench` measures beside its twin in C.
//!
//! # What must outlive what
//!
//! Nothing that a program has to think of: each object holds a share of what it needs, and they may be dropped in any order
//! and on any thread. A queue pair ends before its id, an id before its channel, and a device is open while anything on it
//! is alive. A buffer that was posted belongs to its request until the completion brings it back. The page
#![cfg_attr(
    doc,
    doc = "[`soundness`] says rule by rule which type keeps it and which test shows it."
)]
#![cfg_attr(
    not(doc),
    doc = "`soundness` says rule by rule which type keeps it and which test shows it."
)]
//!
//! # Versions
//!
//! rdma-core 39 (2022) or later on Linux; the crate `rdmacm-sys` finds it by pkg-config. Over iWARP the limits of private
//! data and some statuses differ: the methods say where. `docs.rs` builds need no library.

mod cm;
mod error;
mod net;
#[cfg(doc)]
pub mod not_wrapped;
mod os;
#[cfg(doc)]
pub mod soundness;
mod status;
mod verbs;

pub use self::cm::{
    Answer, CmId, ConnParam, ConnRequest, ConnectParam, Destination, Ece, Event, EventChannel,
    EventKind, EventStatus, JoinState, LookupFailure, LookupRequest, Membership, Negotiated,
    Notice, Offer, Token, UDP_QKEY, frame, unframe,
};
pub use self::error::{Error, ErrorKind, Result};
pub use self::net::{Closer, Connection, Connector, Incoming, Listener, Options, Parts, Request};
pub use self::status::{LookupStatus, RejectReason, Rejection, Status};
pub use self::verbs::{
    Access, AddressHandle, AddressVector, AsyncEvent, AsyncEventType, AsyncEvents, AsyncSource,
    AtomicCapability, Attachment, Bare, Batch, Buf, Capacities, Completion, CompletionQueue,
    Context, CqHandle, Datagram, DatagramBuf, DatagramInit, DatagramPair, DatagramReceiveQueue,
    DatagramSendQueue, DatagramWork, DeviceFlags, DeviceLimits, Exposed, ExposedDmaBuf, Fetch,
    Foreign, Gid, GidEntry, GidType, Grh, HandedBack, HugePage, InitQp, Inline, Lent, LentMut,
    LinkLayer, Loan, LoanMut, MappedMemory, Memory, MemoryOwner, Mtu, OnDemandOperations,
    OnDemandPaging, Op, Partly, Payload, Peer, Pieces, Pool, Port, PortFlags, PortState,
    ProtectionDomain, QpAttributes, QpEndpoint, QpState, QueuePair, QueuePairInit, QueueToken,
    RawRefused, ReceiveQueue, Received, Refused, Registration, RemoteEnd, RemoteMemory, ResetQp,
    RetryCount, Returned, ReturnedMut, RnrRetry, RtrQp, RtsParam, Scope, Scoped, SendQueue, Sent,
    SharedReceiveQueue, Single, Sink, Transport, Window, WindowType, Work, WrList,
};

/// The version of rdma-core that the crate was built with, such as `44.0`; empty where it is not known.
pub const RDMA_CORE_VERSION: &str = env!("RDMACM_RDMA_CORE_VERSION");

/// The README's server must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

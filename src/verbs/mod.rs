//! libibverbs: what a server needs to move data once a connection stands. One file per object; nothing here knows of the
//! connection manager.
//!
//! # Design notes
//!
//! **Whose a buffer is.** A [`Buf`] owns a piece of a registered [`Pool`]. Posting moves it into a slot of the work queue's
//! ring ([`ring`]); the completion moves it out. A ring, and so its buffers, is given back only when the destruction of its
//! queue pair has succeeded, else never: an error state, a failed post or a forgotten value says nothing about what the device
//! still does. No argument rests on a destructor having run.
//!
//! **How a completion finds its buffer.** `wr_id` names ring and request by numbers, never by a pointer, and the slot must hold
//! the same `wr_id`. What is left in a completion queue of a queue pair that is gone finds nothing. Rings reach the poller and
//! leave it through a [`mailbox`]; a ring's index is used again only after the queue has been seen empty.
//!
//! **What the safe calls cost** is counted in instructions beside plain C, by `cargo xtask overhead`, whose bounds are tests. So
//! the code of [`poll`], [`slot`], [`producer`] and [`send_queue`] is as it is: requests are prepared once ([`prepared`]), the two
//! plain kinds of completions are told by the low bits of the id ([`slot::MARKS`]), a run of unsignalled requests is spread out
//! once, and whatever is rare is out of line, with its arguments by value: an address that is taken keeps a completion out of
//! registers.
//!
//! **A failed post is no refusal.** Soft-RoCE reports an error for a send in INIT and sends it later. Only a request that the
//! provider names as the bad one comes back; any other stays posted.
//!
//! **Posting by calls.** Where a provider has `ibv_wr_start` and what goes with it, connected queue pairs are made for it and
//! batches are posted so ([`wr_post`], which tells what was found in the providers); single requests are not. The calls are made
//! when the batch is submitted, out of the prepared list, and not while it is built: a provider holds locks between the first and
//! the last. That costs a walk over the list, 18 instructions a request, which a provider makes itself in the classic way.
//! `cargo xtask overhead --librxe` counts the provider's code, too: with librxe 44, a batch of 32 takes 205 instructions a request by
//! calls; C's loop with a free list takes 203 for a list and 147 by calls. Made to post a list there, the crate takes 224.
//!
//! **What a queue pair takes.** Many only stand and wait. So a ring lies in one allocation with its slots ([`ring_arc`]), the owner
//! of a pair is the handle of its id, and what posting needs is made with the first request ([prepared]).
//!
//! **Who keeps registered memory.** A [`Region`](region): it deregisters before it lets go of the owner of the memory, and leaks
//! both where that fails. Whose bytes they are meanwhile is said by the type around it: a pool's buffers are the program's or a
//! request's, [`Exposed`] memory is everybody's and is only copied. A memory [`Window`] opens a part of it to one peer; the
//! device's books decide, since a region with a window cannot be deregistered, and this side's books are for clear errors.
//! A read into it keeps a share of the region with its request ([reads]), since there is no buffer to move into the slot.
//!
//! **Asynchronous events** are read, copied and acknowledged under a lock that making and destroying objects shares: see
//! [`async_reader`]. It is the last lock to be taken.
//!
//! **Who ends a queue pair.** Its maker: [`QpOwner`] takes the locks that the end needs, which the connection manager knows. The
//! [windows] of the pair are freed before, because soft-RoCE waits for them for ever.
//!
//! **Datagrams.** A queue keeps the address handles that its sends name ([`peers`]), and hands them to the queue pair when it goes:
//! they live until the sends have completed, or the queue pair is destroyed. It is detached from its multicast groups
//! ([`attachment`]) before that, since a device does not destroy one that is attached. A receive remembers that it is a datagram's,
//! so that its completion knows of the header in front.

mod ack_timeout;
mod address;
mod ah;
mod arrivals;
mod async_event;
mod async_reader;
mod attached;
mod attachment;
mod bare;
mod batch;
mod buf;
mod by_hand;
mod comp_channel;
mod completion;
mod context;
mod cq;
mod datagram;
mod datagram_buf;
mod datagram_pair;
mod datagram_recv;
mod datagram_send;
mod device_flags;
mod device_limits;
mod dmabuf;
mod endpoint;
mod exposed;
mod gid;
mod grh;
mod handed_back;
mod lent;
mod loan;
mod mailbox;
mod mapped;
mod mtu;
mod notify;
mod op;
mod owner;
mod pd;
mod peers;
mod pieces;
mod poll;
mod pool;
mod port;
mod prepared;
mod producer;
mod qp;
mod qp_ends;
mod qp_inner;
mod qp_query;
mod queue_token;
mod raw;
mod read_into;
mod reads;
mod receiver;
mod recv_queue;
mod refused;
mod region;
mod registration;
mod remote;
mod retry;
mod ring;
mod ring_arc;
mod rnr_timer;
mod scope;
mod send_limits;
mod send_queue;
mod slot;
mod srq;
mod stage;
mod standing;
mod table;
mod touch;
mod window;
mod windows;
mod wire;
mod work;
mod wr_list;
mod wr_post;

pub(crate) use self::ack_timeout::ack_timeout_code;
pub use self::address::AddressVector;
pub use self::ah::AddressHandle;
pub use self::async_event::{AsyncEvent, AsyncEventType, AsyncSource};
pub use self::async_reader::AsyncEvents;
pub use self::attachment::Attachment;
pub use self::batch::{Batch, Partly};
pub use self::buf::Buf;
pub use self::by_hand::{InitQp, ResetQp, RtrQp, Transport};
pub use self::completion::{Bare, Completion, Foreign, Received, Sent};
pub use self::context::Context;
pub(crate) use self::context::WeakContext;
pub use self::cq::{CompletionQueue, CqHandle};
pub use self::datagram::Datagram;
pub use self::datagram_buf::DatagramBuf;
pub(crate) use self::datagram_pair::new_datagram;
pub use self::datagram_pair::{DatagramInit, DatagramPair};
pub use self::datagram_recv::DatagramReceiveQueue;
pub use self::datagram_send::{DatagramSendQueue, DatagramWork};
pub use self::device_flags::{AtomicCapability, DeviceFlags, OnDemandOperations, OnDemandPaging};
pub use self::device_limits::DeviceLimits;
pub use self::dmabuf::ExposedDmaBuf;
pub use self::endpoint::{QpEndpoint, RemoteEnd, RtsParam};
pub use self::exposed::Exposed;
pub use self::gid::{Gid, GidEntry, GidType};
pub use self::grh::Grh;
pub use self::handed_back::HandedBack;
pub use self::lent::{Lent, LentMut};
pub use self::loan::{Loan, LoanMut, Returned, ReturnedMut};
pub use self::mapped::{HugePage, MappedMemory};
pub use self::mtu::Mtu;
pub use self::op::Op;
pub use self::owner::MemoryOwner;
pub use self::pd::ProtectionDomain;
pub use self::peers::Peer;
pub use self::pieces::Pieces;
pub use self::pool::Pool;
pub use self::port::{LinkLayer, Port, PortFlags, PortState};
pub use self::qp::{QueuePair, QueuePairInit};
pub(crate) use self::qp::{error_state, new_on};
pub(crate) use self::qp_ends::{create_connected, destroy_qp, modify_qp, query_qp};
pub(crate) use self::qp_inner::QpOwner;
pub use self::qp_query::{Capacities, QpAttributes, QpState};
pub use self::queue_token::QueueToken;
pub use self::raw::RawRefused;
pub use self::recv_queue::ReceiveQueue;
pub use self::refused::Refused;
pub use self::registration::{Access, Registration};
pub use self::remote::RemoteMemory;
pub use self::retry::{RetryCount, RnrRetry};
pub use self::scope::{Scope, Scoped};
pub use self::send_queue::SendQueue;
pub use self::srq::SharedReceiveQueue;
pub use self::stage::{Inline, Memory, Payload, Single, Sink};
pub(crate) use self::standing::Standing;
pub use self::window::{Window, WindowType};
pub use self::work::{Fetch, Work};
pub use self::wr_list::WrList;
pub(crate) use self::wr_post::create as create_with_calls;

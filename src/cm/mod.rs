//! librdmacm: the connection manager. One file per C object.

mod addr;
mod anchor;
mod channel;
mod ece;
mod event;
mod external;
mod framing;
mod handle;
mod id;
mod listen;
mod lookup;
mod option;
mod param;
mod pending;
mod phase;
mod qp;
mod reject;
mod request;
mod unacked;

pub use self::channel::EventChannel;
pub use self::ece::Ece;
pub use self::event::{Answer, Event, EventKind, EventStatus};
pub use self::framing::{frame, unframe};
pub use self::handle::Token;
pub use self::id::CmId;
pub use self::lookup::{Destination, LookupFailure, LookupRequest, LookupStatus, UDP_QKEY};
pub use self::option::Notice;
pub use self::param::{ConnParam, ConnectParam, Negotiated, RetryCount, RnrRetry};
pub use self::pending::NotAccepted;
pub use self::reject::{RejectReason, Rejection};
pub use self::request::{ConnRequest, Offer};

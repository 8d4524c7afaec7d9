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
mod option;
mod param;
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
pub use self::option::Notice;
pub use self::param::{ConnParam, ConnectParam, Negotiated, RetryCount, RnrRetry};
pub use self::reject::{RejectReason, Rejection};
pub use self::request::{ConnRequest, NotAccepted, Offer};

//! librdmacm: the connection manager. One file per C object.

mod addr;
mod anchor;
mod channel;
mod event;
mod handle;
mod id;
mod listen;
mod param;
mod phase;
mod qp;
mod reject;
mod request;
mod unacked;

pub use self::channel::EventChannel;
pub use self::event::{Answer, Event, EventKind, EventStatus};
pub use self::handle::Token;
pub use self::id::CmId;
pub use self::param::{ConnParam, ConnectParam, Negotiated, RetryCount, RnrRetry};
pub use self::reject::{RejectReason, Rejection};
pub use self::request::{ConnRequest, NotAccepted, Offer};

//! libibverbs: what a server needs to move data once a connection stands. One file per object; nothing here knows of the
//! connection manager.

mod address;
mod comp_channel;
mod completion;
mod context;
mod cq;
mod mailbox;
mod pd;
mod pool;
mod qp;
mod queue;
mod ring;
mod status;

pub use self::address::AddressVector;
pub use self::completion::{Completion, Foreign, Op, Received, Sent};
pub(crate) use self::context::WeakContext;
pub use self::context::{Context, DeviceLimits};
pub use self::cq::{CompletionQueue, CqHandle};
pub use self::pd::ProtectionDomain;
pub use self::pool::{Buf, Pool};
pub(crate) use self::qp::{QpOwner, new_on};
pub use self::qp::{QueuePair, QueuePairInit};
pub use self::queue::{ReceiveQueue, Refused, SendQueue};
pub use self::status::Status;

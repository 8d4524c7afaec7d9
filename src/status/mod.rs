//! The numbers by which the C libraries say how something ended, each list with its names.

mod lookup;
mod reject;
mod work;

pub use self::lookup::LookupStatus;
pub use self::reject::{RejectReason, Rejection};
pub use self::work::Status;

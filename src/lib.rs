//! Safe RDMA connection manager and verbs.

mod cm;
mod error;
mod net;
mod os;
mod verbs;

pub use cm::*;
pub use error::*;
pub use net::*;
pub use verbs::*;

//! What a server author wants first: blocking, in the shape of `std::net`.

mod closer;
mod connection;
mod connector;
mod listener;
mod options;
mod parts;
mod prepared;
mod request;
mod steps;
mod traffic;

pub use self::closer::Closer;
pub use self::connection::Connection;
pub use self::connector::Connector;
pub use self::listener::{Incoming, Listener};
pub use self::options::Options;
pub use self::parts::Parts;
pub use self::request::Request;

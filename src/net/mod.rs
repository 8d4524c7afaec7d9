//! What a server author wants first: blocking, in the shape of `std::net`.

mod connection;
mod connector;
mod listener;
mod options;
mod prepared;
mod request;
mod steps;
mod traffic;

pub use self::connection::Connection;
pub use self::connector::Connector;
pub use self::listener::{Incoming, Listener};
pub use self::options::Options;
pub use self::request::Request;

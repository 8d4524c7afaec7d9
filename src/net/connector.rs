use std::net::{SocketAddr, ToSocketAddrs};

use super::connection::Connection;
use super::options::Options;
use super::prepared::Prepared;
use super::steps;
use crate::cm::{CmId, EventChannel, EventKind};
use crate::error::Result;
use crate::os;

/// Connects to a server, as [`std::net::TcpStream::connect`] does for TCP.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), rdmacm::Error> {
/// use rdmacm::{Connector, Options};
///
/// let mut connection = Connector::with(Options::new().private_data("hello")).connect("10.9.0.1:7471")?;
/// connection.send(b"ping")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Connector {
    options: Options,
    local: Option<SocketAddr>,
}

impl Connector {
    /// A connector with the default [`Options`].
    pub fn new() -> Self {
        Self::default()
    }

    /// A connector with `options`.
    pub fn with(options: Options) -> Self {
        Self {
            options,
            local: None,
        }
    }

    /// Connects from this address, and so from the device that has it. Port 0 is a port of the kernel's choice.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(mut self, addr: SocketAddr) -> Self {
        self.local = Some(addr);
        self
    }

    /// Connects, and waits until the connection stands.
    ///
    /// Resolves address and route, makes the queue pair, posts the receives, and calls `rdma_connect`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)). Blocks: at most for the options' time, for
    /// each address that a name stands for (over iWARP, inside the kernel, for as long as TCP takes).
    ///
    /// # Errors
    ///
    /// [`Rejected`](crate::ErrorKind::Rejected): nobody listens there, or the server rejected the connection: see
    /// [`Error::rejection`](crate::Error::rejection); [`TimedOut`](crate::ErrorKind::TimedOut);
    /// [`NoDevice`](crate::ErrorKind::NoDevice): no RDMA device leads there;
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for options above a limit.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, addr: impl ToSocketAddrs) -> Result<Connection> {
        steps::with_each(addr, |peer| {
            let channel = EventChannel::new()?;
            let id = CmId::new(&channel)?;
            self.connect_on(id, channel, peer)
        })
    }

    fn connect_on(&self, id: CmId, channel: EventChannel, peer: SocketAddr) -> Result<Connection> {
        let deadline = os::deadline_after(Some(self.options.timeout));
        let locate = |error: crate::Error| error.at(id.local_addr().or(self.local), Some(peer));

        id.resolve_addr(self.local, peer, steps::time_left(deadline))?;
        steps::await_event(&channel, deadline, "rdma_resolve_addr", |kind| {
            matches!(kind, EventKind::AddrResolved).then_some(())
        })
        .map_err(locate)?;

        id.resolve_route(steps::time_left(deadline))?;
        steps::await_event(&channel, deadline, "rdma_resolve_route", |kind| {
            matches!(kind, EventKind::RouteResolved).then_some(())
        })
        .map_err(locate)?;

        let context = id.context()?;
        let prepared = Prepared::new(&context, &self.options, |pd, init| id.create_qp(pd, init))?;
        id.connect(self.options.param.clone())?;
        let answer = steps::await_event(&channel, deadline, "rdma_connect", |kind| match kind {
            EventKind::Established(answer) => Some(answer),
            _ => None,
        })
        .map_err(locate)?;
        Ok(Connection::new(
            prepared,
            id,
            channel,
            answer.private_data().into(),
        ))
    }
}

impl Connection {
    /// Connects to `addr` with the default options; see [`Connector`] for others.
    ///
    /// # Errors
    ///
    /// As for [`Connector::connect`].
    pub fn connect(addr: impl ToSocketAddrs) -> Result<Self> {
        Connector::new().connect(addr)
    }
}

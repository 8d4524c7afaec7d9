use std::net::SocketAddr;

use super::connection::Connection;
use super::options::Options;
use super::prepared::Prepared;
use super::steps;
use crate::cm::{ConnRequest, EventChannel, EventKind, Offer};
use crate::error::{Error, Result};
use crate::os;

/// A peer that wants to connect. Dropped, it is rejected.
#[derive(Debug)]
#[must_use = "dropping a request rejects the peer"]
pub struct Request {
    request: ConnRequest,
    listener: SocketAddr,
}

impl Request {
    pub(super) fn new(request: ConnRequest, listener: SocketAddr) -> Self {
        Self { request, listener }
    }

    /// The peer's address. (For an address that is neither IPv4 nor IPv6, the listener's own.)
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.peer_addr().unwrap_or(self.listener)
    }

    /// The address that the peer connected to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.request.local_addr().unwrap_or(self.listener)
    }

    /// What the peer offers.
    #[must_use]
    pub fn offer(&self) -> Offer<'_> {
        self.request.offer()
    }

    /// What the peer sent with its request: over InfiniBand and RoCE always 56 bytes, padded with zeros.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.request.private_data()
    }

    /// Accepts the peer, and waits until the connection stands.
    ///
    /// # Errors
    ///
    /// As for [`accept_with`](Self::accept_with).
    #[doc(alias = "rdma_accept")]
    pub fn accept(self) -> Result<Connection> {
        self.accept_with(&Options::new())
    }

    /// Accepts the peer as `options` say, and waits until the connection stands.
    ///
    /// Makes the queue pair, posts the receives, moves the connection to an event channel of its own, and calls `rdma_accept`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)). Blocks: until the peer has answered, at most for
    /// the options' time.
    ///
    /// # Errors
    ///
    /// [`PeerGone`](crate::ErrorKind::PeerGone), [`Rejected`](crate::ErrorKind::Rejected) or
    /// [`Disconnected`](crate::ErrorKind::Disconnected): the peer has changed its mind;
    /// [`TimedOut`](crate::ErrorKind::TimedOut); [`TooLarge`](crate::ErrorKind::TooLarge) for options above a limit;
    /// `ENOMEM` above the limit of locked memory. The peer is rejected.
    #[doc(alias = "rdma_accept")]
    pub fn accept_with(self, options: &Options) -> Result<Connection> {
        let deadline = os::deadline_after(Some(options.timeout));
        let context = self.request.context()?;
        let prepared = Prepared::new(&context, options, |pd, init| {
            self.request.create_qp(pd, init)
        })?;
        let channel = EventChannel::new()?;
        self.request.migrate(&channel)?;
        let peer = self.request.peer_addr();
        let id = self
            .request
            .accept_with(&options.param)
            .map_err(Error::from)?;
        steps::await_event(&channel, deadline, "rdma_accept", |kind| {
            matches!(kind, EventKind::Established(_)).then_some(())
        })
        .map_err(|error| error.at(id.local_addr(), peer))?;
        Ok(Connection::new(prepared, id, channel, Box::default()))
    }

    /// Rejects the peer, with `private_data` as the reason that its program can read: at most 148 bytes (255 over iWARP).
    ///
    /// # Errors
    ///
    /// [`TooLarge`](crate::ErrorKind::TooLarge): the peer is rejected without them.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.reject(private_data)
    }

    /// The request itself, to be answered with everything that the connection manager offers, and the channel of its own that
    /// its events come on from now.
    ///
    /// # Errors
    ///
    /// As for [`EventChannel::new`] and [`ConnRequest::migrate`]. The peer is rejected.
    pub fn into_inner(self) -> Result<(ConnRequest, EventChannel)> {
        let channel = EventChannel::new()?;
        self.request.migrate(&channel)?;
        Ok((self.request, channel))
    }
}

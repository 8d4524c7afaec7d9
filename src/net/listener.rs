use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::connection::Connection;
use super::request::Request;
use super::steps;
use crate::cm::{CmId, EventChannel, EventKind};
use crate::error::{Error, ErrorKind, Result};

/// An RDMA server's listening end, as [`std::net::TcpListener`] is TCP's.
///
/// Several threads may accept from one listener. Connections live on when it is dropped.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), rdmacm::Error> {
/// let listener = rdmacm::Listener::bind("0.0.0.0:7471")?;
/// for request in listener.incoming() {
///     let mut connection = request?.accept()?;
///     while let Some(message) = connection.recv()? {
///         connection.send_buf(message)?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    id: CmId,
    channel: EventChannel,
    local: SocketAddr,
}

/// The connection requests of a [`Listener`], one after the other, without end.
#[derive(Debug)]
pub struct Incoming<'l> {
    listener: &'l Listener,
}

impl Listener {
    /// Listens at `addr`: the unspecified address is every device, port 0 a port of the kernel's choice.
    ///
    /// Calls `rdma_bind_addr` and `rdma_listen` ([man 3](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)) with the
    /// largest backlog that the system allows. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](ErrorKind::NoDevice): no RDMA device here, or none has the address; `EADDRINUSE`: the port is taken;
    /// `EADDRNOTAVAIL`: not an address of this machine.
    #[doc(alias = "rdma_listen")]
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self> {
        steps::with_each(addr, |addr| {
            let channel = EventChannel::new()?;
            let id = CmId::new(&channel)?;
            id.bind_addr(addr)?;
            id.listen(0)?;
            let local = id.local_addr().unwrap_or(addr);
            Ok(Self { id, channel, local })
        })
    }

    /// Where it listens; the port is the real one, also when port 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a connection request and accepts it.
    ///
    /// # Errors
    ///
    /// As for [`request`](Self::request) and [`Request::accept`]. An error that is about one peer, such as
    /// [`PeerGone`](ErrorKind::PeerGone), leaves the listener as it is.
    pub fn accept(&self) -> Result<Connection> {
        self.request()?.accept()
    }

    /// Waits for a connection request, to look at before it is accepted or rejected.
    ///
    /// Blocks: yes.
    ///
    /// # Errors
    ///
    /// [`DeviceRemoved`](ErrorKind::DeviceRemoved) when the device that it listens on is gone.
    #[doc(alias = "rdma_get_request")]
    pub fn request(&self) -> Result<Request> {
        loop {
            if let Some(request) = self.next_request(None)? {
                return Ok(request);
            }
        }
    }

    /// Waits for a connection request, at most for `patience`; `None` when time has run out, or when another thread has called
    /// [`wake`](Self::wake).
    ///
    /// # Errors
    ///
    /// As for [`request`](Self::request).
    pub fn request_timeout(&self, patience: Duration) -> Result<Option<Request>> {
        self.next_request(Some(patience))
    }

    /// Wakes one thread that waits in [`request_timeout`](Self::request_timeout).
    pub fn wake(&self) {
        self.channel.wake();
    }

    /// The connection requests, one after the other.
    #[must_use]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    fn next_request(&self, patience: Option<Duration>) -> Result<Option<Request>> {
        let deadline = crate::os::deadline_after(patience);
        loop {
            let Some(event) = self.channel.wait_until(deadline)? else {
                return Ok(None);
            };
            match event.kind {
                EventKind::ConnectRequest(request) => {
                    return Ok(Some(Request::new(request, self.local)));
                }
                EventKind::DeviceRemoval => {
                    return Err(Error::plain(
                        "rdma_get_cm_event",
                        ErrorKind::DeviceRemoved,
                        "the RDMA device was removed",
                    )
                    .at(Some(self.local), None));
                }
                // What else there may be is about connections that are no longer this listener's.
                _ => {}
            }
        }
    }

    /// The id that listens, for what is not wrapped here.
    #[must_use]
    pub fn id(&self) -> &CmId {
        &self.id
    }
}

impl Iterator for Incoming<'_> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.request())
    }
}

use std::iter::FusedIterator;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::Connection;
use super::request::Request;
use super::steps;
use crate::cm::{CmId, EventChannel, EventKind};
use crate::error::{Error, ErrorKind, Result};
use crate::os::{self, Deadline};

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
///     // One failed connection must not stop the server.
///     if let Err(error) = echo(request?) {
///         eprintln!("{error}");
///     }
/// }
/// # Ok(())
/// # }
///
/// fn echo(request: rdmacm::Request) -> Result<(), rdmacm::Error> {
///     let mut connection = request.accept()?;
///     while let Some(message) = connection.recv()? {
///         connection.send_buf(message)?;
///     }
///     connection.close()
/// }
/// ```
#[derive(Debug)]
pub struct Listener {
    id: CmId,
    channel: EventChannel,
    local: SocketAddr,
    closed: AtomicBool,
}

/// The connection requests of a [`Listener`], one after the other.
#[derive(Debug)]
pub struct Incoming<'l> {
    listener: &'l Listener,
    /// An error was told, after which nothing comes.
    over: bool,
}

impl Listener {
    /// Listens at `addr`: the unspecified address is every device, port 0 a port of the kernel's choice.
    ///
    /// Calls `rdma_bind_addr` and `rdma_listen` ([man 3](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)) with the
    /// largest backlog that the system allows. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](ErrorKind::NoDevice): no RDMA device here, or none has the address; [`AddrInUse`](ErrorKind::AddrInUse): the
    /// port is taken (`EADDRINUSE`, or `EADDRNOTAVAIL` where one of the two addresses is unspecified);
    /// [`AddrNotAvailable`](ErrorKind::AddrNotAvailable): not an address of this machine.
    #[doc(alias = "rdma_listen")]
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self> {
        steps::with_each(addr, |addr| {
            let channel = EventChannel::new()?;
            let id = CmId::new(&channel)?;
            id.bind_addr(addr)?;
            id.listen(0)?;
            let local = id.local_addr().unwrap_or(addr);
            Ok(Self {
                id,
                channel,
                local,
                closed: AtomicBool::new(false),
            })
        })
    }

    /// Where it listens; the port is the real one, also when port 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a connection request and accepts it. Who it is says [`Connection::peer_addr`].
    ///
    /// It returns when the connection stands: a peer that does not answer holds up the next one, for 30 seconds. A server of
    /// more than one peer accepts in several threads, or takes [`request`](Self::request)s and has a thread answer each.
    ///
    /// Calls `rdma_accept` ([man 3](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)) on the id of the request. Blocks:
    /// until a peer connects, and for its part of the handshake.
    ///
    /// # Errors
    ///
    /// As for [`request`](Self::request) and [`Request::accept`]. An error that is about one peer, such as
    /// [`PeerGone`](ErrorKind::PeerGone), leaves the listener as it is.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self) -> Result<Connection> {
        self.request()?.accept()
    }

    /// Waits for a connection request, to look at before it is accepted or rejected.
    ///
    /// Blocks: yes.
    ///
    /// # Errors
    ///
    /// [`DeviceRemoved`](ErrorKind::DeviceRemoved) when the device that it listens on is gone;
    /// [`Closed`](ErrorKind::Closed) after [`close`](Self::close). Every later call gives the same.
    #[doc(alias = "rdma_get_request")]
    pub fn request(&self) -> Result<Request> {
        loop {
            if let Some(request) = self.next_request(None)? {
                return Ok(request);
            }
        }
    }

    /// Waits for a connection request, at most for `patience`; `None` when time has run out.
    ///
    /// # Errors
    ///
    /// As for [`request`](Self::request).
    pub fn request_timeout(&self, patience: Duration) -> Result<Option<Request>> {
        self.next_request(os::deadline_after(Some(patience)))
    }

    /// The connection requests, one after the other, until the listener is [closed](Self::close) or its device is gone.
    #[must_use]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming {
            listener: self,
            over: false,
        }
    }

    /// Ends every wait for a request, of every thread, now and later. The kernel stops listening when the listener is dropped.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.channel.wake();
    }

    fn next_request(&self, deadline: Deadline) -> Result<Option<Request>> {
        loop {
            if let Some(error) = self.end() {
                // This one was told; the next one that waits is to be told too.
                self.channel.wake();
                return Err(error.at(Some(self.local), None));
            }
            let Some(event) = self.channel.wait_until(deadline)? else {
                // Woken, or out of time.
                if self.end().is_some() {
                    continue;
                }
                return Ok(None);
            };
            // What else there may be is about connections that are no longer this listener's.
            if let EventKind::ConnectRequest(request) = event.kind {
                return Ok(Some(Request::new(request, self.local)));
            }
        }
    }

    /// Why no request comes any more, if none does.
    fn end(&self) -> Option<Error> {
        const OP: &str = "rdma_get_cm_event";
        if self.closed.load(Ordering::Acquire) {
            return Some(Error::plain(
                OP,
                ErrorKind::Closed,
                "the listener was closed",
            ));
        }
        self.id
            .is_removed()
            .then(|| Error::plain(OP, ErrorKind::DeviceRemoved, "the RDMA device was removed"))
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
        if self.over {
            return None;
        }
        match self.listener.request() {
            Err(error) if error.kind() == ErrorKind::Closed => None,
            Err(error) => {
                // Told once: a loop that goes on after an error ends.
                self.over = true;
                Some(Err(error))
            }
            request => Some(request),
        }
    }
}

impl FusedIterator for Incoming<'_> {}

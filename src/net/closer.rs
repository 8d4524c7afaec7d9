use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cm::{CmId, EventChannel, WeakId};
use crate::error::Result;

/// Ends a [`Connection`](crate::Connection) from another thread, as [`TcpStream::shutdown`](std::net::TcpStream::shutdown) of a
/// clone does: see [`Connection::closer`](crate::Connection::closer).
///
/// It does not keep the connection alive. Cloning shares it.
#[derive(Clone)]
pub struct Closer {
    closed: Arc<AtomicBool>,
    id: WeakId,
    channel: EventChannel,
}

impl Closer {
    pub(super) fn new(closed: &Arc<AtomicBool>, id: &CmId, channel: &EventChannel) -> Self {
        Self {
            closed: Arc::clone(closed),
            id: id.downgrade(),
            channel: channel.clone(),
        }
    }

    /// Ends the connection, and with it every wait of its owner, now and later: a send and a flush are an error of the kind
    /// [`Closed`](crate::ErrorKind::Closed), and so is a receive, once all that has arrived is received.
    ///
    /// The peer sees the end; what is on its way may be lost. A connection that has ended already is left as it is.
    ///
    /// Calls `rdma_disconnect` ([man 3](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`CmId::disconnect`]. The owner is woken all the same.
    #[doc(alias = "shutdown")]
    #[doc(alias = "rdma_disconnect")]
    pub fn close(&self) -> Result<()> {
        let Some(id) = self.id.upgrade() else {
            return Ok(());
        };
        // Before there is anything to see of it: the owner who is woken, or whose requests fail, looks here.
        self.closed.store(true, Ordering::Release);
        let disconnected = id.disconnect();
        self.channel.wake();
        disconnected
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer")
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

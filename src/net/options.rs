use std::time::Duration;

use crate::cm::ConnParam;

/// How large a connection is, what it says when it is made, and how long that may take.
///
/// A connection locks three times `queue_depth` times `message_size` bytes of memory (one set posted, one that waits to be
/// received or is with the program, one for sends) and has five file descriptors open: a server of many connections needs
/// `LimitMEMLOCK=` and `LimitNOFILE=`, a shell `ulimit -l` and `ulimit -n`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(super) message_size: usize,
    pub(super) queue_depth: u32,
    pub(super) param: ConnParam<'static>,
    pub(super) timeout: Duration,
}

impl Options {
    /// Messages of up to 4096 bytes, 16 of them in each direction, no private data, 30 seconds.
    pub fn new() -> Self {
        Self {
            message_size: 4096,
            queue_depth: 16,
            param: ConnParam::new(),
            timeout: Duration::from_secs(30),
        }
    }

    /// How many bytes the longest message has, in either direction. A longer one from the peer ends the connection.
    pub fn message_size(mut self, bytes: usize) -> Self {
        self.message_size = bytes;
        self
    }

    /// How many messages the device takes while this side is busy elsewhere; above that, the peer's sends wait. As many may be
    /// on their way from this side before a send waits.
    pub fn queue_depth(mut self, messages: u32) -> Self {
        self.queue_depth = messages;
        self
    }

    /// Bytes that the other side can read when the connection is made: at most 56 for connect and 196 for accept (255 over
    /// iWARP).
    pub fn private_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.param = self.param.private_data(data.into());
        self
    }

    /// Everything that is said when the connection is made, in place of what was set before.
    pub fn param(mut self, param: ConnParam<'_>) -> Self {
        self.param = param.into_owned();
        self
    }

    /// How long making the connection may take, with all its steps: a connection that does not stand by then is
    /// [`TimedOut`](crate::ErrorKind::TimedOut). A [`Connector`](crate::Connector) gives as much to each address that a name
    /// stands for.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

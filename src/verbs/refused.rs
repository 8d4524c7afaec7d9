#![expect(
    unsafe_code,
    reason = "takes back requests that a provider has refused"
)]

use std::fmt;

use super::pool::Buf;
use super::ring::Producer;
use crate::error::{Error, ErrorKind};

/// A post that failed, with the buffer if it came back.
///
/// Without one, the device may hold the request all the same, and its completion brings the buffer: an error from a post is
/// no refusal, unless the provider names the request that it refused.
pub struct Refused {
    error: Error,
    buf: Option<Buf>,
}

/// The error of a failed post of the request `wr_id`, which the provider did or did not name as the one refused.
#[cold]
pub(super) fn refused(
    op: &'static str,
    errno: i32,
    named: bool,
    producer: &mut Producer,
    wr_id: u64,
) -> Refused {
    let buf = if named {
        // SAFETY: `wr_id` is what `put` just gave. The provider names the request as the first that it did not take, so the
        // device does not have it. (In INIT, rxe fails without a name and sends the request later: then it stays posted.)
        unsafe { producer.take_back(wr_id) }
    } else {
        None
    };
    let kind = match errno {
        libc::ENOMEM => ErrorKind::QueueFull,
        errno => ErrorKind::of_errno(errno),
    };
    Refused {
        error: Error::os_as(op, errno, kind),
        buf,
    }
}

impl Refused {
    #[cold]
    pub(super) fn with(error: Error, buf: Buf) -> Self {
        Self {
            error,
            buf: Some(buf),
        }
    }

    #[cold]
    pub(super) fn full(op: &'static str, buf: Buf) -> Self {
        Self {
            error: Error::plain(
                op,
                ErrorKind::QueueFull,
                "every slot of the queue is in use; poll the completion queue, or make the queue deeper",
            ),
            buf: Some(buf),
        }
    }

    /// Soft-RoCE takes a send before the connection stands, reports an error, and sends it later all the same.
    #[cold]
    pub(super) fn early(buf: Buf) -> Self {
        Self {
            error: Error::state(
                "ibv_post_send",
                "a connected queue pair",
                "this one is not connected yet",
            ),
            buf: Some(buf),
        }
    }

    /// With the buffer as long as it was before the post.
    pub(super) fn with_len(mut self, len: usize) -> Self {
        if let Some(buf) = &mut self.buf {
            buf.set_len(len);
        }
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The buffer, if the device does not have the request.
    #[must_use]
    pub fn into_buf(self) -> Option<Buf> {
        self.buf
    }

    /// Both at once.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<Buf>) {
        (self.error, self.buf)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .field("buf", &self.buf)
            .finish()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {}

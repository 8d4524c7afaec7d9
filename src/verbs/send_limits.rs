use super::stage::Stage;
use super::work::{Fetch, Work};
use crate::error::{Error, ErrorKind, Result};

/// The call that posts to a send queue.
pub(super) const OP: &str = "ibv_post_send";

/// What one request may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendLimits {
    pub(super) max_sge: u32,
    pub(super) max_inline_data: u32,
    pub(super) iwarp: bool,
    /// Whether the queue pair's type has reads and atomics.
    pub(super) reads: bool,
    /// Whether the device has atomics.
    pub(super) atomics: bool,
}

impl SendLimits {
    /// That `payload` fits the queue, and what it is sent to.
    #[inline]
    pub(super) fn check<S: Stage>(&self, work: &Work, payload: &S) -> Result<()> {
        self.check_pieces(payload.pieces())?;
        if S::FLAGS & rdma_sys::IBV_SEND_INLINE != 0
            && payload.bytes() > self.max_inline_data.into()
        {
            return Err(too_long_inline(payload.bytes(), self.max_inline_data));
        }
        if let Some(room) = work.room() {
            if payload.bytes() > room.into() {
                return Err(too_short(payload.bytes(), room));
            }
        }
        if work.has_imm() && self.iwarp {
            return Err(Error::unsupported(OP, "immediate data", "iWARP"));
        }
        Ok(())
    }

    /// That the transport and the device carry out `fetch`.
    pub(super) fn check_fetch(&self, fetch: &Fetch) -> Result<()> {
        let atomics = "atomic operations";
        if self.iwarp {
            let what = if fetch.is_atomic() {
                atomics
            } else {
                "reads into a buffer of a pool; use `read_into`"
            };
            return Err(Error::unsupported(OP, what, "iWARP"));
        }
        if !self.reads {
            let by = "an unreliable queue pair";
            return Err(Error::unsupported(OP, "reads and atomics", by));
        }
        // They are not among the calls of a queue pair then.
        if fetch.is_atomic() && !self.atomics {
            return Err(Error::unsupported(OP, atomics, "this device"));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check_pieces(&self, pieces: usize) -> Result<()> {
        if pieces > 1 && pieces > self.max_sge as usize {
            return Err(too_many(OP, "max_send_sge", pieces, self.max_sge));
        }
        Ok(())
    }
}

/// The error of a number that a post has returned: an errno, of either sign.
pub(super) fn post_error(op: &'static str, returned: i32) -> Error {
    let errno = returned.saturating_abs();
    let kind = match errno {
        libc::ENOMEM => ErrorKind::QueueFull,
        errno => ErrorKind::of_errno(errno),
    };
    Error::os_as(op, errno, kind)
}

#[cold]
pub(super) fn too_many(op: &'static str, field: &'static str, pieces: usize, limit: u32) -> Error {
    Error::too_large(
        op,
        field,
        pieces as u64,
        limit.into(),
        "make the queue for more buffers in a request, or give fewer",
    )
}

#[cold]
fn too_long_inline(len: u64, limit: u32) -> Error {
    Error::too_large(
        OP,
        "length of the inline data",
        len,
        limit.into(),
        "make the queue pair with a larger max_inline_data, or send a buffer",
    )
}

#[cold]
pub(super) fn too_short(len: u64, limit: u32) -> Error {
    Error::too_large(
        OP,
        "length of the buffer",
        len,
        limit.into(),
        "the peer's memory is shorter; set the buffer's length",
    )
}

#[cold]
pub(super) fn no_reads() -> Error {
    Error::state(
        OP,
        "a connection with an initiator_depth of at least 1 for reads and atomics",
        "this one was made with 0: the queue pair would never carry them out",
    )
}

/// Soft-RoCE takes a send before the connection stands, reports an error, and sends it later all the same.
#[cold]
pub(super) fn early() -> Error {
    let found = "this one is not connected yet";
    Error::state(OP, "a connected queue pair", found)
}

use std::fmt;

use crate::error::{Error, ErrorKind};

/// The status of an event that reports a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EventStatus {
    raw: i32,
    /// The errno behind a status of -1, which is librdmacm's own way to report a failed call.
    library_errno: i32,
}

impl EventStatus {
    /// `library_errno` is what `rdma_get_cm_event` left.
    pub(super) fn new(raw: i32, library_errno: i32) -> Self {
        Self { raw, library_errno }
    }

    /// The status as it came: 0, a negative errno, or -1 for a failure inside the library.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        self.raw
    }

    /// The errno that the status stands for, if it stands for one.
    #[must_use]
    pub fn errno(self) -> Option<i32> {
        match self.raw {
            // -1 would be EPERM; the library means "see errno".
            -1 => Some(self.library_errno),
            raw if raw < 0 => raw.checked_neg(),
            _ => None,
        }
    }

    pub(super) fn to_error(self, op: &'static str) -> Error {
        match self.errno() {
            Some(errno) => Error::os(op, errno),
            None => Error::plain(
                op,
                ErrorKind::Other,
                "the connection manager gave no reason",
            ),
        }
    }
}

impl fmt::Debug for EventStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("EventStatus");
        debug.field("raw", &self.raw);
        if let Some(errno) = self.errno() {
            debug.field("errno", &errno);
        }
        debug.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_is_the_librarys_errno_and_never_eperm() {
        let status = |raw| EventStatus::new(raw, libc::EINVAL);
        assert_eq!(status(-1).errno(), Some(libc::EINVAL));
        assert_eq!(status(-110).errno(), Some(libc::ETIMEDOUT));
        assert_eq!(status(0).errno(), None);
        assert_eq!(status(8).errno(), None);
        assert_eq!(status(i32::MIN).errno(), None);
        assert_eq!(
            status(-19).to_error("rdma_resolve_addr").kind(),
            ErrorKind::NoDevice
        );
    }
}

//! The one error of this crate, and the three ways in which the C libraries report failure.

mod call;
mod hint;
mod kind;

use std::fmt;
use std::io;
use std::net::SocketAddr;

pub(crate) use self::call::{errno_of_rdma, errno_of_verbs, last_errno, pointer_of};
pub(crate) use self::hint::{no_huge_pages, not_registered};
pub use self::kind::ErrorKind;
use crate::status::{LookupStatus, Rejection, Status};

/// What went wrong, in which C call, and what to do about it.
///
/// One word wide; the details are allocated when something fails and only then. It converts into [`std::io::Error`] with the
/// [`std::io::ErrorKind`] that a user of sockets expects.
///
/// A rejection by the peer is data and not an errno: see [`Error::rejection`].
pub struct Error(Box<Details>);

#[derive(Debug)]
struct Details {
    op: &'static str,
    cause: Cause,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
}

/// The cause of an [`Error`], before the addresses it concerns are known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// A C function failed.
    #[error("{}", hint::errno_text(*errno))]
    Errno { errno: i32, kind: ErrorKind },
    /// A C function failed, and why is known where it was called.
    #[error("{}; {advice}", hint::errno_text(*errno))]
    Explained {
        errno: i32,
        kind: ErrorKind,
        advice: String,
    },
    /// A value above its limit, found before the call.
    #[error("{field} is {value}, the limit is {limit}; {advice}")]
    TooLarge {
        field: &'static str,
        value: u64,
        limit: u64,
        advice: &'static str,
    },
    /// The transport, or the device, has no such operation.
    #[error("{by} has no {what}")]
    Unsupported {
        what: &'static str,
        by: &'static str,
    },
    /// The object is not in the phase that the call needs.
    #[error("this needs {needed}, but {found}")]
    State {
        needed: &'static str,
        found: &'static str,
    },
    /// Two objects that must be of one device are of two.
    #[error(
        "{what} is on device {found}, but {other} is on device {wanted}; make both on one device"
    )]
    DeviceMismatch {
        what: &'static str,
        found: String,
        other: &'static str,
        wanted: String,
    },
    /// The peer said no.
    #[error("the peer rejected the connection: {}", .0.reason())]
    Rejected(Rejection),
    /// A look-up was answered, and not with a destination.
    #[error("the look-up failed: {0}")]
    LookupFailed(LookupStatus),
    /// A work request completed with an error.
    #[error("the work request failed: {status}")]
    Completion { status: Status },
    /// An event that is no answer to what was waited for.
    #[error("the connection manager answered with {0}, which is no answer to this step")]
    Unexpected(String),
    /// A name that no address could be found for.
    #[error("{0}")]
    Resolve(String),
    /// Anything that is described by its kind and a sentence.
    #[error("{message}")]
    Plain {
        kind: ErrorKind,
        message: &'static str,
    },
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(op: &'static str, cause: Cause) -> Self {
        Self(Box::new(Details {
            op,
            cause,
            local: None,
            peer: None,
        }))
    }

    /// The error of a C call that left `errno`.
    pub(crate) fn os(op: &'static str, errno: i32) -> Self {
        Self::new(
            op,
            Cause::Errno {
                errno,
                kind: ErrorKind::of_errno(errno),
            },
        )
    }

    /// The error of a C call whose `errno` means `kind` in this place.
    pub(crate) fn os_as(op: &'static str, errno: i32, kind: ErrorKind) -> Self {
        Self::new(op, Cause::Errno { errno, kind })
    }

    pub(crate) fn plain(op: &'static str, kind: ErrorKind, message: &'static str) -> Self {
        Self::new(op, Cause::Plain { kind, message })
    }

    pub(crate) fn state(op: &'static str, needed: &'static str, found: &'static str) -> Self {
        Self::new(op, Cause::State { needed, found })
    }

    pub(crate) fn unsupported(op: &'static str, what: &'static str, by: &'static str) -> Self {
        Self::new(op, Cause::Unsupported { what, by })
    }

    pub(crate) fn too_large(
        op: &'static str,
        field: &'static str,
        value: u64,
        limit: u64,
        advice: &'static str,
    ) -> Self {
        Self::new(
            op,
            Cause::TooLarge {
                field,
                value,
                limit,
                advice,
            },
        )
    }

    /// A host name or address that stands for nothing.
    pub(crate) fn resolve(reason: String) -> Self {
        Self::new("getaddrinfo", Cause::Resolve(reason))
    }

    /// A look-up that was not answered with a destination: an errno where the status is one, and never else.
    pub(crate) fn lookup(op: &'static str, status: LookupStatus) -> Self {
        match status.as_raw() {
            raw if raw < 0 => Self::os(op, raw.saturating_neg()),
            _ => Self::new(op, Cause::LookupFailed(status)),
        }
    }

    pub(crate) fn unexpected(op: &'static str, event: String) -> Self {
        Self::new(op, Cause::Unexpected(event))
    }

    /// Adds the addresses that the failed call was about.
    pub(crate) fn at(mut self, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> Self {
        self.0.local = local;
        self.0.peer = peer;
        self
    }

    /// Which kind of failure this is: what a program decides by.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.0.cause {
            Cause::Errno { kind, .. }
            | Cause::Explained { kind, .. }
            | Cause::Plain { kind, .. } => *kind,
            Cause::TooLarge { .. } => ErrorKind::TooLarge,
            Cause::Resolve(_) => ErrorKind::InvalidInput,
            Cause::Unsupported { .. } => ErrorKind::Unsupported,
            Cause::State { .. } => ErrorKind::State,
            Cause::DeviceMismatch { .. } => ErrorKind::DeviceMismatch,
            Cause::Rejected(_)
            | Cause::LookupFailed(LookupStatus::NO_SUCH_SERVICE | LookupStatus::REJECTED) => {
                ErrorKind::Rejected
            }
            Cause::LookupFailed(_) | Cause::Unexpected(_) => ErrorKind::Other,
            Cause::Completion { .. } => ErrorKind::WorkFailed,
        }
    }

    /// The C function that failed, or that was not called because it would have.
    #[must_use]
    pub fn op(&self) -> &'static str {
        self.0.op
    }

    /// The errno of the failed C call, if one was made.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self.0.cause {
            Cause::Errno { errno, .. } | Cause::Explained { errno, .. } => Some(errno),
            _ => None,
        }
    }

    /// What the peer said when it rejected the connection: its reason and its private data.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        match &self.0.cause {
            Cause::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// The status of the work request that failed, if that is what happened.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match &self.0.cause {
            Cause::Completion { status } => Some(*status),
            _ => None,
        }
    }

    /// The local address of the connection, where it is known.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local
    }

    /// The peer's address, where it is known.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.peer
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("op", &self.0.op)
            .field("cause", &self.0.cause)
            .field("local", &self.0.local)
            .field("peer", &self.0.peer)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.op)?;
        match (self.0.local, self.0.peer) {
            (Some(local), Some(peer)) => write!(f, " (local {local}, peer {peer})")?,
            (Some(local), None) => write!(f, " (local {local})")?,
            (None, Some(peer)) => write!(f, " (peer {peer})")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.0.cause)?;
        if let Cause::Errno { errno, kind } = self.0.cause {
            f.write_str(&hint::advice(self.0.op, kind, errno))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        // A request that failed says by its status what kind of failure it is.
        let kind = match error.status() {
            Some(status) => status.io_kind(),
            None => error.kind().into(),
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_failed_is_the_io_error_of_its_status() {
        for (status, io_kind) in [
            (Status::RETRY_EXCEEDED, io::ErrorKind::TimedOut),
            (Status::RNR_RETRY_EXCEEDED, io::ErrorKind::TimedOut),
            (Status::FLUSHED, io::ErrorKind::ConnectionReset),
            (Status::REMOTE_ACCESS, io::ErrorKind::PermissionDenied),
            (Status::REMOTE_INVALID, io::ErrorKind::InvalidInput),
            (Status::LOCAL_PROTECTION, io::ErrorKind::InvalidInput),
            (Status::LOCAL_LENGTH, io::ErrorKind::InvalidData),
            (Status::from_raw(11), io::ErrorKind::ConnectionAborted),
            (Status::from_raw(99), io::ErrorKind::Other),
        ] {
            let error = Error::new("ibv_post_send", Cause::Completion { status });
            assert_eq!(error.kind(), ErrorKind::WorkFailed);
            assert_eq!(io::Error::from(error).kind(), io_kind, "{status}");
        }
    }

    #[test]
    fn the_text_names_the_call_the_addresses_and_the_errno() {
        let error = Error::os("rdma_bind_addr", libc::EADDRINUSE)
            .at(Some("10.9.0.1:7471".parse().unwrap()), None);
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        assert_eq!(
            error.to_string(),
            "rdma_bind_addr (local 10.9.0.1:7471): Address already in use (os error 98)"
        );
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_limit_names_field_value_limit_and_advice() {
        let error = Error::too_large(
            "rdma_connect",
            "private_data_len",
            57,
            56,
            "send the rest later",
        );
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert_eq!(error.raw_os_error(), None);
        assert_eq!(
            error.to_string(),
            "rdma_connect: private_data_len is 57, the limit is 56; send the rest later"
        );
    }

    #[test]
    fn what_to_do_about_an_errno_is_told_by_the_call() {
        let error = Error::os("rdma_accept", libc::ENODEV);
        assert!(error.to_string().contains("rdma link add"), "{error}");
        let error = Error::os("ibv_modify_qp", libc::EPERM);
        assert_eq!(
            error.to_string(),
            "ibv_modify_qp: Operation not permitted (os error 1)"
        );
    }

    #[test]
    fn a_status_of_a_look_up_is_an_errno_only_when_negative() {
        let error = |raw| Error::lookup("rdma_connect", LookupStatus::new(raw));
        assert_eq!(error(1).kind(), ErrorKind::Rejected);
        assert_eq!(error(2).kind(), ErrorKind::Rejected);
        assert_eq!(error(2).raw_os_error(), None);
        assert_eq!(error(3).kind(), ErrorKind::Other);
        assert_eq!(error(-110).kind(), ErrorKind::TimedOut);
        assert_eq!(error(-110).raw_os_error(), Some(110));
    }

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}

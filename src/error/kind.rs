use std::fmt;
use std::io;

/// The kinds of failure, as a program wants to tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no RDMA device here, or none that reaches the address.
    NoDevice,
    /// The device, or the connection's part of it, was removed.
    DeviceRemoved,
    /// A device node, an address or a limit is not this user's to use.
    PermissionDenied,
    /// The kernel, the device or the installed rdma-core cannot do this.
    Unsupported,
    /// The object is not in the phase that the call needs.
    State,
    /// An argument is not valid for the library or the kernel.
    InvalidInput,
    /// An argument is above its limit.
    TooLarge,
    /// Two objects that must be of one device are of two.
    DeviceMismatch,
    /// The address is taken.
    AddrInUse,
    /// The address is not one of this machine's.
    AddrNotAvailable,
    /// No route leads to the peer.
    Unreachable,
    /// The peer rejected the connection, or nobody listens there.
    Rejected,
    /// The peer of a connection request had gone before it was answered.
    PeerGone,
    /// The connection is down.
    Disconnected,
    /// The object was closed by this program.
    Closed,
    /// Time ran out.
    TimedOut,
    /// Every slot of a queue is in use: poll its completion queue, and try again.
    QueueFull,
    /// The program holds every buffer of a [`Connection`](crate::Connection) that the call could use. To try again is of no
    /// use before it has dropped or sent some.
    BuffersHeld,
    /// A work request completed with an error. Its [`status`](crate::Error::status) says which, and decides which
    /// [`io::ErrorKind`] it becomes: a peer that does not answer is `TimedOut`.
    WorkFailed,
    /// Memory, locked memory or another resource ran out.
    OutOfMemory,
    /// None of the above: see [`raw_os_error`](crate::Error::raw_os_error).
    Other,
}

impl ErrorKind {
    /// The kind that `errno` means where nothing more is known.
    pub(crate) fn of_errno(errno: i32) -> Self {
        match errno {
            libc::ENODEV => Self::NoDevice,
            // EIO is what a device says that has been taken away from its users.
            libc::ENXIO | libc::EIO => Self::DeviceRemoved,
            libc::EACCES | libc::EPERM => Self::PermissionDenied,
            // 524 is the kernel's own ENOTSUPP, which has no name in user space.
            libc::ENOSYS | libc::EOPNOTSUPP | 524 => Self::Unsupported,
            libc::EINVAL => Self::InvalidInput,
            libc::EADDRINUSE => Self::AddrInUse,
            libc::EADDRNOTAVAIL => Self::AddrNotAvailable,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN => Self::Unreachable,
            libc::ECONNREFUSED => Self::Rejected,
            libc::ECONNRESET | libc::ENOTCONN | libc::ECONNABORTED => Self::Disconnected,
            libc::ETIMEDOUT => Self::TimedOut,
            libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE => Self::OutOfMemory,
            _ => Self::Other,
        }
    }
}

impl From<ErrorKind> for io::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NoDevice => Self::NotFound,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::State | ErrorKind::InvalidInput => Self::InvalidInput,
            ErrorKind::TooLarge | ErrorKind::DeviceMismatch => Self::InvalidInput,
            ErrorKind::AddrInUse => Self::AddrInUse,
            ErrorKind::AddrNotAvailable => Self::AddrNotAvailable,
            ErrorKind::Unreachable => Self::HostUnreachable,
            ErrorKind::Rejected => Self::ConnectionRefused,
            ErrorKind::PeerGone => Self::ConnectionAborted,
            ErrorKind::Disconnected | ErrorKind::DeviceRemoved => Self::ConnectionReset,
            ErrorKind::Closed => Self::NotConnected,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::QueueFull => Self::WouldBlock,
            ErrorKind::BuffersHeld => Self::ResourceBusy,
            ErrorKind::OutOfMemory => Self::OutOfMemory,
            ErrorKind::WorkFailed | ErrorKind::Other => Self::Other,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDevice => "no RDMA device",
            Self::DeviceRemoved => "device removed",
            Self::PermissionDenied => "permission denied",
            Self::Unsupported => "unsupported",
            Self::State => "wrong state",
            Self::InvalidInput => "invalid input",
            Self::TooLarge => "above the limit",
            Self::DeviceMismatch => "two devices where one is needed",
            Self::AddrInUse => "address in use",
            Self::AddrNotAvailable => "address not available",
            Self::Unreachable => "unreachable",
            Self::Rejected => "rejected",
            Self::PeerGone => "the peer has gone",
            Self::Disconnected => "disconnected",
            Self::Closed => "closed",
            Self::TimedOut => "timed out",
            Self::QueueFull => "queue full",
            Self::BuffersHeld => "the program holds every buffer",
            Self::WorkFailed => "work request failed",
            Self::OutOfMemory => "out of memory",
            Self::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_become_what_a_socket_user_expects() {
        for (errno, kind, io_kind) in [
            (
                libc::ECONNREFUSED,
                ErrorKind::Rejected,
                io::ErrorKind::ConnectionRefused,
            ),
            (
                libc::ETIMEDOUT,
                ErrorKind::TimedOut,
                io::ErrorKind::TimedOut,
            ),
            (
                libc::EADDRINUSE,
                ErrorKind::AddrInUse,
                io::ErrorKind::AddrInUse,
            ),
            (
                libc::ECONNRESET,
                ErrorKind::Disconnected,
                io::ErrorKind::ConnectionReset,
            ),
            (
                libc::ENOSYS,
                ErrorKind::Unsupported,
                io::ErrorKind::Unsupported,
            ),
            (524, ErrorKind::Unsupported, io::ErrorKind::Unsupported),
            (
                libc::ENXIO,
                ErrorKind::DeviceRemoved,
                io::ErrorKind::ConnectionReset,
            ),
            (
                libc::ENOMEM,
                ErrorKind::OutOfMemory,
                io::ErrorKind::OutOfMemory,
            ),
            (libc::EBUSY, ErrorKind::Other, io::ErrorKind::Other),
        ] {
            assert_eq!(ErrorKind::of_errno(errno), kind, "errno {errno}");
            assert_eq!(io::ErrorKind::from(kind), io_kind, "{kind:?}");
        }
    }
}

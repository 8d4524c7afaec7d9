use std::fmt;

/// A rejection by the peer: its reason and its private data.
#[derive(Clone, PartialEq, Eq)]
pub struct Rejection {
    reason: RejectReason,
    private_data: Box<[u8]>,
}

impl Rejection {
    pub(crate) fn new(reason: RejectReason, private_data: Box<[u8]>) -> Self {
        Self {
            reason,
            private_data,
        }
    }

    /// Why the peer, or the network, rejected.
    #[must_use]
    pub fn reason(&self) -> RejectReason {
        self.reason
    }

    /// What the peer sent with it: over InfiniBand and RoCE always 148 bytes, padded with zeros; over iWARP as many as were
    /// sent. Empty when nobody was there to send any.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }
}

impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection")
            .field("reason", &self.reason)
            .field("private_data_len", &self.private_data.len())
            .finish()
    }
}

/// Why a connection was rejected: InfiniBand's list (positive), or iWARP's negative errno.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(i32);

impl RejectReason {
    /// Nobody listens at the address (InfiniBand and RoCE).
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The peer still knows the queue pair's number from an older connection; try again.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The program at the other end rejected the connection, or ended before it answered.
    pub const CONSUMER_DEFINED: Self = Self(28);

    pub(crate) const fn new(status: i32) -> Self {
        Self(status)
    }

    /// Whether the same attempt, with a new id and queue pair, may succeed.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        self.0 == Self::STALE_CONNECTION.0
    }

    /// The event's status as it came.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    fn text(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "no queue pair",
            2 => "no end-to-end context",
            3 => "no resources",
            4 => "time-out",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "nobody listens there",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "RDC does not exist",
            12 => "primary remote port GID rejected",
            13 => "primary remote port LID rejected",
            14 => "invalid service level",
            15 => "invalid traffic class",
            16 => "invalid hop limit",
            17 => "invalid packet rate",
            18 => "alternate remote port GID rejected",
            19 => "alternate remote port LID rejected",
            24 => "port and connection redirection",
            25 => "port redirection",
            26 => "invalid MTU",
            27 => "insufficient responder resources",
            28 => "the program there said no",
            29 => "RNR retry count rejected",
            30 => "duplicate local communication id",
            31 => "invalid class version",
            32 => "invalid flow label",
            33 => "invalid alternate flow label",
            35 => "vendor option not supported",
            _ => return None,
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.text()) {
            (number, Some(text)) => write!(f, "{text} (reason {number})"),
            (number, None) if number < 0 => {
                let errno = std::io::Error::from_raw_os_error(number.saturating_neg());
                write!(f, "{errno} (reason {number})")
            }
            (number, None) => write!(f, "reason {number}"),
        }
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectReason({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_never_read_as_errnos() {
        assert_eq!(
            RejectReason::new(8).to_string(),
            "nobody listens there (reason 8)"
        );
        assert_eq!(
            RejectReason::CONSUMER_DEFINED.to_string(),
            "the program there said no (reason 28)"
        );
        assert_eq!(RejectReason::new(77).to_string(), "reason 77");
        assert!(RejectReason::STALE_CONNECTION.is_retryable());
        assert!(!RejectReason::CONSUMER_DEFINED.is_retryable());
    }

    #[test]
    fn iwarp_reasons_are_errnos() {
        assert_eq!(
            RejectReason::new(-104).to_string(),
            "Connection reset by peer (os error 104) (reason -104)"
        );
    }
}

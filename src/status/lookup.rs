use std::fmt;

/// Why a look-up failed: InfiniBand's list of SIDR statuses (positive), or a negative errno.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LookupStatus(i32);

impl LookupStatus {
    /// Nobody listens at the address.
    pub const NO_SUCH_SERVICE: Self = Self(1);
    /// The program there rejected the request.
    pub const REJECTED: Self = Self(2);

    pub(crate) const fn new(status: i32) -> Self {
        Self(status)
    }

    /// The event's status as it came.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

impl fmt::Display for LookupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            1 => "nobody listens there",
            2 => "the program there said no",
            3 => "there is no queue pair",
            4 => "it is served elsewhere",
            5 => "the peer speaks another version",
            status if status < 0 => {
                let errno = std::io::Error::from_raw_os_error(status.saturating_neg());
                return write!(f, "{errno} (status {status})");
            }
            status => return write!(f, "status {status}"),
        };
        write!(f, "{text} (status {})", self.0)
    }
}

impl fmt::Debug for LookupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LookupStatus({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_positive_status_is_never_an_errno() {
        assert_eq!(
            LookupStatus::REJECTED.to_string(),
            "the program there said no (status 2)"
        );
        assert_eq!(
            LookupStatus::new(-110).to_string(),
            "Connection timed out (os error 110) (status -110)"
        );
        assert_eq!(LookupStatus::new(77).to_string(), "status 77");
    }
}

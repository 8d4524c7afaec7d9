use std::fmt;
use std::io;

use rdma_sys::ibv_wc_status;

/// How a work request ended (`ibv_wc_status`).
///
/// A number that this crate has no name for is kept as it came.
#[doc(alias = "ibv_wc_status")]
#[doc(alias = "ibv_wc_status_str")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u32);

impl Status {
    /// The request was carried out.
    #[doc(alias = "IBV_WC_SUCCESS")]
    pub const SUCCESS: Self = Self(ibv_wc_status::IBV_WC_SUCCESS.0);
    /// The message was longer than the buffer that was to hold it.
    #[doc(alias = "IBV_WC_LOC_LEN_ERR")]
    pub const LOCAL_LENGTH: Self = Self(ibv_wc_status::IBV_WC_LOC_LEN_ERR.0);
    /// A fault of the queue pair itself; soft-RoCE gives it for a datagram that is longer than its receive, too.
    #[doc(alias = "IBV_WC_LOC_QP_OP_ERR")]
    pub const LOCAL_QP_OPERATION: Self = Self(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR.0);
    /// The buffer is not registered for what the request wanted.
    #[doc(alias = "IBV_WC_LOC_PROT_ERR")]
    pub const LOCAL_PROTECTION: Self = Self(ibv_wc_status::IBV_WC_LOC_PROT_ERR.0);
    /// The queue pair went to its error state before the request was carried out: the connection is down.
    #[doc(alias = "IBV_WC_WR_FLUSH_ERR")]
    pub const FLUSHED: Self = Self(ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0);
    /// A memory window could not be bound: it was bound already, or to memory that the device refuses.
    #[doc(alias = "IBV_WC_MW_BIND_ERR")]
    pub const MW_BIND: Self = Self(ibv_wc_status::IBV_WC_MW_BIND_ERR.0);
    /// The peer does not answer.
    #[doc(alias = "IBV_WC_RETRY_EXC_ERR")]
    pub const RETRY_EXCEEDED: Self = Self(ibv_wc_status::IBV_WC_RETRY_EXC_ERR.0);
    /// The peer had no receive posted, for as often as it was tried.
    #[doc(alias = "IBV_WC_RNR_RETRY_EXC_ERR")]
    pub const RNR_RETRY_EXCEEDED: Self = Self(ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR.0);
    /// The peer's memory is not open to this access.
    #[doc(alias = "IBV_WC_REM_ACCESS_ERR")]
    pub const REMOTE_ACCESS: Self = Self(ibv_wc_status::IBV_WC_REM_ACCESS_ERR.0);
    /// The peer could not take the request, such as a message longer than its buffer.
    #[doc(alias = "IBV_WC_REM_INV_REQ_ERR")]
    pub const REMOTE_INVALID: Self = Self(ibv_wc_status::IBV_WC_REM_INV_REQ_ERR.0);

    /// From the number in `ibv_wc::status`.
    #[doc(alias(
        "IBV_WC_LOC_EEC_OP_ERR",
        "IBV_WC_BAD_RESP_ERR",
        "IBV_WC_LOC_ACCESS_ERR",
        "IBV_WC_REM_OP_ERR",
        "IBV_WC_LOC_RDD_VIOL_ERR",
        "IBV_WC_REM_INV_RD_REQ_ERR",
        "IBV_WC_REM_ABORT_ERR",
        "IBV_WC_INV_EECN_ERR",
        "IBV_WC_INV_EEC_STATE_ERR",
        "IBV_WC_FATAL_ERR",
        "IBV_WC_RESP_TIMEOUT_ERR",
        "IBV_WC_GENERAL_ERR",
        "IBV_WC_TM_ERR",
        "IBV_WC_TM_RNDV_INCOMPLETE"
    ))]
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The number in `ibv_wc::status`.
    #[inline]
    #[must_use]
    pub const fn as_raw(self) -> u32 {
        self.0
    }

    /// Whether the request was carried out.
    #[inline]
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == Self::SUCCESS.0
    }

    /// What a user of sockets would expect in place of a request that failed so.
    pub(crate) fn io_kind(self) -> io::ErrorKind {
        match ibv_wc_status(self.0) {
            // The peer does not answer, or has taken nothing for as long as it was tried.
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR
            | ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR
            | ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR => io::ErrorKind::TimedOut,
            // As `Disconnected`.
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => io::ErrorKind::ConnectionReset,
            ibv_wc_status::IBV_WC_REM_OP_ERR | ibv_wc_status::IBV_WC_REM_ABORT_ERR => {
                io::ErrorKind::ConnectionAborted
            }
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => io::ErrorKind::PermissionDenied,
            // The request was no good to the peer, or to the device.
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR | ibv_wc_status::IBV_WC_LOC_PROT_ERR => {
                io::ErrorKind::InvalidInput
            }
            // What came does not fit.
            ibv_wc_status::IBV_WC_LOC_LEN_ERR => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        }
    }

    fn text(self) -> Option<&'static str> {
        Some(match ibv_wc_status(self.0) {
            ibv_wc_status::IBV_WC_SUCCESS => "success",
            ibv_wc_status::IBV_WC_LOC_LEN_ERR => {
                "local length error: the message is longer than the buffer"
            }
            ibv_wc_status::IBV_WC_LOC_QP_OP_ERR => "local queue pair operation error",
            ibv_wc_status::IBV_WC_LOC_EEC_OP_ERR => "local EE context operation error",
            ibv_wc_status::IBV_WC_LOC_PROT_ERR => {
                "local protection error: the memory is not registered for this"
            }
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => "flushed: the connection is down",
            ibv_wc_status::IBV_WC_MW_BIND_ERR => "memory window bind error",
            ibv_wc_status::IBV_WC_BAD_RESP_ERR => "bad response",
            ibv_wc_status::IBV_WC_LOC_ACCESS_ERR => "local access error",
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => {
                "remote invalid request: the peer's buffer may be too short"
            }
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => {
                "remote access error: the peer's memory is not open to this"
            }
            ibv_wc_status::IBV_WC_REM_OP_ERR => "remote operation error",
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR => "retries exceeded: the peer does not answer",
            ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => {
                "receiver-not-ready retries exceeded: the peer has no receive posted"
            }
            ibv_wc_status::IBV_WC_LOC_RDD_VIOL_ERR => "local RDD violation",
            ibv_wc_status::IBV_WC_REM_INV_RD_REQ_ERR => "remote invalid RD request",
            ibv_wc_status::IBV_WC_REM_ABORT_ERR => "remote aborted",
            ibv_wc_status::IBV_WC_INV_EECN_ERR => "invalid EE context number",
            ibv_wc_status::IBV_WC_INV_EEC_STATE_ERR => "invalid EE context state",
            ibv_wc_status::IBV_WC_FATAL_ERR => "fatal error",
            ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR => "response timeout",
            ibv_wc_status::IBV_WC_GENERAL_ERR => "general error",
            ibv_wc_status::IBV_WC_TM_ERR => "tag matching error",
            ibv_wc_status::IBV_WC_TM_RNDV_INCOMPLETE => "tag matching rendezvous incomplete",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "{text} (status {})", self.0),
            None => write!(f, "status {}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_header_has_words_and_others_keep_their_number() {
        for raw in 0..=23 {
            assert!(Status::from_raw(raw).text().is_some(), "status {raw}");
        }
        assert_eq!(Status::from_raw(24).to_string(), "status 24");
        assert_eq!(
            Status::from_raw(5).to_string(),
            "flushed: the connection is down (status 5)"
        );
        assert!(Status::from_raw(0).is_success());
        assert!(!Status::from_raw(13).is_success());
    }
}

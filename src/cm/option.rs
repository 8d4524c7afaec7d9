#![expect(unsafe_code, reason = "calls rdma_set_option and rdma_notify")]

use std::time::Duration;

use rdma_sys::ibv_event_type;

use super::id::CmId;
use super::phase::Phase;
use crate::error::{Error, Result, errno_of_rdma};
use crate::verbs::ack_timeout_code;

const OP: &str = "rdma_set_option";

/// An asynchronous event of a queue pair that the connection manager can make use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Notice {
    /// `IBV_EVENT_COMM_EST`: a message came before the last step of the handshake did.
    CommunicationEstablished,
    /// `IBV_EVENT_PATH_MIG`: the queue pair has moved to its alternate path.
    PathMigrated,
}

/// The options of an id (`RDMA_OPTION_ID`).
impl CmId {
    /// Sets the type of service of the connection's packets.
    ///
    /// For an id whose route is not being resolved yet, or a request's before it is accepted.
    ///
    /// Calls `rdma_set_option` with `RDMA_OPTION_ID_TOS`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) later, when it would have no effect.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    #[doc(alias = "RDMA_OPTION_ID")]
    pub fn set_tos(&self, tos: u8) -> Result<()> {
        self.set(
            rdma_sys::RDMA_OPTION_ID_TOS,
            tos,
            "an id whose route is not resolved",
            |phase| phase <= Phase::AddrResolved || phase == Phase::Requested,
        )
    }

    /// Lets the id be bound to an address that another id is bound to, where neither listens (`SO_REUSEADDR`).
    ///
    /// For an id that was just made. Calls `rdma_set_option` with `RDMA_OPTION_ID_REUSEADDR`. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) later.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    #[doc(alias = "RDMA_OPTION_ID")]
    pub fn set_reuse_addr(&self, on: bool) -> Result<()> {
        self.set(
            rdma_sys::RDMA_OPTION_ID_REUSEADDR,
            i32::from(on),
            "an id that was just made",
            |phase| phase == Phase::Idle,
        )
    }

    /// Has an id bound to `[::]` listen for IPv6 only (`IPV6_V6ONLY`), or for IPv4 too.
    ///
    /// For an id that was just made. Calls `rdma_set_option` with `RDMA_OPTION_ID_AFONLY`. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) later.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    #[doc(alias = "RDMA_OPTION_ID")]
    pub fn set_ipv6_only(&self, on: bool) -> Result<()> {
        self.set(
            rdma_sys::RDMA_OPTION_ID_AFONLY,
            i32::from(on),
            "an id that was just made",
            |phase| phase == Phase::Idle,
        )
    }

    /// Sets how long the queue pair waits for an acknowledgement before it sends again, in place of what the path's lifetime
    /// says. Devices know times of 4.096 µs · 2ⁿ: the next longer one is taken, at most 2.4 hours.
    ///
    /// For an id that is not connecting yet, or a request's before it is accepted: the time belongs to the queue pair's last
    /// step to a standing connection and cannot be changed later.
    ///
    /// Calls `rdma_set_option` with `RDMA_OPTION_ID_ACK_TIMEOUT`. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) later (the kernel would take it and not use it).
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    #[doc(alias = "RDMA_OPTION_ID")]
    pub fn set_ack_timeout(&self, timeout: Duration) -> Result<()> {
        self.set(
            rdma_sys::RDMA_OPTION_ID_ACK_TIMEOUT,
            ack_timeout_code(timeout),
            "an id that is not connecting",
            |phase| phase < Phase::Connecting && phase != Phase::Listening,
        )
    }

    fn set<T: Copy>(
        &self,
        option: u32,
        value: T,
        needed: &'static str,
        good: impl FnOnce(Phase) -> bool,
    ) -> Result<()> {
        let control = self.handle().lock();
        self.expect(OP, needed, good)?;
        let mut value = value;
        // SAFETY: `rdma_set_option` wants an id and `size_of::<T>()` bytes that it reads during the call. CAST: small constants.
        let returned = unsafe {
            rdma_sys::rdma_set_option(
                self.as_raw(),
                rdma_sys::RDMA_OPTION_ID as i32,
                option as i32,
                (&raw mut value).cast(),
                size_of::<T>(),
            )
        };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| self.error_here(OP, errno))
    }

    /// Tells the connection manager of an asynchronous event of the queue pair, which a program has read from the device.
    ///
    /// For an accepted connection whose [`Established`](super::EventKind::Established) has not come, when a message has.
    ///
    /// Calls `rdma_notify` ([man 3](https://man7.org/linux/man-pages/man3/rdma_notify.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// `EINVAL` when there is nothing to be told; [`State`](crate::ErrorKind::State) before accept or connect.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, notice: Notice) -> Result<()> {
        const OP: &str = "rdma_notify";
        let control = self.handle().lock();
        self.expect(OP, "an id that is connecting", |phase| {
            matches!(
                phase,
                Phase::Connecting | Phase::Responded | Phase::Established
            )
        })?;
        let event = match notice {
            Notice::CommunicationEstablished => ibv_event_type::IBV_EVENT_COMM_EST,
            Notice::PathMigrated => ibv_event_type::IBV_EVENT_PATH_MIG,
        };
        // SAFETY: `rdma_notify` wants an id.
        let returned = unsafe { rdma_sys::rdma_notify(self.as_raw(), event) };
        let result = errno_of_rdma(returned);
        drop(control);
        // EISCONN: it knows already.
        match result {
            Ok(()) | Err(libc::EISCONN) => Ok(()),
            Err(errno) => Err(Error::os(OP, errno).at(self.local_addr(), self.peer_addr())),
        }
    }
}

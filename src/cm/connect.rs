#![expect(unsafe_code, reason = "calls librdmacm on an id")]

use std::net::SocketAddr;
use std::ptr;
use std::time::Duration;

use super::addr::CAddr;
use super::handle::{external_to_error, is_down};
use super::id::CmId;
use super::param::{ConnectParam, Limits, Message};
use super::phase::Phase;
use super::qp;
use crate::error::{Error, Result, errno_of_rdma};

/// The steps of the connecting side, and the end of a connection.
impl CmId {
    /// Starts to find the device and the addresses for a connection to `peer`, from `local` if one is given.
    ///
    /// For an id that is new or bound, as it is after an [`AddrError`](super::EventKind::AddrError), too. One that is bound keeps
    /// its address: `local` is not looked at then. What follows is [`AddrResolved`](super::EventKind::AddrResolved) or
    /// [`AddrError`](super::EventKind::AddrError), within `timeout` (in milliseconds, rounded up, at least one).
    ///
    /// Calls `rdma_resolve_addr` ([man 3](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: `local` is taken; `ENODEV`: no RDMA device has `local`; `EINVAL`: `local` and `peer`
    /// are of different address families.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        const OP: &str = "rdma_resolve_addr";
        let control = self.handle().lock();
        let before = self.expect(OP, "an id that is new or bound", |phase| {
            matches!(phase, Phase::Idle | Phase::Bound)
        })?;
        let local_addr = local.map(CAddr::new);
        let peer_addr = CAddr::new(peer);
        self.handle().phase().advance(Phase::ResolvingAddr);
        // The call writes the peer's address into the id after the kernel has started, when the event may be read already.
        let gate = control.channel.gate();
        // SAFETY: `rdma_resolve_addr` wants an id and addresses that it reads during the call, or null for the first. The
        // gate keeps readers from what it writes.
        let returned = unsafe {
            rdma_sys::rdma_resolve_addr(
                self.as_raw(),
                local_addr.as_ref().map_or(ptr::null_mut(), CAddr::as_ptr),
                peer_addr.as_ptr(),
                milliseconds(timeout),
            )
        };
        let result = errno_of_rdma(returned);
        drop(gate);
        result.map_err(|errno| {
            self.handle().phase().undo(Phase::ResolvingAddr, before);
            Error::os(OP, errno).at(local, Some(peer))
        })
    }

    /// Starts to find the route to the peer.
    ///
    /// For an id whose address is resolved. What follows is [`RouteResolved`](super::EventKind::RouteResolved) or
    /// [`RouteError`](super::EventKind::RouteError), within `timeout` (in milliseconds, rounded up, at least one).
    ///
    /// Calls `rdma_resolve_route` ([man 3](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)). Blocks: where the
    /// daemon `ibacm` runs, until it has answered, over InfiniBand and RoCE: librdmacm asks it for the route first, and `timeout` is
    /// not for that. Elsewhere no.
    ///
    /// # Errors
    ///
    /// What the kernel reports.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        const OP: &str = "rdma_resolve_route";
        let control = self.handle().lock();
        self.expect(OP, "an id whose address is resolved", |phase| {
            phase == Phase::AddrResolved
        })?;
        self.handle().phase().advance(Phase::ResolvingRoute);
        // SAFETY: `rdma_resolve_route` wants an id with a device, which one whose address is resolved has: the library
        // reports an error instead when it found none.
        let returned =
            unsafe { rdma_sys::rdma_resolve_route(self.as_raw(), milliseconds(timeout)) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| {
            self.handle()
                .phase()
                .undo(Phase::ResolvingRoute, Phase::AddrResolved);
            self.error_here(OP, errno)
        })
    }

    /// Asks the peer for a connection.
    ///
    /// For an id whose route is resolved, with a queue pair on it. What follows is
    /// [`Established`](super::EventKind::Established), [`Rejected`](super::EventKind::Rejected),
    /// [`Unreachable`](super::EventKind::Unreachable) or [`ConnectError`](super::EventKind::ConnectError). Events must be
    /// read: the last message of the handshake is sent by [`EventChannel::try_event`](super::EventChannel::try_event).
    ///
    /// Calls `rdma_connect` ([man 3](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)). Blocks: over iWARP for as
    /// long as TCP takes to connect.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for private data of more than 56 bytes (255 over iWARP) or a depth above the
    /// device's: the id can be used again. `ECONNREFUSED` (iWARP): nobody listens there.
    #[doc(alias = "rdma_connect")]
    pub fn connect<'a>(&self, param: impl Into<ConnectParam<'a>>) -> Result<()> {
        const OP: &str = "rdma_connect";
        self.expect_service(OP, false)?;
        let context = self.context_for(OP)?;
        let control = self.handle().lock();
        self.expect(OP, "an id whose route is resolved", |phase| {
            phase == Phase::RouteResolved
        })?;
        let external = control.external;
        if external.is_none() && !self.has_qp() {
            return Err(Error::state(
                OP,
                "a queue pair on the id (`create_qp`)",
                "there is none",
            ));
        }
        let param = param.into();
        let mut raw = param.to_raw(&Limits {
            op: OP,
            message: Message::Connect,
            context: &context,
            offered_initiator_depth: None,
        })?;
        raw.qp_num = external.map_or(0, qp::number);
        // The answer may come before the call returns.
        self.handle().phase().advance(Phase::Connecting);
        // SAFETY: `rdma_connect` wants an id with a device, which one whose route is resolved has, and parameters and private
        // data that it reads during the call: `param` holds them. It reads `id->qp`, which the lock protects.
        let returned = unsafe { rdma_sys::rdma_connect(self.as_raw(), &raw mut raw) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| {
            self.handle()
                .phase()
                .undo(Phase::Connecting, Phase::RouteResolved);
            self.error_here(OP, errno)
        })
    }

    /// Ends the connection, and flushes what is posted. Does nothing when it is down already or was never up.
    ///
    /// The other side gets [`Disconnected`](super::EventKind::Disconnected); this side too, over InfiniBand and RoCE only
    /// once the other has answered, which this crate does by itself.
    ///
    /// Calls `rdma_disconnect` ([man 3](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`DeviceRemoved`](crate::ErrorKind::DeviceRemoved) when the device is gone.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        const OP: &str = "rdma_disconnect";
        let control = self.handle().lock();
        let phase = self.handle().phase().get();
        if phase < Phase::Connecting || phase == Phase::Disconnected && self.handle().has_ended() {
            return Ok(());
        }
        external_to_error(&control);
        // SAFETY: `rdma_disconnect` wants an id with a device, which one that was connecting has. It reads `id->qp`, which
        // the lock protects.
        let returned = unsafe { rdma_sys::rdma_disconnect(self.as_raw()) };
        let result = errno_of_rdma(returned);
        drop(control);
        match result {
            Err(errno) if !is_down(result) => Err(self.error_here(OP, errno)),
            // Or it never came up.
            _ => Ok(()),
        }
    }
}

/// A time-out as C wants it: in milliseconds, rounded up, at least one (the kernel refuses none), as long as an `int` holds at
/// most.
fn milliseconds(timeout: Duration) -> i32 {
    let millis = timeout.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_round_up_and_never_wrap() {
        assert_eq!(milliseconds(Duration::ZERO), 1);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_micros(1500)), 2);
        assert_eq!(milliseconds(Duration::from_secs(3)), 3000);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}

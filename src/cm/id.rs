#![expect(unsafe_code, reason = "calls librdmacm on an id")]

use std::fmt;
use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{rdma_cm_id, rdma_port_space};

use super::addr::CAddr;
use super::anchor;
use super::channel::EventChannel;
use super::handle::{Handle, RawId, Token, external_to_error};
use super::param::{ConnectParam, Limits, Message, Negotiated};
use super::phase::Phase;
use super::qp;
use crate::error::{Error, ErrorKind, Result, errno_of_rdma, pointer_of};
use crate::verbs::{Context, ProtectionDomain, QueuePair, QueuePairInit};

/// A communication identifier (`rdma_cm_id`): the connection manager's socket.
///
/// It is a listener after [`listen`](Self::listen), a client after [`resolve_addr`](Self::resolve_addr), and one end of a
/// connection after connect or accept. What the calls start is reported as events on its [`EventChannel`]; each call says
/// which event follows. Called in the wrong phase, a method is an error and not a call.
///
/// Dropping it destroys the id, after its queue pair: an established connection ends, a listener stops listening.
pub struct CmId {
    handle: Arc<Handle>,
}

impl CmId {
    /// Makes an id for a reliable connection (`RDMA_PS_TCP`), with its events on `channel`.
    ///
    /// Calls `rdma_create_id` ([man 3](https://man7.org/linux/man-pages/man3/rdma_create_id.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](ErrorKind::NoDevice) when the machine has no RDMA device; `ENOMEM` when the kernel has no room.
    #[doc(alias = "rdma_create_id")]
    pub fn new(channel: &EventChannel) -> Result<Self> {
        Self::of_service(channel, false)
    }

    /// Makes an id for datagrams (`RDMA_PS_UDP`), with its events on `channel`: to [look up](Self::look_up) where to send
    /// them, or to listen for such questions.
    ///
    /// Calls `rdma_create_id` ([man 3](https://man7.org/linux/man-pages/man3/rdma_create_id.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    #[doc(alias = "RDMA_PS_UDP")]
    pub fn new_datagram(channel: &EventChannel) -> Result<Self> {
        Self::of_service(channel, true)
    }

    fn of_service(channel: &EventChannel, datagram: bool) -> Result<Self> {
        const OP: &str = "rdma_create_id";
        let token = Token::new();
        let mut raw: *mut rdma_cm_id = ptr::null_mut();
        // SAFETY: `rdma_create_id` wants a channel, which outlives the id since the handle holds it, and room for the answer.
        // The context is a number. With a channel, the id is asynchronous: no call on it waits inside the library.
        let returned = unsafe {
            rdma_sys::rdma_create_id(
                channel.raw(),
                &raw mut raw,
                token.to_context(),
                if datagram {
                    rdma_port_space::RDMA_PS_UDP
                } else {
                    rdma_port_space::RDMA_PS_TCP
                },
            )
        };
        errno_of_rdma(returned).map_err(|errno| Error::os(OP, errno))?;
        let raw = pointer_of(raw).map_err(|errno| Error::os(OP, errno))?;
        let handle = Handle::new(RawId(raw), token, datagram, channel.clone(), Phase::Idle);
        let handle = Arc::new(handle);
        channel.register(&handle);
        Ok(Self { handle })
    }

    pub(super) fn from_handle(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The number by which events name this id.
    #[must_use]
    pub fn token(&self) -> Token {
        self.handle.token()
    }

    /// Binds the id to a local address: the unspecified one for every device, port 0 for a port of the kernel's choice.
    ///
    /// For an id that was just made. A specific address binds it to the device that has it.
    ///
    /// Calls `rdma_bind_addr` ([man 3](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: the port is taken; `EADDRNOTAVAIL`: not an address of this machine; `ENODEV`: no RDMA device has it.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, addr: SocketAddr) -> Result<()> {
        const OP: &str = "rdma_bind_addr";
        let control = self.handle.lock();
        self.expect(OP, "an id that was just made", |phase| phase == Phase::Idle)?;
        let c_addr = CAddr::new(addr);
        // SAFETY: `rdma_bind_addr` wants an id and an address that it reads during the call. No event of an id in this phase
        // can come, so nobody else touches what it writes into the id.
        let returned = unsafe { rdma_sys::rdma_bind_addr(self.as_raw(), c_addr.as_ptr()) };
        errno_of_rdma(returned).map_err(|errno| Error::os(OP, errno).at(Some(addr), None))?;
        // SAFETY: as above.
        unsafe { self.handle.refresh_view() };
        self.handle.phase().advance(Phase::Bound);
        drop(control);
        Ok(())
    }

    /// Starts to listen: from now on connection requests come as events. `backlog` is how many may wait to be read; 0 is as
    /// many as the system allows.
    ///
    /// For an id that was bound. When the backlog is full, clients on InfiniBand and RoCE try again after some seconds, those
    /// on iWARP are reset.
    ///
    /// Calls `rdma_listen` ([man 3](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: the port is taken (on iWARP also by a TCP listener).
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<()> {
        const OP: &str = "rdma_listen";
        let control = self.handle.lock();
        self.expect(OP, "a bound id", |phase| phase == Phase::Bound)?;
        // A request may come before the call returns.
        self.handle.phase().advance(Phase::Listening);
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        // SAFETY: `rdma_listen` wants an id. Of the events of a listener only DEVICE_REMOVAL is its own, and reading that one
        // does not touch the addresses that this call writes.
        let returned = unsafe { rdma_sys::rdma_listen(self.as_raw(), backlog) };
        if let Err(errno) = errno_of_rdma(returned) {
            self.handle.phase().undo(Phase::Listening, Phase::Bound);
            return Err(self.error_here(OP, errno));
        }
        // SAFETY: as above: nobody else writes to them.
        unsafe { self.handle.refresh_view() };
        drop(control);
        Ok(())
    }

    /// Starts to find the device and the addresses for a connection to `peer`, from `local` if one is given.
    ///
    /// For an id that is new or bound. What follows is [`AddrResolved`](super::EventKind::AddrResolved) or
    /// [`AddrError`](super::EventKind::AddrError), within `timeout` (in milliseconds, rounded up).
    ///
    /// Calls `rdma_resolve_addr` ([man 3](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: `local` is taken; `ENODEV`: no RDMA device has `local`; `EINVAL`: of two families.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        const OP: &str = "rdma_resolve_addr";
        let control = self.handle.lock();
        let before = self.expect(OP, "an id that is new or bound", |phase| {
            matches!(phase, Phase::Idle | Phase::Bound)
        })?;
        let local_addr = local.map(CAddr::new);
        let peer_addr = CAddr::new(peer);
        self.handle.phase().advance(Phase::ResolvingAddr);
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
            self.handle.phase().undo(Phase::ResolvingAddr, before);
            Error::os(OP, errno).at(local, Some(peer))
        })
    }

    /// Starts to find the route to the peer.
    ///
    /// For an id whose address is resolved. What follows is [`RouteResolved`](super::EventKind::RouteResolved) or
    /// [`RouteError`](super::EventKind::RouteError), within `timeout` (in milliseconds, rounded up).
    ///
    /// Calls `rdma_resolve_route` ([man 3](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// What the kernel reports.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        const OP: &str = "rdma_resolve_route";
        let control = self.handle.lock();
        self.expect(OP, "an id whose address is resolved", |phase| {
            phase == Phase::AddrResolved
        })?;
        self.handle.phase().advance(Phase::ResolvingRoute);
        // SAFETY: `rdma_resolve_route` wants an id with a device, which one whose address is resolved has: the library
        // reports an error instead when it found none.
        let returned =
            unsafe { rdma_sys::rdma_resolve_route(self.as_raw(), milliseconds(timeout)) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| {
            self.handle
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
    /// read: the last message of the handshake is sent by [`EventChannel::try_event`].
    ///
    /// Calls `rdma_connect` ([man 3](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)). Blocks: over iWARP for as
    /// long as TCP takes to connect.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for private data of more than 56 bytes (255 over iWARP) or a depth above the
    /// device's: the id can be used again. `ECONNREFUSED` (iWARP): nobody listens there.
    #[doc(alias = "rdma_connect")]
    pub fn connect<'a>(&self, param: impl Into<ConnectParam<'a>>) -> Result<()> {
        const OP: &str = "rdma_connect";
        self.expect_service(OP, false)?;
        let context = self.context()?;
        let control = self.handle.lock();
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
        self.handle.phase().advance(Phase::Connecting);
        // SAFETY: `rdma_connect` wants an id with a device, which one whose route is resolved has, and parameters and private
        // data that it reads during the call: `param` holds them. It reads `id->qp`, which the lock protects.
        let returned = unsafe { rdma_sys::rdma_connect(self.as_raw(), &raw mut raw) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| {
            self.handle
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
    /// [`DeviceRemoved`](ErrorKind::DeviceRemoved) when the device is gone.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        const OP: &str = "rdma_disconnect";
        let control = self.handle.lock();
        if self.handle.phase().get() < Phase::Connecting {
            return Ok(());
        }
        external_to_error(&control);
        // SAFETY: `rdma_disconnect` wants an id with a device, which one that was connecting has. It reads `id->qp`, which
        // the lock protects.
        let returned = unsafe { rdma_sys::rdma_disconnect(self.as_raw()) };
        let result = errno_of_rdma(returned);
        drop(control);
        match result {
            // The connection is down, or never came up.
            Ok(()) | Err(libc::EINVAL) => Ok(()),
            Err(errno) => Err(self.error_here(OP, errno)),
        }
    }

    /// Moves the id, with its events to come, to another channel. For connections: a listener stays where it is.
    ///
    /// After it has returned, events of the id come from `channel` only.
    ///
    /// Calls `rdma_migrate_id` ([man 3](https://man7.org/linux/man-pages/man3/rdma_migrate_id.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) for a listener, which would lose requests.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<()> {
        const OP: &str = "rdma_migrate_id";
        let mut control = self.handle.lock();
        self.expect(OP, "an id that does not listen", |phase| {
            phase != Phase::Listening
        })?;
        if control.channel.is(channel) {
            return Ok(());
        }
        let (mut old, mut new) = control.channel.both_gates(channel);
        // SAFETY: `rdma_migrate_id` wants an id and a channel that outlives it: the handle holds it from here on. It waits for
        // events of the id that are not acknowledged: events are acknowledged in the gate, which is held, so there is none,
        // and the request that brought a child counts on its listener.
        let returned = unsafe { rdma_sys::rdma_migrate_id(self.as_raw(), channel.raw()) };
        let result = errno_of_rdma(returned);
        if result.is_ok() {
            old.remove(self.token());
            new.insert(&self.handle);
        }
        drop((old, new));
        result.map_err(|errno| self.error_here(OP, errno))?;
        let left = std::mem::replace(&mut control.channel, channel.clone());
        drop(control);
        // This may have been its last share.
        drop(left);
        Ok(())
    }

    /// Makes the id's queue pair, in `pd`. The connection manager moves its states.
    ///
    /// For an id that has a device and no queue pair: with its address or route resolved, or a request's.
    ///
    /// Calls `rdma_create_qp` ([man 3](https://man7.org/linux/man-pages/man3/rdma_create_qp.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`DeviceMismatch`](ErrorKind::DeviceMismatch) when domain or completion queue are of another device;
    /// [`TooLarge`](ErrorKind::TooLarge) for a depth above the device's or more than the completion queue has room for;
    /// [`PeerGone`](ErrorKind::PeerGone) for a request whose peer has given up; `ENOMEM`.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_qp(&self, pd: &ProtectionDomain, init: &QueuePairInit) -> Result<QueuePair> {
        qp::create(&self.handle, pd, init)
    }

    /// The device that the id is bound to.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) when it is bound to none: new, or listening on every address.
    pub fn context(&self) -> Result<Context> {
        anchor::context_of(&self.handle)
    }

    /// The id's own address; the port is the real one, also when port 0 was asked for.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.handle.view().local
    }

    /// The peer's address.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.handle.view().peer
    }

    /// The depths that both sides have agreed on; `None` until the connection was answered.
    #[must_use]
    pub fn negotiated(&self) -> Option<Negotiated> {
        self.handle.view().negotiated
    }

    /// The raw id, valid while this handle is. Calls on it bypass the locks that keep the library from crashing.
    #[must_use]
    pub fn as_raw(&self) -> *mut rdma_cm_id {
        self.handle.raw()
    }

    /// Whether there is a queue pair on the id, whose lock the caller holds.
    pub(super) fn has_qp(&self) -> bool {
        // SAFETY: the id is alive, and the lock that the caller holds protects this field.
        let qp = unsafe { (*self.as_raw()).qp };
        !qp.is_null()
    }

    /// Checks that the id is of the datagram service, or of the connected one.
    pub(super) fn expect_service(&self, op: &'static str, datagram: bool) -> Result<()> {
        match (datagram, self.handle.is_datagram()) {
            (true, false) => Err(Error::state(
                op,
                "a datagram id (`CmId::new_datagram`)",
                "this one is for connections",
            )),
            (false, true) => Err(Error::state(
                op,
                "an id for connections (`CmId::new`)",
                "this one is for datagrams",
            )),
            _ => Ok(()),
        }
    }

    /// Checks the phase and gives it.
    pub(super) fn expect(
        &self,
        op: &'static str,
        needed: &'static str,
        good: impl FnOnce(Phase) -> bool,
    ) -> Result<Phase> {
        let phase = self.handle.phase().get();
        if good(phase) {
            return Ok(phase);
        }
        if phase == Phase::Removed {
            return Err(Error::plain(
                op,
                ErrorKind::DeviceRemoved,
                "the RDMA device was removed",
            ));
        }
        Err(Error::state(op, needed, phase.text()).at(self.local_addr(), self.peer_addr()))
    }

    /// The error of a call on this id that left `errno`.
    pub(super) fn error_here(&self, op: &'static str, errno: i32) -> Error {
        Error::os(op, errno).at(self.local_addr(), self.peer_addr())
    }
}

/// A time-out as C wants it: in milliseconds, rounded up, as long as an `int` holds at most.
fn milliseconds(timeout: Duration) -> i32 {
    let millis = timeout.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_round_up_and_never_wrap() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_micros(1500)), 2);
        assert_eq!(milliseconds(Duration::from_secs(3)), 3000);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}

#![expect(unsafe_code, reason = "calls librdmacm on an id")]

use std::fmt;
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Weak};

use rdma_sys::{rdma_cm_id, rdma_port_space};

use super::addr::CAddr;
use super::anchor;
use super::channel::EventChannel;
use super::handle::{Handle, RawId, Token};
use super::param::Negotiated;
use super::phase::Phase;
use super::qp;
use crate::error::{Error, ErrorKind, Result, errno_of_rdma, pointer_of};
use crate::verbs::{Context, DatagramPair, ProtectionDomain, QueuePair, QueuePairInit};

/// A communication identifier (`rdma_cm_id`): the connection manager's socket.
///
/// It is a listener after [`listen`](Self::listen), a client after [`resolve_addr`](Self::resolve_addr), and one end of a
/// connection after connect or accept. What the calls start is reported as events on its [`EventChannel`]; each call says
/// which event follows. A method called in the wrong phase returns [`ErrorKind::State`] and does not call C.
///
/// The id is destroyed when both this and its queue pair are dropped: then an established connection ends, and a listener
/// stops listening. (With connection requests of a listener unanswered, a thread does it: its port is free soon, not at once.)
///
/// Over iWARP, [`connect`](Self::connect) waits in the kernel for TCP, and with it whoever needs the id meanwhile: the end of
/// its queue pair, or the reader of an event that takes the connection down.
#[doc(alias = "rdma_cm_id")]
#[doc(alias = "rdma_destroy_id")]
pub struct CmId {
    handle: Arc<Handle>,
}

/// An id that is not kept alive.
#[derive(Clone)]
pub(crate) struct WeakId(Weak<Handle>);

impl WeakId {
    /// The id, if it is still there; it is not destroyed as long as this is.
    pub(crate) fn upgrade(&self) -> Option<CmId> {
        self.0.upgrade().map(CmId::from_handle)
    }
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
    #[doc(alias = "rdma_port_space")]
    #[doc(alias = "RDMA_PS_TCP")]
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
    #[doc(alias = "rdma_port_space")]
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

    pub(crate) fn downgrade(&self) -> WeakId {
        WeakId(Arc::downgrade(&self.handle))
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
    /// [`AddrInUse`](ErrorKind::AddrInUse): the port is taken (`EADDRINUSE`, or `EADDRNOTAVAIL` where one of the two addresses is
    /// unspecified); [`AddrNotAvailable`](ErrorKind::AddrNotAvailable): not an address of this machine; `ENODEV`: no RDMA
    /// device has it.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_addr(&self, addr: SocketAddr) -> Result<()> {
        const OP: &str = "rdma_bind_addr";
        let control = self.handle.lock();
        self.expect(OP, "an id that was just made", |phase| phase == Phase::Idle)?;
        let c_addr = CAddr::new(addr);
        // SAFETY: `rdma_bind_addr` wants an id and an address that it reads during the call. No event of an id in this phase
        // can come, so nobody else touches what it writes into the id.
        let returned = unsafe { rdma_sys::rdma_bind_addr(self.as_raw(), c_addr.as_ptr()) };
        errno_of_rdma(returned).map_err(|errno| {
            let error = if errno == libc::EADDRNOTAVAIL && is_here(&control.channel, addr) {
                // So the kernel reports a port that another address has, or the unspecified one.
                Error::os_as(OP, errno, ErrorKind::AddrInUse)
            } else {
                Error::os(OP, errno)
            };
            error.at(Some(addr), None)
        })?;
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
            phase != Phase::Listening && phase != Phase::Removed
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
            // What was kept for the readers of the old channel is for those of the new one.
            let kept = old.remove(self.token());
            new.insert(&self.handle);
            if !kept.is_empty() {
                new.append(kept);
                control.channel.show_kept(&old);
                channel.show_kept(&new);
            }
        }
        drop((old, new));
        result.map_err(|errno| self.error_here(OP, errno))?;
        channel.look_again();
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
    /// Calls `rdma_create_qp_ex`, so that a [`Batch`](crate::Batch) can be posted by calls, and where the provider cannot,
    /// `rdma_create_qp` ([man 3](https://man7.org/linux/man-pages/man3/rdma_create_qp.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`DeviceMismatch`](ErrorKind::DeviceMismatch) when domain or completion queue are of another device;
    /// [`TooLarge`](ErrorKind::TooLarge) for a depth above the device's or more than the completion queue has room for;
    /// [`PeerGone`](ErrorKind::PeerGone) for a request whose peer has given up; `ENOMEM`.
    #[doc(alias = "rdma_create_qp")]
    #[doc(alias = "rdma_create_qp_ex")]
    pub fn create_qp(&self, pd: &ProtectionDomain, init: &QueuePairInit) -> Result<QueuePair> {
        qp::create(&self.handle, pd, init)
    }

    /// Makes the queue pair of a datagram id, in `pd`: ready to send and receive, with the key [`UDP_QKEY`](super::UDP_QKEY).
    ///
    /// For an id that has a device and no queue pair. It is attached to the [groups](super::Membership) that the id has joined
    /// and will join.
    ///
    /// Calls `rdma_create_qp` ([man 3](https://man7.org/linux/man-pages/man3/rdma_create_qp.3.html)), and `ibv_attach_mcast` for
    /// groups that are joined already. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`create_qp`](Self::create_qp); [`Unsupported`](ErrorKind::Unsupported) over iWARP, and with a shared receive queue.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_datagram_qp(
        &self,
        pd: &ProtectionDomain,
        init: &QueuePairInit,
    ) -> Result<DatagramPair> {
        qp::create_datagram(&self.handle, pd, init)
    }

    /// The device that the id is bound to: C's `id->verbs`.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) when it is bound to none: new, or listening on every address. What `rdma_create_id`
    /// and `ibv_query_device_ex` report when the device is used for the first time.
    #[doc(alias = "verbs")]
    pub fn context(&self) -> Result<Context> {
        self.context_for("rdma_cm_id.verbs")
    }

    /// As [`context`](Self::context), for the call `op`.
    pub(super) fn context_for(&self, op: &'static str) -> Result<Context> {
        anchor::context_of(op, &self.handle)
    }

    /// The id's own address; the port is the real one, also when port 0 was asked for.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    #[doc(alias = "rdma_addr")]
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.handle.view().local
    }

    /// The peer's address.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    #[doc(alias = "rdma_addr")]
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.handle.view().peer
    }

    /// The port of the id's device that leads to the peer, or that the id is bound to; `None` when it is bound to none.
    #[must_use]
    pub fn port_num(&self) -> Option<u8> {
        let view = self.handle.view();
        (view.verbs.is_some() && view.port != 0).then_some(view.port)
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

    /// Whether the id's device is gone.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.handle.phase().get() == Phase::Removed
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
        if matches!(errno, libc::ENXIO | libc::EIO) {
            // The device is gone, and this id has got no event of it: a request that is not accepted gets none.
            self.handle.phase().advance(Phase::Removed);
        }
        Error::os(op, errno).at(self.local_addr(), self.peer_addr())
    }
}

/// Whether an address could be bound with another port.
fn is_here(channel: &EventChannel, mut addr: SocketAddr) -> bool {
    if addr.port() == 0 {
        return false;
    }
    addr.set_port(0);
    addr.ip().is_unspecified()
        || CmId::new(channel).is_ok_and(|probe| probe.bind_addr(addr).is_ok())
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

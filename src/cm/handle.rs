#![expect(unsafe_code, reason = "owns a pointer to an rdma_cm_id")]

use std::fmt;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rdma_sys::{ibv_context, ibv_qp, ibv_qp_attr, ibv_qp_state, ibv_transport_type, rdma_cm_id};

use super::addr;
use super::anchor;
use super::channel::EventChannel;
use super::event::EventKind;
use super::group::Groups;
use super::listen::{Ending, Requests};
use super::param::Negotiated;
use super::phase::{Phase, PhaseCell};
use crate::error::errno_of_rdma;
use crate::verbs::{self, Standing};

/// The number by which events name an id. No two ids of a process ever have the same.
///
/// It stands where C has `id->context`, a pointer of the program's own, which this crate keeps for itself. What belongs to a
/// connection goes into a `HashMap<Token, _>`, filled with [`CmId::token`](super::CmId::token) or
/// [`ConnRequest::token`](super::ConnRequest::token) and asked with that of the [`Event`](super::Event). In the same way
/// completions name their pair by `qp_num`, and asynchronous events a queue by its [`QueueToken`](crate::QueueToken).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(usize);

impl Token {
    /// A number that was never used before.
    pub(super) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number as `rdma_cm_id::context`: no pointer, nobody follows it.
    pub(super) fn to_context(self) -> *mut libc::c_void {
        ptr::without_provenance_mut(self.0)
    }

    /// The number that is the context of `id`.
    ///
    /// # Safety
    ///
    /// `id` is alive.
    pub(super) unsafe fn of(id: *const rdma_cm_id) -> Self {
        // SAFETY: the caller says that the id is alive. Its context is written once, before events of it are read.
        Self::from_context(unsafe { (*id).context })
    }

    /// The number that was given as a context.
    pub(super) fn from_context(context: *const libc::c_void) -> Self {
        Self(context.addr())
    }
}

/// A pointer to an id, on its way to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawId(pub(super) NonNull<rdma_cm_id>);

// SAFETY: librdmacm lets every thread use an id; who may do so when is up to the handle.
unsafe impl Send for RawId {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawId {}

impl RawId {
    pub(super) fn as_ptr(self) -> *mut rdma_cm_id {
        self.0.as_ptr()
    }

    /// Answers a request to a listener that is gone: as for [`destroy`](Self::destroy), of its id, which is known to nobody else.
    pub(super) fn reject(self) {
        // SAFETY: `rdma_reject` wants the id of a request, as the caller says. Its failure means that the peer has gone.
        let _ = unsafe { rdma_sys::rdma_reject(self.as_ptr(), ptr::null(), 0) };
        self.destroy();
    }

    /// Destroys the id: the owner's last act.
    pub(super) fn destroy(self) {
        // SAFETY: `rdma_destroy_id` wants an id without a queue pair and waits for its events to be acknowledged: a queue pair
        // holds a share of the handle, so there is none; events are acknowledged in the gate, and those of requests are the
        // reason for `Requests::end`.
        let returned = unsafe { rdma_sys::rdma_destroy_id(self.as_ptr()) };
        // It fails, and leaks the id, when the channel's descriptor is closed, which `EventChannel` does not allow.
        debug_assert!(
            errno_of_rdma(returned).is_ok() || std::thread::panicking(),
            "rdma_destroy_id: {:?}",
            errno_of_rdma(returned)
        );
    }
}

/// What is shared by everybody who holds an id: its [`CmId`](super::CmId), its queue pair, and for a moment the reader of an
/// event.
///
/// # Invariants
///
/// `raw` is an id that nobody else destroys. Its `context` is `token`. While this is alive it is in the table of `channel`.
/// `raw->qp` is read with `control` or the channel's gate locked. It is written with both locked; for the making of the queue
/// pair of a connected id, whose events do not touch it before, with `control` alone.
pub(super) struct Handle {
    raw: RawId,
    token: Token,
    datagram: bool,
    control: Mutex<Control>,
    phase: PhaseCell,
    /// What the id's queue pair is told about its connection.
    standing: Standing,
    /// See [`has_ended`](Self::has_ended).
    ended: AtomicBool,
    view: Mutex<View>,
    rare: OnceLock<Box<Rare>>,
}

/// What most ids never have.
#[derive(Default)]
struct Rare {
    /// A listener's.
    requests: Requests,
    /// The multicast groups that the id is in.
    groups: Groups,
}

/// What the id's own lock protects: the channel, and in C everything that reads `id->qp`.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) channel: EventChannel,
    /// The queue pair of this id that librdmacm does not know, while it is alive.
    pub(super) external: Option<RawQp>,
}

/// A pointer to a queue pair, for whoever holds the id's lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawQp(pub(super) NonNull<ibv_qp>);

// SAFETY: libibverbs lets every thread use a queue pair; the lock that this is kept behind says until when.
unsafe impl Send for RawQp {}

/// What the library wrote into the id while it read an event, copied, so that nobody reads the C structure meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub(super) verbs: Option<Verbs>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) port: u8,
}

/// The device of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verbs(pub(super) NonNull<ibv_context>);

// SAFETY: an address that is compared, and given to `Context::from_raw` while an id keeps the device open.
unsafe impl Send for Verbs {}
// SAFETY: as for `Send`.
unsafe impl Sync for Verbs {}

impl Handle {
    /// Takes over `raw`, whose context is `token`. The caller puts it into the channel's table.
    pub(super) fn new(
        raw: RawId,
        token: Token,
        datagram: bool,
        channel: EventChannel,
        phase: Phase,
    ) -> Self {
        // INVARIANT: the two callers have just made `raw`, or read it from a request.
        Self {
            raw,
            token,
            datagram,
            control: Mutex::new(Control {
                channel,
                external: None,
            }),
            phase: PhaseCell::new(phase),
            standing: Standing::default(),
            ended: AtomicBool::new(false),
            view: Mutex::new(View::default()),
            rare: OnceLock::new(),
        }
    }

    pub(super) fn raw(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// Whether the id is of the datagram service (`RDMA_PS_UDP`), and not of the connected one.
    pub(super) fn is_datagram(&self) -> bool {
        self.datagram
    }

    pub(super) fn phase(&self) -> &PhaseCell {
        &self.phase
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The queue pair may send from now on.
    pub(super) fn set_connected(&self) {
        let negotiated = self.view().negotiated;
        let reads = negotiated.map_or(0, |negotiated| negotiated.initiator_depth);
        self.standing.connect(reads);
    }

    /// Whether the end of the connection was read and followed up: nothing is left for a disconnect to do. Changed with the
    /// id's lock held.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> &Requests {
        &self.rare().requests
    }

    pub(super) fn groups(&self) -> &Groups {
        &self.rare().groups
    }

    /// The groups, if the id ever was in one.
    pub(super) fn known_groups(&self) -> Option<&Groups> {
        self.rare.get().map(|rare| &rare.groups)
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// The id's own lock. Order: this, then a gate. A reader takes it only outside the gate.
    pub(super) fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn view(&self) -> View {
        *self.lock_view()
    }

    fn lock_view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_negotiated(&self, negotiated: Negotiated) {
        self.lock_view().negotiated = Some(negotiated);
    }

    /// Copies device and addresses from the id.
    ///
    /// # Safety
    ///
    /// Nobody writes to them meanwhile: the channel's gate is held, or no event of the id can come.
    pub(super) unsafe fn refresh_view(&self) {
        // SAFETY: the id is alive (the invariant), and the caller says that nobody writes to this field.
        let verbs = unsafe { (*self.raw()).verbs };
        // SAFETY: as above.
        let route = unsafe { &(*self.raw()).route.addr };
        // SAFETY: every member of the union is plain bytes, zeroed when the id was made.
        let local = addr::from_storage(unsafe { &route.__bindgen_anon_1.src_storage });
        // SAFETY: as above.
        let peer = addr::from_storage(unsafe { &route.__bindgen_anon_2.dst_storage });
        // SAFETY: as above.
        let port = unsafe { (*self.raw()).port_num };
        let mut view = self.lock_view();
        view.port = port;
        view.verbs = NonNull::new(verbs).map(Verbs);
        view.local = local;
        // Of an id that has no peer the kernel says that its address is zero.
        view.peer = peer.filter(|peer| peer.port() != 0 || !peer.ip().is_unspecified());
    }

    /// What an event means for the id, done inside the gate.
    pub(super) fn note(&self, kind: &EventKind) {
        match kind {
            EventKind::AddrResolved | EventKind::RouteResolved => {
                // SAFETY: the caller holds the gate of the id's channel, so no other event of the id is read meanwhile, and
                // `rdma_resolve_addr`, which also writes here, takes the gate.
                unsafe { self.refresh_view() };
            }
            EventKind::ConnectResponse(answer) | EventKind::Established(answer)
                if self.view().negotiated.is_none() =>
            {
                self.set_negotiated(answer.negotiated());
            }
            EventKind::MulticastJoined { group, destination } => {
                // SAFETY: the id is alive. The queue pair of a datagram id is made and destroyed inside the gate, which the
                // caller holds.
                let has_qp = unsafe { !(*self.raw()).qp.is_null() };
                self.groups().joined(*group, destination, has_qp);
            }
            // The kernel has bound the id, if nobody had, and can be asked again. Where the library has made the failure out of
            // a success, the kernel refuses.
            EventKind::AddrError(_) => self.phase.undo(Phase::ResolvingAddr, Phase::Bound),
            EventKind::RouteError(_) => {
                self.phase.undo(Phase::ResolvingRoute, Phase::AddrResolved);
            }
            _ => {}
        }
        if matches!(kind, EventKind::Established(_)) {
            self.set_connected();
        }
        if let Some(phase) = kind.phase() {
            self.phase.advance(phase);
        }
    }

    /// What an event asks to be done, outside the gate and before the program sees it.
    ///
    /// The library does not move a queue pair to its error state when the connection goes down, so what is posted would never
    /// be flushed; and the peer waits for an answer to its disconnect.
    pub(super) fn follow_up(&self, kind: &EventKind) {
        match kind {
            EventKind::Disconnected(_) => {
                let control = self.lock();
                if !self.disconnect_flushes() {
                    self.qp_to_error();
                }
                external_to_error(&control);
                // SAFETY: `rdma_disconnect` wants an id with a device, which one that was connected has; it reads `id->qp`,
                // which the lock held here protects.
                let returned = unsafe { rdma_sys::rdma_disconnect(self.raw()) };
                // Another failure has not told the peer: that is left for a disconnect to do, or for the id's end.
                self.ended
                    .store(is_down(errno_of_rdma(returned)), Ordering::Relaxed);
                drop(control);
            }
            EventKind::DeviceRemoval => {
                let control = self.lock();
                self.qp_to_error();
                external_to_error(&control);
                drop(control);
            }
            // The library has done this to its own.
            EventKind::Rejected(_) => external_to_error(&self.lock()),
            _ => {}
        }
    }

    /// Whether the device is gone, and nobody has read the event that says so.
    ///
    /// Without that, librdmacm would keep the device open when the id has ended, and its removal would wait.
    fn has_lost_its_device(&self) -> bool {
        let verbs = self.view().verbs;
        if verbs.is_none_or(anchor::is_anchored) {
            return false;
        }
        // The kernel has let go of an id whose device is gone, and says so for every call.
        self.init_qp_attr(ibv_qp_state::IBV_QPS_INIT).err() == Some(libc::ENXIO)
    }

    /// Asks the kernel what a queue pair of this id needs to be moved to `qp_state`: the attributes, and the mask that names them;
    /// or else the errno.
    pub(super) fn init_qp_attr(&self, qp_state: ibv_qp_state) -> Result<(ibv_qp_attr, i32), i32> {
        let mut attr = ibv_qp_attr {
            qp_state,
            ..ibv_qp_attr::default()
        };
        let mut mask = 0;
        // SAFETY: `rdma_init_qp_attr` wants an id, a state in the attributes, and room for its answers.
        let returned =
            unsafe { rdma_sys::rdma_init_qp_attr(self.raw(), &raw mut attr, &raw mut mask) };
        errno_of_rdma(returned).map(|()| (attr, mask))
    }

    /// Whether `rdma_disconnect` itself moves the queue pair on the id to its error state, before anything else: so it does over
    /// InfiniBand and RoCE. Over iWARP it moves it to another state.
    fn disconnect_flushes(&self) -> bool {
        self.view().verbs.is_some_and(|Verbs(verbs)| {
            // SAFETY: the device of an id is open while the id is bound to it, and its `device` is set from open to close.
            let device = unsafe { (*verbs.as_ptr()).device };
            // SAFETY: as above: the device of an open context stays allocated.
            let transport = unsafe { (*device).transport_type };
            transport == ibv_transport_type::IBV_TRANSPORT_IB
        })
    }

    /// Moves the queue pair on the id, if there is one, to its error state. The id's lock is held.
    fn qp_to_error(&self) {
        // SAFETY: the id is alive, and the lock that the caller holds protects this field.
        if let Some(qp) = NonNull::new(unsafe { (*self.raw()).qp }) {
            // A device that is gone may refuse; there is nothing left to flush then.
            // SAFETY: the lock is held.
            let _ = unsafe { modify_to_error(qp) };
        }
    }
}

/// Whether what `rdma_disconnect` gave says that the connection is down: by the call, or already.
pub(super) fn is_down(result: Result<(), i32>) -> bool {
    matches!(result, Ok(()) | Err(libc::EINVAL))
}

/// Moves the external queue pair, if there is one, to its error state.
pub(super) fn external_to_error(control: &Control) {
    if let Some(RawQp(qp)) = control.external {
        // A device that is gone may refuse; there is nothing left to flush then.
        // SAFETY: the id's lock is held: whoever has its `Control` has locked it.
        let _ = unsafe { modify_to_error(qp) };
    }
}

/// Moves `qp` to its error state.
///
/// # Safety
///
/// The lock of the id that it belongs to is held, which keeps it from being destroyed.
unsafe fn modify_to_error(qp: NonNull<ibv_qp>) -> i32 {
    let (mut attr, mask) = verbs::error_state();
    // SAFETY: alive, by the caller's promise; the mask comes with the attributes.
    unsafe { verbs::modify_qp(qp, &mut attr, mask) }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        f.debug_struct("CmId")
            .field("token", &self.token.0)
            .field("phase", &self.phase.get())
            .field("local", &view.local)
            .field("peer", &view.peer)
            .finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let control = self.control.get_mut();
        let channel = control
            .unwrap_or_else(PoisonError::into_inner)
            .channel
            .clone();
        // From here on no event finds the handle, and no new request is counted.
        channel.forget(self.token);
        let ending = Ending {
            id: self.raw,
            device_removed: self.phase.get() == Phase::Removed || self.has_lost_its_device(),
            channel,
        };
        match self.rare.get() {
            Some(rare) => rare.requests.end(ending),
            None => ending.destroy(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_takes_little_memory() {
        // Two counts come before it in an `Arc`, and eight bytes of the allocator's.
        assert_eq!(16 + size_of::<Handle>() + 8, 176);
    }
}

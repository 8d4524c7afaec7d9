#![expect(unsafe_code, reason = "owns a pointer to an rdma_event_channel")]

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma_sys::{rdma_cm_event, rdma_cm_event_type, rdma_event_channel};
use rustix::io::Errno;

use super::event::{Event, EventKind};
use super::gate::{Aside, Gate, Kept};
use super::handle::{Handle, RawId, Token};
use super::id::CmId;
use super::lookup::LookupRequest;
use super::phase::Phase;
use super::request::ConnRequest;
use super::unacked::Unacked;
use crate::error::{Error, ErrorKind, Result, errno_of_rdma, last_errno, pointer_of};
use crate::os::{self, Watch};

/// Where events of the connection manager are read (`rdma_event_channel`).
///
/// Several ids may share one, and several threads may wait on it: each event goes to one of them. Ids keep their channel
/// alive. Cloning shares it.
#[doc(alias = "rdma_event_channel")]
#[doc(alias = "rdma_destroy_event_channel")]
#[derive(Clone)]
pub struct EventChannel {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// The descriptor of `raw` is non-blocking, and stays so; nobody else reads from it.
///
/// An event is read, mapped to its handle, copied and acknowledged with `gate` locked. Whatever frees or replaces what the
/// library touches meanwhile takes it too.
struct Inner {
    gate: Mutex<Gate>,
    /// Watches the channel: dropped before it.
    watch: Watch,
    raw: RawChannel,
}

/// A channel, which nobody else destroys: its descriptor is open while this is alive.
struct RawChannel(NonNull<rdma_event_channel>);

// SAFETY: the pointer is only handed to librdmacm, which lets every thread use a channel.
unsafe impl Send for RawChannel {}
// SAFETY: as for `Send`; the C structure's `fd` is set once.
unsafe impl Sync for RawChannel {}

/// What became of an event that was read.
enum Read {
    /// It is the program's. The handle is dropped outside the gate.
    Event(Event, Arc<Handle>),
    /// It was of an id that is gone.
    Stale,
    /// It was a request to a listener that is gone.
    Orphan(RawId),
}

/// What a reader takes.
enum Taken {
    Read(Read),
    Kept(Kept),
}

impl EventChannel {
    /// Opens a channel.
    ///
    /// Calls `rdma_create_event_channel`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_create_event_channel.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`NoDevice`](ErrorKind::NoDevice) when the machine has no RDMA device, or `/dev/infiniband/rdma_cm` is missing or not
    /// this user's to open; `EMFILE` when the process has no file descriptor left.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self> {
        const OP: &str = "rdma_create_event_channel";
        // SAFETY: `rdma_create_event_channel` wants nothing.
        let raw = unsafe { rdma_sys::rdma_create_event_channel() };
        let raw = pointer_of(raw).map_err(|errno| match errno {
            // A node that may not be opened is reported as ENOENT too; ENOSYS is a kernel without RDMA.
            libc::ENOENT | libc::ENOSYS => Error::os_as(OP, errno, ErrorKind::NoDevice),
            errno => Error::os(OP, errno),
        })?;
        let raw = RawChannel(raw);
        rustix::io::ioctl_fionbio(raw.as_fd(), true).map_err(|errno| os_error(OP, errno))?;
        let watch = Watch::new(raw.as_fd())?;
        // INVARIANT: just made, and made non-blocking above.
        Ok(Self {
            inner: Arc::new(Inner {
                gate: Mutex::default(),
                watch,
                raw,
            }),
        })
    }

    /// Takes the next event; `None` when there is none now, or a [`wake`](Self::wake) was there to be taken.
    ///
    /// Calls `rdma_get_cm_event` and, for all but a connection request, `rdma_ack_cm_event`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)). On a lost connection it also moves the
    /// queue pair to its error state and answers the peer, as C programs must do by hand. Blocks: no.
    ///
    /// # Errors
    ///
    /// What the kernel reports; the channel cannot be used any more then.
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn try_event(&self) -> Result<Option<Event>> {
        let event = self.next_event()?;
        if event.is_none() {
            self.take_wake();
        }
        Ok(event)
    }

    /// Wakes one thread that waits for an event, or the next one that will: its wait gives `None`.
    ///
    /// Each call wakes one. Blocks: no.
    pub fn wake(&self) {
        self.inner.watch.wake();
    }

    /// Takes one wake, if one is pending.
    fn take_wake(&self) -> bool {
        self.inner.watch.take_wake()
    }

    fn next_event(&self) -> Result<Option<Event>> {
        loop {
            let taken = {
                let mut gate = self.gate();
                self.take(&mut gate)?
            };
            match taken {
                None => return Ok(None),
                Some(Taken::Read(Read::Stale)) => {}
                Some(Taken::Read(Read::Orphan(child))) => child.reject(),
                Some(Taken::Read(Read::Event(event, handle))) => {
                    handle.follow_up(&event.kind);
                    return Ok(Some(event));
                }
                Some(Taken::Kept(kept)) => {
                    // Its id may have gone since.
                    if let Some(handle) = kept.handle.upgrade() {
                        handle.follow_up(&kept.event.kind);
                        return Ok(Some(kept.event));
                    }
                }
            }
        }
    }

    /// Waits for the next event, at most for `patience`; `None` waits for ever. Gives `None` when time has run out, or when
    /// another thread has called [`wake`](Self::wake).
    ///
    /// Blocks: yes, but never inside the library. A signal does not end the wait.
    ///
    /// # Errors
    ///
    /// As for [`try_event`](Self::try_event).
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<Event>> {
        self.wait_until(os::deadline_after(patience))
    }

    pub(crate) fn wait_until(&self, deadline: os::Deadline) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.next_event()? {
                return Ok(Some(event));
            }
            if self.take_wake() {
                return Ok(None);
            }
            // Another reader may take the event that woke this one: then the wait goes on.
            let [ready] = os::wait_readable([self.as_fd()], deadline)?;
            if !ready {
                return Ok(None);
            }
        }
    }

    /// Has those who watch the channel look again: the kernel wakes nobody for events that came with an id from another
    /// channel.
    pub(super) fn look_again(&self) {
        self.inner.watch.look_again(self.inner.raw.as_fd());
    }

    /// Whether both are the same channel.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn raw(&self) -> *mut rdma_event_channel {
        self.inner.raw.0.as_ptr()
    }

    /// Locks the gate. Order: an id's lock, then the gate. Nothing that may be the last share of a handle is dropped inside.
    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.inner
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The gates of two channels, always in the same order.
    pub(super) fn both_gates<'c>(
        &'c self,
        other: &'c Self,
    ) -> (MutexGuard<'c, Gate>, MutexGuard<'c, Gate>) {
        if Arc::as_ptr(&self.inner) < Arc::as_ptr(&other.inner) {
            let first = self.gate();
            (first, other.gate())
        } else {
            let first = other.gate();
            (self.gate(), first)
        }
    }

    /// Puts a handle into the table.
    pub(super) fn register(&self, handle: &Arc<Handle>) {
        self.gate().insert(handle);
    }

    /// Takes a handle out of the table: its events find nobody from now on, and what was kept for it is dropped.
    pub(super) fn forget(&self, token: Token) {
        let mut gate = self.gate();
        let kept = gate.remove(token);
        if !kept.is_empty() {
            self.show_kept(&gate);
        }
        drop(gate);
        drop(kept);
    }

    /// The next event, inside the gate: one that was kept, or one that is read now.
    fn take(&self, gate: &mut Gate) -> Result<Option<Taken>> {
        if let Some(kept) = gate.take_kept() {
            if !gate.has_kept() {
                self.show_kept(gate);
            }
            return Ok(Some(Taken::Kept(kept)));
        }
        Ok(self.read(gate)?.map(Taken::Read))
    }

    /// Reads all that is queued, inside the gate, and keeps it for the readers.
    ///
    /// For calls that free what a queued event points to.
    pub(super) fn read_ahead(&self, gate: &mut Gate, aside: &mut Aside) -> Result<()> {
        let result = loop {
            match self.read(gate) {
                Ok(None) => break Ok(()),
                Ok(Some(Read::Stale)) => {}
                Ok(Some(Read::Orphan(child))) => aside.orphans.push(child),
                Ok(Some(Read::Event(event, handle))) => {
                    gate.keep(event, &handle);
                    aside.handles.push(handle);
                }
                Err(error) => break Err(error),
            }
        };
        self.show_kept(gate);
        result
    }

    /// Makes the watched descriptor readable while events are kept, which the channel's own does not show.
    pub(super) fn show_kept(&self, gate: &Gate) {
        self.inner.watch.keep_readable(gate.has_kept());
    }

    /// Reads one event, inside the gate.
    fn read(&self, gate: &mut Gate) -> Result<Option<Read>> {
        const OP: &str = "rdma_get_cm_event";
        let mut raw: *mut rdma_cm_event = ptr::null_mut();
        let errno = loop {
            // SAFETY: `rdma_get_cm_event` wants a channel, and that nobody destroys an id, or what hangs on it, while it reads
            // an event of it: those who do hold the gate, which is held here.
            let returned = unsafe { rdma_sys::rdma_get_cm_event(self.raw(), &raw mut raw) };
            let left = last_errno();
            match errno_of_rdma(returned) {
                Ok(()) => break left,
                Err(errno) if errno == Errno::INTR.raw_os_error() => {}
                Err(errno) if errno == Errno::AGAIN.raw_os_error() => return Ok(None),
                Err(errno) => return Err(Error::os(OP, errno)),
            }
        };
        let Some(raw) = NonNull::new(raw) else {
            return Err(Error::plain(
                OP,
                ErrorKind::Other,
                "the library gave no event",
            ));
        };
        // SAFETY: the library has just handed out the event, and it is acknowledged below or by `Unacked`.
        let event = unsafe { raw.as_ref() };
        if event.event == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            return Ok(Some(self.read_request(gate, raw)));
        }
        // SAFETY: the id of an event that is not acknowledged is alive: `rdma_destroy_id` waits for the ack.
        let token = unsafe { Token::of(event.id) };
        let read = match gate.find(token) {
            None => Read::Stale,
            Some(handle) => {
                let group =
                    EventKind::group_number(event).and_then(|n| handle.known_groups()?.find(n));
                // SAFETY: just read, and not acknowledged.
                let kind = unsafe { EventKind::copy_of(event, errno, handle.is_datagram(), group) };
                // SAFETY: the id is alive, as above, and the gate is held.
                let has_device = unsafe { !(*event.id).verbs.is_null() };
                let kind = kind.or_no_device(has_device);
                handle.note(&kind);
                Read::Event(Event { token, kind }, handle)
            }
        };
        // SAFETY: `rdma_ack_cm_event` wants an event that was not acknowledged; everything was copied from it.
        unsafe { rdma_sys::rdma_ack_cm_event(raw.as_ptr()) };
        Ok(Some(read))
    }

    /// Makes a request of a CONNECT_REQUEST event, inside the gate.
    fn read_request(&self, gate: &mut Gate, raw: NonNull<rdma_cm_event>) -> Read {
        // SAFETY: the event is not acknowledged.
        let event = unsafe { raw.as_ref() };
        let Some(child) = NonNull::new(event.id).map(RawId) else {
            // SAFETY: as in `read`: not acknowledged, and not used after this.
            unsafe { rdma_sys::rdma_ack_cm_event(raw.as_ptr()) };
            return Read::Stale;
        };
        // SAFETY: the listener of a request that is not acknowledged is alive: `rdma_destroy_id` waits for the ack.
        let Some(listener) = gate.find(unsafe { Token::of(event.listen_id) }) else {
            // SAFETY: as above. The ack comes first: the listener's destruction may be waiting for it.
            unsafe { rdma_sys::rdma_ack_cm_event(raw.as_ptr()) };
            return Read::Orphan(child);
        };
        let token = Token::new();
        // The child has inherited its listener's number: give it its own before anything else can happen to it.
        // SAFETY: the child is alive and known to nobody else; the gate keeps other readers from its events.
        unsafe { (*child.as_ptr()).context = token.to_context() };
        let datagram = listener.is_datagram();
        let handle = Handle::new(child, token, datagram, self.clone(), Phase::Requested);
        let handle = Arc::new(handle);
        // SAFETY: the gate is held.
        unsafe { handle.refresh_view() };
        gate.insert(&handle);
        // SAFETY: a request, just read, counted on its listener, acknowledged by nobody else.
        let unacked = unsafe { Unacked::new(raw, listener.requests().count()) };
        let id = CmId::from_handle(handle);
        let event = Event {
            token: listener.token(),
            kind: if datagram {
                EventKind::LookupRequest(LookupRequest::new(unacked, id))
            } else {
                EventKind::ConnectRequest(ConnRequest::new(unacked, id))
            },
        };
        Read::Event(event, listener)
    }
}

fn os_error(op: &'static str, errno: Errno) -> Error {
    Error::os(op, errno.raw_os_error())
}

impl AsFd for RawChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a channel is a readable C structure whose `fd` is set once.
        let fd = unsafe { self.0.as_ref() }.fd;
        // SAFETY: the descriptor stays open until the channel is destroyed, which `self` does at its end.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: `rdma_destroy_event_channel` wants a channel without ids, without events that are not acknowledged and
        // without readers: handles and requests hold a share of the `EventChannel`, and its last share is going.
        unsafe { rdma_sys::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

impl AsFd for EventChannel {
    /// A descriptor that is readable when an event can be taken: for `poll`, `epoll` and async runtimes, never to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.watch.as_fd()
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}

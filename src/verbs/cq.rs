#![expect(unsafe_code, reason = "owns a pointer to an ibv_cq")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{ibv_cq, ibv_wc};
use rustix::event::EventfdFlags;

use super::comp_channel::CompChannel;
use super::context::Context;
use super::mailbox::Mailbox;
use super::pieces::Spread;
use super::poll::Unread;
use super::queue_token::QueueToken;
use super::table::Table;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs, pointer_of};
use crate::os;

/// How many completions one call into the provider takes at most.
pub(super) const BATCH: i32 = 16;

/// A completion queue (`ibv_cq`): where finished work requests are reported.
///
/// This is the polling half: one owner polls it. Queue pairs are made with its [`handle`](Self::handle). The sum of the
/// depths of all queues attached to it is at most its capacity, so it never overflows. The room of a queue pair that has ended
/// comes back once a poll has seen the queue empty after it: a server that makes pairs on a queue must poll it between them.
#[doc(alias = "ibv_cq")]
#[doc(alias = "ibv_destroy_cq")]
#[doc(alias = "ibv_ack_cq_events")]
#[doc(alias = "ibv_destroy_comp_channel")]
pub struct CompletionQueue {
    /// Where the provider puts entries: `room` of them, at least [`BATCH`], from a box.
    pub(super) entries: NonNull<ibv_wc>,
    pub(super) unread: Unread,
    /// Where a run of unsignalled requests is spread out to be taken, and one for the next.
    pub(super) spread_out: Vec<ibv_wc>,
    pub(super) idle: Vec<ibv_wc>,
    pub(super) raw: *mut ibv_cq,
    /// The rings attached.
    pub(super) table: Table,
    pub(super) room: usize,
    pub(super) spread: Spread,
    /// Rings whose queue pair is gone, with their depths: dropped once the queue has been seen empty since.
    pub(super) retiring: Vec<(u32, u32)>,
    /// Whether entries were taken out that are still to be handed out, beside those that are unread.
    pub(super) keeps: bool,
    /// Whether an event may be pending.
    armed: bool,
    pub(super) shared: CqHandle,
}

/// The side of a completion queue that queue pairs are made with. It keeps the queue alive. Cloning shares it.
#[derive(Clone)]
pub struct CqHandle {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// `raw` is a queue of `context`, made with the channel of `events`, that nobody else destroys.
struct Inner {
    raw: NonNull<ibv_cq>,
    token: QueueToken,
    mailbox: Mailbox,
    events: Option<Events>,
    context: Context,
}

/// What tells a poller that sleeps.
#[derive(Debug)]
struct Events {
    channel: CompChannel,
    /// Readable when the channel or the mailbox's bell is. The channel's own descriptor is not given out: an event that
    /// somebody else reads from it is never acknowledged, and the end of the queue waits for that.
    watch: OwnedFd,
}

impl Events {
    /// Makes a channel, and a bell for the mailbox.
    fn new(context: &Context) -> Result<(Self, OwnedFd)> {
        let channel = CompChannel::new(context)?;
        let (watch, bell) = os::eventfd_beside(channel.as_fd(), EventfdFlags::empty())?;
        Ok((Self { channel, watch }, bell))
    }
}

// SAFETY: the pointer is only handed to libibverbs and to the provider, which take the queue's lock.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`; the fields beside the pointer are `Sync`.
unsafe impl Sync for Inner {}

// SAFETY: the entries are this value's own, and plain data; the queue is only handed to the provider, which takes its lock.
unsafe impl Send for CompletionQueue {}
// SAFETY: through `&CompletionQueue` nothing is polled: descriptors and the shared side are all there is.
unsafe impl Sync for CompletionQueue {}

impl Context {
    /// Makes a completion queue with room for at least `cqe` completions, to be polled: as many as all the queues that complete
    /// to it are deep, together. The room of an ended pair counts until a poll has seen the queue empty.
    ///
    /// Calls `ibv_create_cq` ([man 3](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](crate::ErrorKind::TooLarge) above the device's `max_cqe`; `ENOMEM` when there is no room.
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&self, cqe: u32) -> Result<CompletionQueue> {
        CompletionQueue::new(self, cqe, false)
    }

    /// Makes a completion queue that can also be waited on: [`CompletionQueue::wait`].
    ///
    /// Calls `ibv_create_comp_channel` and `ibv_create_cq`. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`create_cq`](Self::create_cq), and `EMFILE` when the process has no file descriptor left.
    #[doc(alias = "ibv_create_comp_channel")]
    #[doc(alias = "ibv_comp_channel")]
    pub fn create_cq_with_channel(&self, cqe: u32) -> Result<CompletionQueue> {
        CompletionQueue::new(self, cqe, true)
    }
}

impl CompletionQueue {
    fn new(context: &Context, cqe: u32, with_channel: bool) -> Result<Self> {
        const OP: &str = "ibv_create_cq";
        let limit = context.limits().max_cqe();
        if cqe > limit {
            return Err(Error::too_large(
                OP,
                "cqe",
                u64::from(cqe),
                u64::from(limit),
                "use several completion queues",
            ));
        }
        let Some(entries) = i32::try_from(cqe).ok().filter(|&entries| entries > 0) else {
            return Err(Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "cqe is 0; a completion queue holds at least one completion",
            ));
        };
        let (events, bell) = match with_channel {
            true => Events::new(context).map(|(events, bell)| (Some(events), Some(bell)))?,
            false => (None, None),
        };
        let raw_channel = events
            .as_ref()
            .map_or(ptr::null_mut(), |events| events.channel.as_raw());
        let token = QueueToken::new();
        let making = context.objects_change();
        // SAFETY: `ibv_create_cq` wants an open device and a channel of it or none; both are kept by the `Inner` below. The
        // context is a number.
        let raw = unsafe {
            rdma_sys::ibv_create_cq(
                context.as_raw(),
                entries,
                token.to_context(),
                raw_channel,
                0,
            )
        };
        let raw = pointer_of(raw).map_err(|errno| Error::os(OP, errno))?;
        drop(making);
        // SAFETY: the queue just made is readable; `cqe` is what was granted.
        let granted = unsafe { (*raw.as_ptr()).cqe };
        // INVARIANT: just made on `context` with the channel of `events`, and known to nobody else.
        let inner = Inner {
            raw,
            token,
            mailbox: Mailbox::new(u32::try_from(granted).unwrap_or(cqe), bell),
            events,
            context: context.clone(),
        };
        let entries = allocate(BATCH as usize);
        Ok(Self {
            entries,
            unread: Unread::none(entries),
            spread_out: Vec::new(),
            idle: Vec::new(),
            raw: raw.as_ptr(),
            table: Table::new(),
            room: BATCH as usize,
            spread: Spread::NONE,
            retiring: Vec::new(),
            keeps: false,
            armed: false,
            shared: CqHandle {
                inner: Arc::new(inner),
            },
        })
    }

    /// The side to make queue pairs with.
    #[must_use]
    pub fn handle(&self) -> CqHandle {
        self.shared.clone()
    }

    /// Waits until a completion can be polled: true, or until `patience` ends: false. `None` waits for ever.
    ///
    /// Arms the queue, looks once more and only then sleeps, so that no completion is missed; reads and acknowledges the
    /// channel's events itself.
    ///
    /// Calls `ibv_req_notify_cq` and `ibv_get_cq_event`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)). Blocks: yes.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) when the queue was made without a channel; what the kernel or the provider reports.
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_req_notify_cq")]
    #[doc(alias = "rdma_get_send_comp")]
    #[doc(alias = "rdma_get_recv_comp")]
    pub fn wait(&mut self, patience: Option<Duration>) -> Result<bool> {
        let deadline = os::deadline_after(patience);
        loop {
            if self.arm()? {
                return Ok(true);
            }
            let Some(watch) = self.event_fd() else {
                return Err(no_channel("ibv_get_cq_event"));
            };
            if os::wait_readable([watch], deadline)? == [false] {
                return self.has_entry();
            }
        }
    }

    /// Asks to be told of the next completion, then looks once more: true when a completion can be polled now, and there is
    /// nothing to wait for.
    ///
    /// After false, [`event_fd`](Self::event_fd) becomes readable with the next completion, or when there is something else for
    /// the queue's owner to do: then arm again, and poll. So an event loop misses nothing:
    ///
    /// ```no_run
    /// # fn run(cq: &mut rdmacm::CompletionQueue, wait: impl Fn(std::os::fd::BorrowedFd<'_>)) -> Result<(), rdmacm::Error> {
    /// loop {
    ///     while let Some(completion) = cq.poll()? {
    ///         println!("{completion:?}");
    ///     }
    ///     if !cq.arm()? {
    ///         // `poll`, `epoll` or an async runtime, beside whatever else there is to wait for.
    ///         wait(cq.event_fd().expect("made with a channel"));
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// Calls `ibv_req_notify_cq`, and `ibv_get_cq_event` for what is pending
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) when the queue was made without a channel; what the kernel or the provider reports.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) -> Result<bool> {
        const OP: &str = "ibv_req_notify_cq";
        if !self.unread.is_empty() {
            return Ok(true);
        }
        let Some(events) = &self.shared.inner.events else {
            return Err(no_channel(OP));
        };
        if self.armed {
            self.shared.mailbox().hear();
            // SAFETY: the channel's only queue is this one.
            unsafe { events.channel.drain() }?;
        }
        self.armed = true;
        // SAFETY: `ibv_req_notify_cq` wants a queue that was made with a channel, which was checked.
        let returned = unsafe { rdma_sys::ibv_req_notify_cq(self.shared.as_raw(), 0) };
        errno_of_verbs(returned).map_err(|errno| Error::os(OP, errno))?;
        self.has_entry()
    }

    /// The descriptor to wait for after [`arm`](Self::arm), never to be read; `None` when the queue was made without a channel.
    #[must_use]
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        let events = self.shared.inner.events.as_ref()?;
        Some(events.watch.as_fd())
    }

    /// Makes room for `wanted` entries, none of which is in use.
    pub(super) fn grow(&mut self, wanted: usize) {
        let entries = allocate(wanted);
        free(std::mem::replace(&mut self.entries, entries), self.room);
        self.room = wanted;
        self.unread = Unread::none(entries);
    }
}

/// Entries for the provider to fill, zeroed.
fn allocate(room: usize) -> NonNull<ibv_wc> {
    let entries: Box<[ibv_wc]> = vec![ibv_wc::default(); room].into();
    NonNull::from(Box::leak(entries)).cast()
}

/// Frees what [`allocate`] gave for the same `room`.
fn free(entries: NonNull<ibv_wc>, room: usize) {
    let entries = NonNull::slice_from_raw_parts(entries, room);
    // SAFETY: the callers own the entries, which came from a box of this length, and give them up.
    drop(unsafe { Box::from_raw(entries.as_ptr()) });
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        free(self.entries, self.room);
    }
}

fn no_channel(op: &'static str) -> Error {
    Error::state(
        op,
        "a completion queue with a channel (`create_cq_with_channel`)",
        "this one was made without",
    )
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.shared.capacity())
            .field("context", self.shared.context())
            .finish_non_exhaustive()
    }
}

impl CqHandle {
    /// The device that the queue is on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// How many completions the queue holds: what was granted, at least what was asked.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.inner.mailbox.capacity()
    }

    /// The number by which [asynchronous events](crate::AsyncEvents) name the queue.
    #[must_use]
    pub fn token(&self) -> QueueToken {
        self.inner.token
    }

    /// The raw queue, valid while this handle is.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_cq {
        self.inner.raw.as_ptr()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.inner.mailbox
    }
}

impl fmt::Debug for CqHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqHandle")
            .field("capacity", &self.capacity())
            .field("context", self.context())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ending = self.context.objects_change();
        // SAFETY: `ibv_destroy_cq` wants a queue that no queue pair uses, and waits for events that are not acknowledged: each
        // queue pair holds a handle, so none is left, and `CompChannel::drain` acknowledges what it reads.
        let returned = unsafe { rdma_sys::ibv_destroy_cq(self.raw.as_ptr()) };
        drop(ending);
        if errno_of_verbs(returned).is_err() {
            // The queue lives on, so what it needs must too.
            std::mem::forget(self.events.take());
            std::mem::forget(self.context.clone());
        }
    }
}

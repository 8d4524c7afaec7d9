#![expect(unsafe_code, reason = "owns a pointer to an ibv_cq")]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_cq, ibv_wc};

use super::context::Context;
use super::mailbox::Mailbox;
use super::notify::Events;
use super::pieces::Spread;
use super::poll::Unread;
use super::queue_token::QueueToken;
use super::table::Table;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs, pointer_of};

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
    pub(super) armed: bool,
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
        let raw_channel = events.as_ref().map_or(ptr::null_mut(), Events::as_raw);
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

    pub(super) fn events(&self) -> Option<&Events> {
        self.inner.events.as_ref()
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

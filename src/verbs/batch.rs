#![expect(unsafe_code, reason = "posts lists of work requests")]

use std::fmt;
use std::marker::PhantomData;
use std::{ptr, slice};

use rdma_sys::ibv_send_wr;

use super::buf::Buf;
use super::op::Op;
use super::refused::Refused;
use super::send_limits::{OP, post_error};
use super::send_queue::SendQueue;
use super::slot::{Held, Kind};
use super::stage::{Inline, Single, Stage};
use super::work::{ATOMIC, Fetch, Work};
use super::wr_list::{Entry, WrList};
use crate::error::Error;

/// Requests that are posted together, with one doorbell.
///
/// How they are posted is the provider's: where it takes each request by a call of its own (`ibv_wr_start` to `ibv_wr_complete`:
/// mlx5, hns, ionic, soft-RoCE), all of them are handed over so when the batch is submitted, else as one list.
///
/// Made by [`SendQueue::batch`]. What is added is on its way with [`submit`](Self::submit); dropped, the batch gives every buffer
/// back to its pool.
#[doc(alias("ibv_qp_ex", "ibv_qp_to_qp_ex", "ibv_wr_abort"))]
#[must_use = "nothing is posted before `submit`"]
pub struct Batch<'q> {
    queue: &'q mut SendQueue,
    /// The entry for the next request: inside the list, which is borrowed, or behind its last one.
    next: *mut Entry,
    /// The first entry, and the end of the list.
    start: *mut Entry,
    end: *mut Entry,
    _list: PhantomData<&'q mut WrList>,
}

// SAFETY: two mutable borrows, one of them as a pointer.
unsafe impl Send for Batch<'_> {}
// SAFETY: through `&Batch` only numbers are read.
unsafe impl Sync for Batch<'_> {}

/// A batch of which not everything was posted.
pub struct Partly {
    error: Error,
    posted: usize,
    bufs: Vec<Buf>,
}

impl SendQueue {
    /// Starts a batch of requests that are posted with one doorbell, in the room of `list`.
    ///
    /// ```no_run
    /// use rdmacm::{Pool, SendQueue, Work, WrList};
    /// # fn run(queue: &mut SendQueue, pool: &Pool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut list = WrList::with_capacity(32);
    /// let mut batch = queue.batch(&mut list);
    /// while let Some(buf) = pool.take() {
    ///     if batch.post(Work::send(), buf, 0).is_err() {
    ///         break;
    ///     }
    /// }
    /// batch.submit()?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn batch<'q>(&'q mut self, list: &'q mut WrList) -> Batch<'q> {
        let start = list.start();
        Batch {
            queue: self,
            next: start,
            start,
            // SAFETY: the end of the list.
            end: unsafe { start.add(list.capacity()) },
            _list: PhantomData,
        }
    }
}

impl<'q> Batch<'q> {
    /// Adds a request that sends or writes `payload`: as [`SendQueue::post`].
    ///
    /// [`Inline`](super::Inline) bytes are copied when the batch is submitted: they are borrowed until then.
    ///
    /// # Errors
    ///
    /// As for [`SendQueue::post`], and [`TooLarge`](crate::ErrorKind::TooLarge) for more requests than the list has room for.
    #[doc(alias = "ibv_wr_set_sge")]
    #[inline(always)]
    pub fn post<P: Single + 'q>(
        &mut self,
        work: Work,
        payload: P,
        user: u64,
    ) -> Result<(), Refused<P::Back>> {
        if let Err(error) = self.queue.limits().check(&work, &payload) {
            return Err(Refused::with(error, payload.back()));
        }
        self.add(
            payload,
            work.op(),
            user,
            work.is_signaled(),
            |wr, signal| {
                let work = if signal { work.signaled() } else { work };
                work.fill(wr, P::FLAGS);
            },
        )
    }

    /// Adds a request that reads from the peer's memory: as [`SendQueue::fetch`].
    ///
    /// # Errors
    ///
    /// As for [`SendQueue::fetch`], and [`TooLarge`](crate::ErrorKind::TooLarge) for more requests than the list has room for.
    #[inline]
    pub fn fetch(&mut self, fetch: Fetch, mut buf: Buf, user: u64) -> Result<(), Refused> {
        if let Err(error) = self.queue.check_fetch(&fetch, &buf) {
            return Err(Refused::with(error, buf));
        }
        let before = buf.bytes();
        if fetch.is_atomic() {
            buf.set_length(ATOMIC);
        }
        self.add(buf, fetch.op(), user, fetch.is_signaled(), |wr, signal| {
            let fetch = if signal { fetch.signaled() } else { fetch };
            fetch.fill(wr);
        })
        .map_err(|refused| refused.with_length(before))
    }

    /// Moves a payload into the next slot and the next entry.
    #[inline(always)]
    fn add<P: Single>(
        &mut self,
        payload: P,
        op: Op,
        user: u64,
        signaled: bool,
        fill: impl FnOnce(&mut ibv_send_wr, bool),
    ) -> Result<(), Refused<P::Back>> {
        if self.next == self.end {
            return Err(Refused::with(list_full(self.len()), payload.back()));
        }
        let ready = match self.queue.producer.ready() {
            Some(ready) => ready,
            None => match self.queue.make_ready() {
                Ok(ready) => ready,
                Err(error) => return Err(Refused::with(error, payload.back())),
            },
        };
        let producer = &mut self.queue.producer;
        // SAFETY: there is room, so it is inside the list, which is borrowed; nobody else refers to it.
        let entry = unsafe { &mut *self.next };
        let mut held = Held::of::<P>(op, user);
        let must_signal = !signaled && producer.must_signal();
        fill(&mut entry.wr, must_signal);
        // SAFETY: there is room for one element; one buffer needs no further cells.
        unsafe { payload.stage(false, &mut held, || &[], &raw mut entry.sge) };
        let signaled = signaled || must_signal;
        let id = if signaled {
            // SAFETY: the slot is free.
            unsafe { producer.put(ready, held) }
        } else {
            // SAFETY: as above.
            unsafe { producer.put_unsignaled(ready, held) }
        };
        entry.wr.wr_id = id;
        // SAFETY: at most the end of the list.
        self.next = unsafe { self.next.add(1) };
        Ok(())
    }

    /// How many requests were added.
    #[must_use]
    pub fn len(&self) -> usize {
        count(self.start, self.next)
    }

    /// Whether none was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next == self.start
    }

    /// Posts what was added, with one doorbell.
    ///
    /// Calls `ibv_wr_start`, for each request its operation (such as `ibv_wr_send`) and `ibv_wr_set_sge` or
    /// `ibv_wr_set_inline_data`, and `ibv_wr_complete` ([man 3](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)); or,
    /// where the provider lacks one of these calls that a queue pair needs, `ibv_post_send` once
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// What the device reports. The requests that it did not take are in [`Partly`]: those from the one on that `ibv_post_send`
    /// names. When `ibv_wr_complete` fails, all of them may have been posted.
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[doc(alias = "ibv_wr_send")]
    #[inline]
    pub fn submit(mut self) -> Result<(), Partly> {
        if self.is_empty() {
            return Ok(());
        }
        let (start, end, len) = (self.start, self.next, self.len());
        // Nothing is to be taken back on drop.
        self.next = start;
        let mut bad = ptr::null_mut();
        let (op, returned) = match self.queue.calls {
            // SAFETY: the entries from `start` to `end` were filled, for requests that were put into the queue.
            None => (OP, unsafe { post_list(self.queue, start, end, &mut bad) }),
            Some(calls) => {
                // SAFETY: as above; they are borrowed, and nobody else refers to them.
                let list = unsafe { slice::from_raw_parts(start, len) };
                // SAFETY: as for `ibv_post_send`; the queue is borrowed, so nobody else posts; an entry was filled by a `Work` or a
                // `Fetch`.
                ("ibv_wr_complete", unsafe { calls.post(list) })
            }
        };
        if returned == 0 {
            return Ok(());
        }
        let error = post_error(op, returned);
        // SAFETY: the entries that were filled; nothing of them was taken back.
        Err(unsafe { partly(self.queue, start, len, error, bad) })
    }
}

/// How many entries there are from `start` to `end`.
#[inline]
fn count(start: *mut Entry, end: *mut Entry) -> usize {
    (end.addr() - start.addr()) / size_of::<Entry>()
}

/// Posts the entries from `start` to `end`, at least one, by `ibv_post_send`, which may name a bad one.
///
/// # Safety
///
/// They lie in a list that is borrowed, and were filled for requests that were put into `queue`.
#[inline]
unsafe fn post_list(
    queue: &mut SendQueue,
    start: *mut Entry,
    end: *mut Entry,
    bad: &mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: the caller's entries. The request is the first field of an entry.
    let last: *mut ibv_send_wr = unsafe { end.sub(1) }.cast();
    // SAFETY: as above.
    let next = unsafe { (*last).next };
    // SAFETY: as above.
    unsafe { (*last).next = ptr::null_mut() };
    let raw = queue.raw();
    // SAFETY: `ibv_post_send` wants
    // - a queue pair, of a type that the requests suit: a shut producer takes none;
    // - a list of requests that is readable during the call: the entries, which are linked, and end with null;
    // - memory that stays valid until the completions: the buffers were moved into the ring, and what is copied at once is
    //   borrowed by the batch;
    // - no more requests than the queue holds: each has a slot.
    let returned = unsafe { rdma_sys::ibv_post_send(raw, start.cast(), bad) };
    // SAFETY: as above.
    unsafe { (*last).next = next };
    returned
}

impl Drop for Batch<'_> {
    // No more than a call with values: what unwinds calls it in line then, and the batch stays in registers.
    #[inline]
    fn drop(&mut self) {
        if self.next != self.start {
            // SAFETY: the entries before `next` were filled, and never submitted: `submit` leaves none.
            unsafe { give_up(self.queue, self.start, self.next) };
        }
    }
}

/// Takes the requests of the entries from `start` to `end` back, for good.
///
/// # Safety
///
/// They were put last into `queue`, and the device does not have them.
#[cold]
#[inline(never)]
unsafe fn give_up(queue: &mut SendQueue, start: *mut Entry, end: *mut Entry) {
    // SAFETY: the caller's own obligation.
    unsafe { take_back(queue, end, count(start, end), &mut Vec::new()) };
}

/// The requests from the one that the provider names come back; without a name, as after `ibv_wr_complete`, all count as posted.
///
/// # Safety
///
/// `start` is the first of `len` filled entries of requests that were put last into `queue`; the provider has not taken those
/// from `bad` on, if that is one of them.
#[cold]
#[inline(never)]
unsafe fn partly(
    queue: &mut SendQueue,
    start: *mut Entry,
    len: usize,
    error: Error,
    bad: *mut ibv_send_wr,
) -> Partly {
    let named = (0..len).find(|&place| ptr::eq(bad.cast(), start.wrapping_add(place)));
    let posted = named.unwrap_or(len);
    let mut bufs = Vec::new();
    // SAFETY: the end of the filled entries.
    let end = unsafe { start.add(len) };
    // SAFETY: the provider has not taken the requests from the named one on, and they are the last ones.
    unsafe { take_back(queue, end, len - posted, &mut bufs) };
    bufs.reverse();
    Partly {
        error,
        posted,
        bufs,
    }
}

/// Takes the last `count` requests back, the last one first.
///
/// # Safety
///
/// They were put last into `queue`, from the entries that end at `end`, and the device does not have them.
#[cold]
#[inline(never)]
unsafe fn take_back(queue: &mut SendQueue, end: *mut Entry, count: usize, bufs: &mut Vec<Buf>) {
    for place in 1..=count {
        // SAFETY: the caller's entries.
        let entry = unsafe { end.sub(place) };
        // SAFETY: as above.
        let ibv_send_wr {
            wr_id: id,
            send_flags,
            ..
        } = unsafe { (*entry).wr };
        let signaled = send_flags & rdma_sys::IBV_SEND_SIGNALED != 0;
        // SAFETY: no completion of the request comes, so this call acts in the consumer's place.
        let held = unsafe { queue.producer.slot_of(id).held() };
        if held.kind() == Kind::Bare {
            // SAFETY: put with bytes to copy; later ones were taken back before.
            unsafe { queue.unput::<Inline<'_>>(id, signaled) };
        } else {
            // SAFETY: put with a buffer; later ones were taken back before.
            bufs.push(unsafe { queue.unput::<Buf>(id, signaled) });
        }
    }
}

#[cold]
fn list_full(len: usize) -> Error {
    Error::too_large(
        OP,
        "number of requests in the batch",
        len as u64 + 1,
        len as u64,
        "submit it, or make a longer list",
    )
}

impl Partly {
    /// What went wrong.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// How many requests were posted, or may have been; their completions come.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posted
    }

    /// The buffers of the others, in their order; that of an atomic operation has eight bytes in use.
    #[must_use]
    pub fn into_bufs(self) -> Vec<Buf> {
        self.bufs
    }
}

impl From<Partly> for Error {
    fn from(partly: Partly) -> Self {
        partly.error
    }
}

impl fmt::Debug for Partly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partly")
            .field("error", &self.error)
            .field("posted", &self.posted)
            .field("came_back", &self.bufs.len())
            .finish()
    }
}

impl fmt::Display for Partly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} requests were posted", self.error, self.posted)
    }
}

impl std::error::Error for Partly {}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

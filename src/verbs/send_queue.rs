#![expect(unsafe_code, reason = "posts work requests")]

use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_qp, ibv_send_wr};

use super::buf::Buf;
use super::prepared::{Place, Prepared};
use super::producer::{Producer, Ready};
use super::qp_inner::{QpInner, ended};
use super::recv_queue::ReceiveQueue;
use super::refused::{Refused, full};
use super::remote::RemoteMemory;
use super::send_limits::{OP, SendLimits, early, no_reads, post_error, too_short};
use super::slot::{Held, Kind};
use super::stage::{Memory, Payload, Sink, Stage};
use super::work::{ATOMIC, Fetch, Work};
use super::wr_post::Calls;
use crate::error::{Error, ErrorKind, Result};

/// The sending half of a queue pair. It may live on another thread than the receiving half.
///
/// [`post`](Self::post) takes what a request sends or writes, [`fetch`](Self::fetch) where it puts what it reads; the other
/// methods are short for the usual ones. Every request takes its buffers with it, and its completion, a
/// [`Sent`](super::Sent) for one buffer, brings them back with the number `user`. Requests are for a connected queue pair: on the
/// accepting side once accept has returned, on the connecting side after [`Established`](crate::EventKind::Established).
///
/// All but those of a [`Batch`](super::Batch) call `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)), do not block, and fail
/// with
///
/// - [`QueueFull`](ErrorKind::QueueFull) when as many requests as the queue holds have not completed: poll the completion queue;
/// - [`State`](ErrorKind::State) before the queue pair is connected. After its end a request completes as
///   [`FLUSHED`](crate::Status::FLUSHED).
#[derive(Debug)]
pub struct SendQueue {
    pub(super) producer: Producer,
    /// By [`Shape`]: made while the producer is shut, before it opens.
    requests: Prepared<ibv_send_wr, 4>,
    raw: NonNull<ibv_qp>,
    limits: SendLimits,
    /// How many reads and atomics the connection has, once the producer was opened.
    reads: u8,
    /// How a batch is posted, if not as a list.
    pub(super) calls: Option<Calls>,
    pub(super) qp: Arc<QpInner>,
}

// SAFETY: the pointer is the queue pair of `qp`, and only handed to the provider, which takes the queue's lock.
unsafe impl Send for SendQueue {}
// SAFETY: through `&SendQueue` nothing is posted.
unsafe impl Sync for SendQueue {}

/// The kinds of requests that are prepared: in all but the last, only the id and the element change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A signalled send of one buffer.
    Plain,
    /// An unsignalled one.
    Unsignaled,
    /// A signalled send of bytes that are copied.
    Inline,
    /// Anything else.
    Other,
}

impl Shape {
    #[inline(always)]
    const fn of<S: Stage>(work: &Work) -> Self {
        match (S::KIND, work.is_plain_send(), work.is_signaled()) {
            (Kind::Sent | Kind::Lent | Kind::LentMut, true, true) => Self::Plain,
            (Kind::Sent | Kind::Lent | Kind::LentMut, true, false) => Self::Unsignaled,
            (Kind::Bare, true, true) => Self::Inline,
            _ => Self::Other,
        }
    }
}

impl SendQueue {
    pub(super) fn new(
        producer: Producer,
        qp: Arc<QpInner>,
        limits: SendLimits,
        calls: Option<Calls>,
    ) -> Self {
        Self {
            producer,
            requests: Prepared::none(),
            raw: qp.raw(),
            limits,
            reads: 0,
            calls,
            qp,
        }
    }

    /// Posts a request that sends or writes `payload`. `user` comes back with the completion.
    ///
    /// ```no_run
    /// use rdmacm::{Buf, Inline, RemoteMemory, SendQueue, Work};
    /// # fn run(queue: &mut SendQueue, head: Buf, body: Buf, to: RemoteMemory) -> Result<(), rdmacm::Error> {
    /// // Two buffers as one message.
    /// queue.post(Work::send(), [head, body], 1)?;
    /// // Bytes from anywhere, copied at once.
    /// queue.post(Work::write_with_imm(to, 42), Inline(b"done"), 2)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for every request of the queue; [`TooLarge`](ErrorKind::TooLarge) for more bytes than the peer's memory has, than
    /// [`max_inline_data`](super::QueuePairInit::max_inline_data), or for more buffers than
    /// [`max_send_sge`](super::QueuePairInit::max_send_sge); [`Unsupported`](ErrorKind::Unsupported) for immediate data over
    /// iWARP. Memory of the peer's that is not open to a write completes as
    /// [`REMOTE_ACCESS`](crate::Status::REMOTE_ACCESS).
    #[doc(alias("ibv_wr_set_sge_list", "rdma_post_sendv"))]
    #[doc(alias("rdma_post_writev", "wr_id"))]
    #[inline]
    pub fn post<P: Payload>(
        &mut self,
        work: Work,
        payload: P,
        user: u64,
    ) -> Result<(), Refused<P::Back>> {
        self.post_staged(work, payload, user)
    }

    /// Posts a request that reads from the peer's memory into `sink`, or works on eight bytes of the peer's memory and puts what
    /// was there before into `sink`.
    ///
    /// # Errors
    ///
    /// As for every request of the queue; [`TooLarge`](ErrorKind::TooLarge) for more bytes than the peer's memory has;
    /// [`State`](ErrorKind::State) when the connection was made with an `initiator_depth` of 0;
    /// [`Unsupported`](ErrorKind::Unsupported) over iWARP, where the buffer would have to be open to the peer (as memory for
    /// [`read_into`](Self::read_into) is), and for atomic operations that the [device](super::DeviceLimits::atomics) does not have;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an atomic operation on what is not one buffer of eight bytes or more, or is
    /// not aligned to eight bytes here and there.
    #[doc(alias = "rdma_post_readv")]
    #[inline]
    pub fn fetch<P: Sink>(&mut self, fetch: Fetch, sink: P, user: u64) -> Result<(), Refused<P>> {
        self.fetch_staged(fetch, sink, user)
    }

    /// Sends what is in `buf` as one message, into a receive that the peer has posted: [`Work::send`].
    ///
    /// # Errors
    ///
    /// As for every request of the queue.
    #[doc(alias("ibv_post_send", "IBV_WR_SEND", "rdma_post_send"))]
    #[inline]
    pub fn send(&mut self, buf: Buf, user: u64) -> Result<(), Refused> {
        self.post_staged(Work::send(), buf, user)
    }

    /// Sends what is in `buf`, and `imm` with it: [`Work::send_with_imm`].
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    #[inline]
    pub fn send_with_imm(&mut self, buf: Buf, imm: u32, user: u64) -> Result<(), Refused> {
        self.post_staged(Work::send_with_imm(imm), buf, user)
    }

    /// Writes what is in `buf` to the start of `to`, in the peer's memory: [`Work::write`].
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    #[doc(alias("IBV_WR_RDMA_WRITE", "rdma_post_write"))]
    #[inline]
    pub fn write(&mut self, buf: Buf, to: RemoteMemory, user: u64) -> Result<(), Refused> {
        self.post_staged(Work::write(to), buf, user)
    }

    /// Writes what is in `buf` to the start of `to`, and completes a receive of the peer's with `imm`:
    /// [`Work::write_with_imm`].
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post).
    #[inline]
    pub fn write_with_imm(
        &mut self,
        buf: Buf,
        to: RemoteMemory,
        imm: u32,
        user: u64,
    ) -> Result<(), Refused> {
        self.post_staged(Work::write_with_imm(to, imm), buf, user)
    }

    /// Reads as many bytes as `buf` has in use from the start of `from`, in the peer's memory: [`Fetch::read`].
    ///
    /// # Errors
    ///
    /// As for [`fetch`](Self::fetch).
    #[doc(alias("IBV_WR_RDMA_READ", "rdma_post_read"))]
    #[inline]
    pub fn read(&mut self, buf: Buf, from: RemoteMemory, user: u64) -> Result<(), Refused> {
        self.fetch_staged(Fetch::read(from), buf, user)
    }

    /// Adds `add` to eight bytes of the peer's memory: [`Fetch::fetch_add`].
    ///
    /// # Errors
    ///
    /// As for [`fetch`](Self::fetch).
    #[inline]
    pub fn fetch_add(
        &mut self,
        buf: Buf,
        at: RemoteMemory,
        add: u64,
        user: u64,
    ) -> Result<(), Refused> {
        self.fetch_staged(Fetch::fetch_add(at, add), buf, user)
    }

    /// Swaps eight bytes of the peer's memory if they are equal to `compare`: [`Fetch::compare_swap`].
    ///
    /// # Errors
    ///
    /// As for [`fetch`](Self::fetch).
    #[inline]
    pub fn compare_swap(
        &mut self,
        buf: Buf,
        at: RemoteMemory,
        compare: u64,
        swap: u64,
        user: u64,
    ) -> Result<(), Refused> {
        self.fetch_staged(Fetch::compare_swap(at, compare, swap), buf, user)
    }

    /// Posts any payload, owned or lent.
    #[inline(always)]
    pub(super) fn post_staged<S: Stage>(
        &mut self,
        work: Work,
        payload: S,
        user: u64,
    ) -> Result<(), Refused<S::Back>> {
        if let Err(error) = self.limits.check(&work, &payload) {
            return Err(Refused::with(error, payload.back()));
        }
        let ready = match self.producer.ready() {
            Some(ready) => ready,
            None => match self.make_ready() {
                Ok(ready) => ready,
                Err(error) => return Err(Refused::with(error, payload.back())),
            },
        };
        if !work.is_signaled() && self.producer.must_signal() {
            return self.post_signaled(work, payload, user);
        }
        let held = Held::of::<S>(work.op(), user);
        let shape = Shape::of::<S>(&work);
        // SAFETY: the next slot is free; the shape is the request's.
        unsafe {
            self.go(ready, payload, held, work.is_signaled(), shape, |wr| {
                work.fill(wr, S::FLAGS);
            })
        }
    }

    /// Posts a request after so many unsignalled ones that it must be signalled: those keep their slots.
    #[cold]
    #[inline(never)]
    fn post_signaled<S: Stage>(
        &mut self,
        work: Work,
        payload: S,
        user: u64,
    ) -> Result<(), Refused<S::Back>> {
        self.post_staged(work.signaled(), payload, user)
    }

    /// Fetches into any sink, owned or lent.
    #[inline(always)]
    pub(super) fn fetch_staged<S: Stage + Memory<Back = S>>(
        &mut self,
        fetch: Fetch,
        mut sink: S,
        user: u64,
    ) -> Result<(), Refused<S>> {
        if let Err(error) = self.check_fetch(&fetch, &sink) {
            return Err(Refused::with(error, sink.back()));
        }
        let ready = match self.producer.ready() {
            Some(ready) => ready,
            None => match self.make_ready() {
                Ok(ready) => ready,
                Err(error) => return Err(Refused::with(error, sink.back())),
            },
        };
        let before = sink.bytes();
        if fetch.is_atomic() {
            sink.set_length(ATOMIC);
        }
        let held = Held::of::<S>(fetch.op(), user);
        let must_signal = !fetch.is_signaled() && self.producer.must_signal();
        let fetch = if must_signal { fetch.signaled() } else { fetch };
        // SAFETY: the next slot is free; the shape is any request's.
        let posted = unsafe {
            self.go(ready, sink, held, fetch.is_signaled(), Shape::Other, |wr| {
                fetch.fill(wr);
            })
        };
        posted.map_err(|refused| refused.with_length(before))
    }

    /// Moves a payload into the next slot, fills the request and posts it.
    ///
    /// # Safety
    ///
    /// `ready` is the next slot; `shape` is that of the request; the payload fits the queue; `fill` writes everything but the
    /// id and the memory.
    #[inline(always)]
    pub(super) unsafe fn go<S: Stage>(
        &mut self,
        ready: Ready,
        payload: S,
        mut held: Held,
        signaled: bool,
        shape: Shape,
        fill: impl FnOnce(&mut ibv_send_wr),
    ) -> Result<(), Refused<S::Back>> {
        // SAFETY: the requests were made, since there is a free slot; a shape is one of four.
        let Place { wr, bad, list } = unsafe { self.requests.place(shape as usize) };
        // SAFETY: the request is this queue's own; `&mut self` is the only access.
        let wr = unsafe { &mut *wr };
        if shape == Shape::Other {
            // CAST: at most `MAX_PIECES`.
            #[expect(clippy::cast_possible_truncation, reason = "at most MAX_PIECES")]
            #[expect(clippy::cast_possible_wrap, reason = "at most MAX_PIECES")]
            let pieces = payload.pieces() as i32;
            wr.num_sge = pieces;
            fill(wr);
        }
        let producer = &self.producer;
        // SAFETY: the elements have room for as many pieces as the queue takes, which was checked; the further cells are of the
        // free slot, which is the producer's.
        unsafe { payload.stage(false, &mut held, || producer.further(), list) };
        let id = if signaled {
            // SAFETY: the slot is free.
            unsafe { self.producer.put(ready, held) }
        } else {
            // SAFETY: as above.
            unsafe { self.producer.put_unsignaled(ready, held) }
        };
        wr.wr_id = id;
        // SAFETY: `ibv_post_send` wants
        // - a queue pair, of a type that the request suits: `qp` keeps it, and a shut producer has no free slot;
        // - a list of requests that is readable during the call: the prepared one, with `next` null;
        // - memory that stays valid, and for a read or an atomic that nobody else touches, until the completion: the buffers
        //   were moved into the ring, which outlives the queue pair;
        // - no more requests than the queue holds: the slot was free.
        let returned = unsafe { rdma_sys::ibv_post_send(self.raw.as_ptr(), wr, bad) };
        if returned == 0 {
            return Ok(());
        }
        Err(self.refused::<S>(returned, id, signaled))
    }

    /// The error of a post that failed. Only a request that the provider names comes back.
    #[cold]
    #[inline(never)]
    fn refused<S: Stage>(&mut self, returned: i32, id: u64, signaled: bool) -> Refused<S::Back> {
        // In INIT, rxe fails without a name and sends the request later: then it stays posted.
        let named = self.requests.take_name();
        let error = post_error(OP, returned);
        if !named {
            return Refused::kept(error);
        }
        // SAFETY: the provider names the request as the first that it did not take, so the device does not have it.
        let back = unsafe { self.unput::<S>(id, signaled) };
        Refused::with(error, back)
    }

    /// Takes back the last request.
    ///
    /// # Safety
    ///
    /// `id` is the request that was put last and not taken back, of a payload `S`; the device does not have it.
    pub(super) unsafe fn unput<S: Stage>(&mut self, id: u64, signaled: bool) -> S::Back {
        let slot = self.producer.slot_of(id);
        // SAFETY: no completion of the request comes, so this call acts in the consumer's place.
        let held = unsafe { slot.held() };
        // SAFETY: `stage` has filled them for this slot.
        let back = unsafe { S::unstage(held, self.producer.ring().further(slot)) };
        // SAFETY: the caller's own obligation.
        unsafe { self.producer.take_back(id, signaled) };
        back
    }

    /// Makes the next slot one that is free, or says why there is none.
    #[cold]
    #[inline(never)]
    pub(super) fn make_ready(&mut self) -> Result<Ready> {
        if self.producer.is_shut() {
            if self.qp.is_ended() {
                return Err(ended(OP));
            }
            if !self.qp.standing().is_connected() {
                return Err(early());
            }
            self.open();
        }
        if let Some(ready) = self.producer.ready() {
            return Ok(ready);
        }
        self.producer.skip().ok_or_else(|| full(OP))
    }

    /// Prepares the requests, and lets the producer post: with the first request, since a queue may never have one.
    fn open(&mut self) {
        self.reads = self.qp.standing().reads();
        self.requests = Prepared::new(self.limits.max_sge);
        for (shape, work, flags) in [
            (Shape::Plain, Work::send(), 0),
            (Shape::Unsignaled, Work::send().unsignaled(), 0),
            (Shape::Inline, Work::send(), rdma_sys::IBV_SEND_INLINE),
        ] {
            // SAFETY: just made; a shape is one of four.
            let place = unsafe { self.requests.place(shape as usize) };
            // SAFETY: the request is this queue's own; `&mut self` is the only access.
            work.fill(unsafe { &mut *place.wr }, flags);
        }
        self.producer.open();
    }

    /// That the queue pair can carry out `fetch` into `sink`.
    pub(super) fn check_fetch<S: Stage>(&self, fetch: &Fetch, sink: &S) -> Result<()> {
        let (pieces, bytes, address) = (sink.pieces(), sink.bytes(), sink.address());
        self.limits.check_fetch(fetch)?;
        self.limits.check_pieces(pieces)?;
        let mut wanted = bytes;
        if fetch.is_atomic() {
            wanted = ATOMIC.into();
            if pieces != 1 || bytes < wanted || address % 8 != 0 || fetch.remote().addr() % 8 != 0 {
                return Err(Error::plain(
                    OP,
                    ErrorKind::InvalidInput,
                    "an atomic operation needs eight bytes, aligned to eight, here and there",
                ));
            }
        }
        if wanted > fetch.remote().len().into() {
            return Err(too_short(wanted, fetch.remote().len()));
        }
        self.check_reads()
    }

    /// That the connection has reads and atomics, which it says when it stands.
    pub(super) fn check_reads(&self) -> Result<()> {
        let standing = || self.qp.standing();
        if self.reads == 0 && standing().is_connected() && standing().reads() == 0 {
            return Err(no_reads());
        }
        Ok(())
    }

    pub(super) fn is_of_the_pair_of(&self, other: &ReceiveQueue) -> bool {
        ptr::eq(&*self.qp, other.inner())
    }

    #[inline]
    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    #[inline]
    pub(super) fn limits(&self) -> SendLimits {
        self.limits
    }

    /// How many requests may be outstanding.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.producer.ring().depth()
    }

    /// Whether nothing is posted: every request has completed and was polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.producer.ring().is_empty()
    }
}

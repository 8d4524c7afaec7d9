#![expect(unsafe_code, reason = "lends borrowed memory to a device")]

use std::fmt;
use std::marker::PhantomData;
use std::process;
use std::ptr::NonNull;
use std::thread;
use std::time::{Duration, Instant};

use rdma_sys::ibv_wc;

use super::completion::{Completion, Done};
use super::cq::CompletionQueue;
use super::lent::LentPiece;
use super::loan::{Loan, LoanMut, Returned, ReturnedMut};
use super::qp::QueuePair;
use super::qp_inner::Receives;
use super::refused::Refused;
use super::ring::Ring;
use super::slot::{Kind, MARK_LENT, MARK_LENT_MUT, Slot};
use super::work::{Fetch, Work};
use crate::error::{Error, Result};
use crate::os::deadline_after;

/// How long a queue pair in its error state may take to flush what is lent.
const FLUSH: Duration = Duration::from_secs(1);

/// A scope for requests on borrowed memory: see [`QueuePair::scope`].
pub struct Scope<'s, 'env> {
    pair: &'s mut QueuePair,
    cq: &'s mut CompletionQueue,
    patience: Duration,
    /// Invariant: a scope cannot be exchanged for one of another lifetime.
    _scope: PhantomData<&'s mut &'s ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// A completion inside a scope.
#[derive(Debug)]
#[non_exhaustive]
pub enum Scoped<'c, 'env> {
    /// A request on memory of this crate's own, of this queue pair or another one.
    Own(Completion<'c>),
    /// A request on memory that was lent for reading.
    Lent(Returned<'c, 'env>),
    /// A request on memory that was lent for writing, too.
    LentMut(ReturnedMut<'c, 'env>),
}

impl QueuePair {
    /// Runs `f` with a scope in which requests may work on memory that is only borrowed: what was [lent](super::Lent) is with the
    /// program again when this returns, whatever `f` has done.
    ///
    /// Inside, the pair is used through the scope. At the end completions are polled until nothing that was lent is posted, for
    /// `patience`; then the queue pair is moved to its error state, and if that does not help, destroyed: every later post on it
    /// is an error, and its id stays until the `QueuePair` is dropped. So a scope never returns while a device may use borrowed
    /// memory. After a panic of `f` there is no patience. Other completions that are met are kept for the next
    /// [`poll`](CompletionQueue::poll); those of lent requests that were not polled in the scope come then as
    /// [`Bare`](super::Bare).
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use rdmacm::{CompletionQueue, QueuePair, Scoped, Work};
    /// # fn run(pair: &mut QueuePair, cq: &mut CompletionQueue) -> Result<(), rdmacm::Error> {
    /// let text = String::from("borrowed");
    /// let pd = pair.protection_domain().clone();
    /// pair.scope(cq, Duration::from_secs(5), |scope| {
    ///     scope.post(Work::send(), pd.lend(text.as_bytes())?, 1)?;
    ///     loop {
    ///         if let Some(Scoped::Lent(sent)) = scope.poll()? {
    ///             return sent.check();
    ///         }
    ///     }
    /// })?
    /// # }
    /// ```
    ///
    /// Both queues of the pair must complete to `cq`. Blocks: for up to `patience` and a second longer.
    ///
    /// # Aborts
    ///
    /// When what was lent is still posted and the device refuses to destroy the queue pair: there is no other way to keep it
    /// from memory that the program uses again.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) when the pair completes to another queue; what `ibv_poll_cq` reports at the end.
    pub fn scope<'env, R>(
        &mut self,
        cq: &mut CompletionQueue,
        patience: Duration,
        f: impl for<'s> FnOnce(&mut Scope<'s, 'env>) -> R,
    ) -> Result<R> {
        let inner = self.inner();
        let handle = cq.handle();
        if !inner.send.cq().is_same(&handle) || !inner.recv_cq().is_same(&handle) {
            return Err(Error::state(
                "ibv_poll_cq",
                "the completion queue of both halves of the queue pair",
                "they complete to another one",
            ));
        }
        self.check_halves("ibv_post_send")?;
        let mut end = End(Scope {
            pair: self,
            cq,
            patience,
            _scope: PhantomData,
            _env: PhantomData,
        });
        let returned = f(&mut end.0);
        let ended = end.0.finish();
        // Nothing is lent any more: the second look of its drop is short.
        drop(end);
        ended.map(|()| returned)
    }
}

/// A scope that is brought to its end, also by a panic.
struct End<'s, 'env>(Scope<'s, 'env>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.patience = Duration::ZERO;
        // An error of a poll is no reason to leave: what is lent ends with the queue pair then.
        drop(self.0.finish());
    }
}

impl<'env> Scope<'_, 'env> {
    /// Posts a request that sends or writes `payload`, owned or lent: as [`SendQueue::post`](super::SendQueue::post). A request
    /// on lent memory is signalled always.
    ///
    /// # Errors
    ///
    /// As for [`SendQueue::post`](super::SendQueue::post).
    #[inline]
    pub fn post<P: Loan<'env>>(
        &mut self,
        work: Work,
        payload: P,
        user: u64,
    ) -> Result<(), Refused<P::Back>> {
        let work = if P::IS_LENT { work.signaled() } else { work };
        self.pair.send.post_staged(work, payload, user)
    }

    /// Posts a request that reads from the peer's memory into `sink`, owned or lent: as
    /// [`SendQueue::fetch`](super::SendQueue::fetch). A request on lent memory is signalled always.
    ///
    /// # Errors
    ///
    /// As for [`SendQueue::fetch`](super::SendQueue::fetch).
    #[inline]
    pub fn fetch<P: LoanMut<'env>>(
        &mut self,
        fetch: Fetch,
        sink: P,
        user: u64,
    ) -> Result<(), Refused<P>> {
        let fetch = if P::IS_LENT { fetch.signaled() } else { fetch };
        self.pair.send.fetch_staged(fetch, sink, user)
    }

    /// Hands `sink`, owned or lent, to the device for the next message: as [`ReceiveQueue::post`](super::ReceiveQueue::post).
    ///
    /// # Errors
    ///
    /// As for [`ReceiveQueue::post`](super::ReceiveQueue::post).
    #[inline]
    pub fn receive<P: LoanMut<'env>>(&mut self, sink: P, user: u64) -> Result<(), Refused<P>> {
        self.pair.recv.post_staged(sink, user)
    }

    /// Takes the next completion, of any queue pair of the completion queue; `None` when there is none now.
    ///
    /// # Errors
    ///
    /// As for [`CompletionQueue::poll`].
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Scoped<'_, 'env>>> {
        let Some(entry) = self.cq.take()? else {
            return Ok(None);
        };
        // SAFETY: filled by the provider; read only until the next poll, which needs the queue: what is made of it borrows it.
        let wc = unsafe { entry.as_ref() };
        let id = wc.wr_id;
        if let Some(slot) = self.cq.table.find(id).map(NonNull::from) {
            // SAFETY: the table keeps the ring while the queue is borrowed, which what is made here borrows.
            let slot = unsafe { slot.as_ref() };
            let done = Done { slot, wc };
            if id & MARK_LENT != 0 {
                // SAFETY: the mark says that there is a loan, which is of this scope, and the entry is taken.
                return Ok(Some(Scoped::Lent(unsafe { Returned::new(done) })));
            }
            if id & MARK_LENT_MUT != 0 {
                // SAFETY: the mark says that there is a loan, which is of this scope, and the entry is taken.
                return Ok(Some(Scoped::LentMut(unsafe { ReturnedMut::new(done) })));
            }
        }
        self.poll_own(entry)
    }

    /// As [`poll`](Self::poll), of an entry that was taken and is not plainly a loan's.
    #[inline(never)]
    fn poll_own(&mut self, entry: NonNull<ibv_wc>) -> Result<Option<Scoped<'_, 'env>>> {
        self.cq.put_back(entry);
        let Some((slot, wc)) = self.cq.find_loan() else {
            return Ok(self.cq.poll()?.map(Scoped::Own));
        };
        // SAFETY: as in `poll`.
        let slot = unsafe { slot.as_ref() };
        // SAFETY: as in `poll`.
        let wc = unsafe { wc.as_ref() };
        let done = Done { slot, wc };
        // SAFETY: the queue is the one consumer of its rings, and has seen the id.
        Ok(Some(match unsafe { slot.kind() } {
            // SAFETY: the kind says that there is a loan, which is of this scope, and the entry is taken.
            Kind::LentMut => Scoped::LentMut(unsafe { ReturnedMut::new(done) }),
            // SAFETY: as above.
            _ => Scoped::Lent(unsafe { Returned::new(done) }),
        }))
    }

    /// Waits until a completion can be polled: as [`CompletionQueue::wait`].
    ///
    /// # Errors
    ///
    /// As for [`CompletionQueue::wait`].
    pub fn wait(&mut self, patience: Option<Duration>) -> Result<bool> {
        self.cq.wait(patience)
    }

    /// Has nothing lent posted when it returns.
    fn finish(&mut self) -> Result<()> {
        let polled = self.await_lent(self.patience);
        if !self.has_lent() {
            return polled;
        }
        // If the device refuses, the destruction is all there is.
        drop(self.pair.to_error());
        let flushed = self.await_lent(FLUSH);
        if self.has_lent() {
            self.pair.send.producer.close();
            self.pair.recv.shut();
            if self.pair.inner().end().is_err() {
                // A device may still use memory that the program is about to use again.
                process::abort();
            }
            for ring in self.rings() {
                for slot in ring.posted() {
                    // SAFETY: the queue pair is gone, and with it the producer; the one consumer is borrowed by this scope.
                    unsafe { take_lent(slot) };
                }
            }
        }
        polled.and(flushed)
    }

    /// Polls until nothing lent is posted, or patience ends.
    fn await_lent(&mut self, patience: Duration) -> Result<()> {
        let deadline = deadline_after(Some(patience));
        while self.has_lent() {
            let take = |_: &Ring, slot: &Slot| {
                // SAFETY: `sweep` calls this as the consumer of a request that has completed.
                unsafe { take_lent(slot) };
                false
            };
            // SAFETY: the slot stays, for a completion without a buffer.
            let any = unsafe { self.cq.sweep(take) }?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            if !any {
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn rings(&self) -> impl Iterator<Item = &Ring> {
        let inner = self.pair.inner();
        let recv = match &inner.recv {
            Receives::Own(attached) => Some(&**attached.ring()),
            // Lent memory is never posted to a shared queue.
            Receives::Shared(..) => None,
        };
        std::iter::once(&**inner.send.ring()).chain(recv)
    }

    fn has_lent(&self) -> bool {
        self.rings().any(|ring| {
            ring.posted().any(|slot| {
                // SAFETY: the one producer and the one consumer are borrowed by this scope, so nobody changes the slot.
                let kind = unsafe { slot.kind() };
                matches!(kind, Kind::Lent | Kind::LentMut)
            })
        })
    }
}

/// Ends the loan of a slot, if there is one: its request has none any more.
///
/// # Safety
///
/// The caller is the consumer of the slot, and has seen an id in it; no device uses its memory.
unsafe fn take_lent(slot: &Slot) {
    // SAFETY: the caller is the consumer.
    let kind = unsafe { slot.kind() };
    if !matches!(kind, Kind::Lent | Kind::LentMut) {
        return;
    }
    // SAFETY: as above.
    if let Some(piece) = unsafe { slot.take_piece() } {
        // SAFETY: from `into_piece` of a loan, and taken once; no device uses its memory.
        unsafe { LentPiece::end(piece) };
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("pair", &self.pair)
            .finish_non_exhaustive()
    }
}

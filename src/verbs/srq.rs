#![expect(unsafe_code, reason = "owns a pointer to an ibv_srq")]

use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};

use super::attached::Attached;
use super::cq::CqHandle;
use super::mailbox::STEP;
use super::pd::ProtectionDomain;
use super::producer::{Producer, Ready};
use super::queue_token::QueueToken;
use super::receiver::{Receiver, Target};
use super::refused::{Refused, full};
use super::ring::{Extra, MAX_DEPTH, MAX_RINGS};
use super::ring_arc::RingArc;
use super::slot::{Held, Kind};
use super::stage::{MAX_PIECES, Sink};
use crate::error::{Error, ErrorKind, Result, errno_of_verbs, pointer_of};

const OP: &str = "ibv_post_srq_recv";
const CREATE: &str = "ibv_create_srq";

/// A shared receive queue (`ibv_srq`): receives for many queue pairs.
///
/// This is the posting side: one owner posts to it. Queue pairs are made with it by
/// [`QueuePairInit::srq`](super::QueuePairInit::srq), and keep it alive. Its buffers are its own, not a queue pair's: what was
/// posted comes back with completions, in any order, or when the queue and its pairs are gone.
///
/// The completion queue that its pairs complete to needs room for all of its receives, and stays alive as long as it.
#[doc(alias = "ibv_srq")]
#[doc(alias = "ibv_destroy_srq")]
#[derive(Debug)]
pub struct SharedReceiveQueue {
    receiver: Receiver,
    /// That of `shared`.
    posted: Posted,
    shared: SharedQueue,
}

/// Where receives are posted to.
#[derive(Clone, Copy, Debug)]
struct Posted {
    raw: NonNull<ibv_srq>,
    /// Whether several completion queues report its receives.
    several: bool,
}

// SAFETY: the pointer is the queue of `shared`, and only handed to libibverbs and to the provider, which take its lock.
unsafe impl Send for Posted {}
// SAFETY: through `&Posted` alone nothing is posted: whoever calls has the receiver.
unsafe impl Sync for Posted {}

/// What queue pairs have of a shared receive queue: it keeps the queue alive, and cannot post.
#[derive(Clone, Debug)]
pub(super) struct SharedQueue {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// `raw` is a shared receive queue in `pd` that nobody else destroys. What is posted to it sits in `ring`.
struct Inner {
    raw: NonNull<ibv_srq>,
    token: QueueToken,
    ring: RingArc,
    /// The completion queues that report its receives.
    attached: Mutex<Vec<Attached>>,
    pd: ProtectionDomain,
}

// SAFETY: the pointer is only handed to libibverbs and to the provider, which take the queue's lock.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`; the rest is behind a lock, or never changes.
unsafe impl Sync for Inner {}

/// The indices of shared receive queues: odd, and the same in every completion queue.
static INDICES: Mutex<Indices> = Mutex::new(Indices {
    next: 1,
    free: Vec::new(),
});

struct Indices {
    next: u32,
    free: Vec<u32>,
}

impl Indices {
    fn take(&mut self) -> Result<u32> {
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if self.next >= MAX_RINGS {
            return Err(Error::too_large(
                CREATE,
                "number of shared receive queues of the process",
                u64::from(MAX_RINGS / STEP) + 1,
                u64::from(MAX_RINGS / STEP),
                "one counts until its completion queues were polled after its end: poll them, or drop them",
            ));
        }
        self.next += STEP;
        Ok(self.next - STEP)
    }
}

/// An index that is given back when nobody can name it any more: with its ring.
struct Index(u32);

impl Index {
    fn new() -> Result<Self> {
        let mut indices = INDICES.lock().unwrap_or_else(PoisonError::into_inner);
        indices.take().map(Self)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let mut indices = INDICES.lock().unwrap_or_else(PoisonError::into_inner);
        indices.free.push(self.0);
    }
}

impl ProtectionDomain {
    /// Makes a shared receive queue for `max_wr` receives of up to `max_sge` buffers, or scatter/gather elements (SGEs), each.
    ///
    /// Calls `ibv_create_srq` ([man 3](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a `max_wr` of 0; [`TooLarge`](ErrorKind::TooLarge) above the device's
    /// `max_srq_wr` (and 2<sup>20</sup>) or `max_srq_sge` (and 255); what the device reports, such as `EOPNOTSUPP` where it has none.
    #[doc(alias = "ibv_create_srq")]
    #[doc(alias = "ibv_srq_init_attr")]
    #[doc(alias = "ibv_srq_attr")]
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, max_wr, max_sge.max(1), false)
    }

    /// As [`create_srq`](Self::create_srq), for queue pairs that complete to several completion queues. Polling its receives
    /// costs an atomic exchange more.
    ///
    /// # Errors
    ///
    /// As for [`create_srq`](Self::create_srq).
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq_for_several_cqs(
        &self,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, max_wr, max_sge.max(1), true)
    }
}

impl SharedReceiveQueue {
    fn new(pd: &ProtectionDomain, max_wr: u32, max_sge: u32, several: bool) -> Result<Self> {
        if max_wr == 0 {
            return Err(Error::plain(
                CREATE,
                ErrorKind::InvalidInput,
                "max_wr is 0; a shared receive queue holds at least one receive",
            ));
        }
        let limits = pd.context().limits();
        for (field, value, limit) in [
            ("max_wr", max_wr, limits.max_srq_wr().min(MAX_DEPTH)),
            ("max_sge", max_sge, limits.max_srq_sge().min(MAX_PIECES)),
        ] {
            if value > limit {
                return Err(Error::too_large(
                    CREATE,
                    field,
                    value.into(),
                    limit.into(),
                    "the limits are the device's max_srq_wr, never above 1048576, and its max_srq_sge, never above 255",
                ));
            }
        }
        let index = Index::new()?;
        let token = QueueToken::new();
        let mut init = ibv_srq_init_attr {
            srq_context: token.to_context(),
            attr: ibv_srq_attr {
                max_wr,
                max_sge,
                srq_limit: 0,
            },
        };
        let making = pd.context().objects_change();
        // SAFETY: `ibv_create_srq` wants a domain, which `pd` is, and attributes, into which it writes what was granted. The
        // context is a number.
        let raw = unsafe { rdma_sys::ibv_create_srq(pd.as_raw(), &raw mut init) };
        let raw = pointer_of(raw).map_err(|errno| Error::os(CREATE, errno))?;
        drop(making);
        let number = index.0;
        let extra = Extra::Index {
            _index: Box::new(index),
        };
        let ring = RingArc::with(max_wr, max_sge, number, several, Some(extra));
        let producer = Producer::shut(ring.clone());
        // INVARIANT: just made, and known to nobody else.
        let inner = Inner {
            raw,
            token,
            ring,
            attached: Mutex::new(Vec::new()),
            pd: pd.clone(),
        };
        Ok(Self {
            receiver: Receiver::new(producer),
            posted: Posted { raw, several },
            shared: SharedQueue {
                inner: Arc::new(inner),
            },
        })
    }

    /// Hands `sink`, a buffer or an array of several, to the device for the next message on any of the queue's pairs. `user`
    /// comes back with the completion, a [`Received`](super::Received) for one buffer.
    ///
    /// Calls `ibv_post_srq_recv` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_srq_recv.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`QueueFull`](ErrorKind::QueueFull) when as many receives as the queue holds are posted;
    /// [`TooLarge`](ErrorKind::TooLarge) for more buffers than the queue's `max_sge`.
    #[doc(alias = "ibv_post_srq_recv")]
    #[doc(alias = "ibv_recv_wr")]
    #[doc(alias = "wr_id")]
    #[inline]
    pub fn post<P: Sink>(&mut self, sink: P, user: u64) -> Result<(), Refused<P::Back>> {
        // SAFETY: the receiver is this queue's.
        unsafe { self.receiver.post(&self.posted, sink, user) }
    }

    /// Asks for an asynchronous event of the device when fewer than `limit` receives are left; 0 asks for none.
    ///
    /// Calls `ibv_modify_srq` with `IBV_SRQ_LIMIT`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) above the queue's `max_wr`; what the device reports.
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "srq_limit")]
    #[doc(alias = "IBV_SRQ_LIMIT")]
    #[doc(alias = "ibv_srq_attr_mask")]
    pub fn set_limit(&mut self, limit: u32) -> Result<()> {
        const OP: &str = "ibv_modify_srq";
        if limit > self.depth() {
            return Err(Error::too_large(
                OP,
                "srq_limit",
                limit.into(),
                self.depth().into(),
                "the queue's max_wr is the limit",
            ));
        }
        let mut attr = ibv_srq_attr {
            srq_limit: limit,
            ..ibv_srq_attr::default()
        };
        // CAST: a low bit.
        let mask = rdma_sys::IBV_SRQ_LIMIT as i32;
        // SAFETY: `ibv_modify_srq` wants a queue, which `shared` keeps, and attributes of which the mask names those that are set.
        let returned =
            unsafe { rdma_sys::ibv_modify_srq(self.posted.raw.as_ptr(), &raw mut attr, mask) };
        errno_of_verbs(returned).map_err(|errno| Error::os(OP, errno))
    }

    /// How many receives may be posted.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.receiver.producer.ring().depth()
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.receiver.producer.ring().is_empty()
    }

    /// The number by which [asynchronous events](crate::AsyncEvents) name the queue.
    #[must_use]
    pub fn token(&self) -> QueueToken {
        self.shared.inner.token
    }

    /// The domain that the queue was made in.
    #[must_use]
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.shared.protection_domain()
    }

    /// The raw queue, valid while this value is.
    #[must_use]
    pub fn as_raw(&self) -> *mut ibv_srq {
        self.posted.raw.as_ptr()
    }

    pub(super) fn share(&self) -> SharedQueue {
        self.shared.clone()
    }
}

impl Target for Posted {
    const OP: &'static str = OP;
    const MAX_SGE: &'static str = "max_sge";
    const IN_ORDER: bool = false;

    fn is_open(&self) -> bool {
        true
    }

    #[cold]
    fn none_free(&self) -> Error {
        full(OP)
    }

    #[inline]
    unsafe fn put(&self, producer: &mut Producer, ready: Ready, held: Held) -> u64 {
        if self.several && matches!(held.kind(), Kind::Received) {
            // SAFETY: the caller's own obligation.
            return unsafe { producer.put(ready, held.shared()) };
        }
        // SAFETY: the caller's own obligation.
        unsafe { producer.put_receive(ready, held) }
    }

    #[inline]
    unsafe fn call(&self, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
        // SAFETY: `ibv_post_srq_recv` wants a shared receive queue, which `shared` keeps, and what the caller provides.
        unsafe { rdma_sys::ibv_post_srq_recv(self.raw.as_ptr(), wr, bad) }
    }
}

impl SharedQueue {
    pub(super) fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    pub(super) fn as_raw(&self) -> *mut ibv_srq {
        self.inner.raw.as_ptr()
    }

    /// Lets `cq` report the queue's receives: those of the queue pair that the call `op` makes.
    pub(super) fn attach(&self, op: &'static str, cq: &CqHandle) -> Result<()> {
        let mut attached = self.inner.lock();
        if attached.iter().any(|attached| attached.cq().is_same(cq)) {
            return Ok(());
        }
        if !attached.is_empty() && !self.inner.ring.has_many_consumers {
            return Err(Error::state(
                op,
                "a shared receive queue for several completion queues (`create_srq_for_several_cqs`)",
                "this one was made for one, and its pairs complete to another",
            ));
        }
        attached.push(Attached::shared(op, cq, &self.inner.ring)?);
        Ok(())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Vec<Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("ring", &self.ring)
            .field("pd", &self.pd)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ending = self.pd.context().objects_change();
        // SAFETY: `ibv_destroy_srq` wants a queue that no queue pair uses: each holds a share, so none is left.
        let returned = unsafe { rdma_sys::ibv_destroy_srq(self.raw.as_ptr()) };
        drop(ending);
        if errno_of_verbs(returned).is_err() {
            // The device may still write to what is posted.
            self.ring.leak();
            for attached in self.lock().iter() {
                attached.leak();
            }
            mem::forget(self.pd.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_odd_and_fit_an_id() {
        let mut indices = Indices {
            next: MAX_RINGS - STEP - 1,
            free: vec![],
        };
        assert_eq!(indices.take().unwrap(), MAX_RINGS - 3);
        assert_eq!(indices.take().unwrap(), MAX_RINGS - 1);
        let error = indices.take().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("the limit is 524288"), "{error}");
        indices.free.push(5);
        assert_eq!(indices.take().unwrap(), 5);
    }
}

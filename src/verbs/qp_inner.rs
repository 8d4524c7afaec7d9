#![expect(unsafe_code, reason = "owns a pointer to an ibv_qp")]

use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_cap};

use super::ah::AddressHandle;
use super::attached::Attached;
use super::attachment::{Attachment, Attachments};
use super::context::Context;
use super::cq::CqHandle;
use super::gid::Gid;
use super::pd::ProtectionDomain;
use super::qp_query::Capacities;
use super::reads::Reads;
use super::srq::SharedQueue;
use super::standing::Standing;
use super::windows::Windows;
use crate::error::{Error, Result, errno_of_verbs};

/// Who made a queue pair, and so knows which locks its calls must take. It is kept until nobody has the queue pair any more.
///
/// The calls are unsafe: the queue pair is the one that this owner was given with, alive, and the caller makes one call at a
/// time.
pub(crate) trait QpOwner: Send + Sync {
    /// How the connection of the queue pair stands.
    fn standing(&self) -> &Standing;

    /// Changes attributes of the queue pair, those that `mask` names and the caller has set; returns what `ibv_modify_qp` did.
    ///
    /// # Safety
    ///
    /// The trait's.
    unsafe fn modify(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32;

    /// Asks for attributes of the queue pair; returns what `ibv_query_qp` did.
    ///
    /// # Safety
    ///
    /// The trait's.
    unsafe fn query(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32;

    /// Destroys the queue pair, of the device `context`; returns what `ibv_destroy_qp` did.
    ///
    /// # Safety
    ///
    /// The trait's, and nobody posts any more. No other call is made after it.
    unsafe fn destroy(&self, context: &Context, qp: NonNull<ibv_qp>) -> i32;
}

/// # Invariants
///
/// `raw` is a queue pair in `pd` that completes to the queues of `send` and `recv`, and only `owner` destroys it, once, at the
/// end of a scope or when this is dropped. Whatever is posted to it sits in their rings.
pub(super) struct QpInner {
    raw: NonNull<ibv_qp>,
    qp_num: u32,
    capacities: Capacities,
    owner: Arc<dyn QpOwner>,
    /// Held while the owner is called, and while `rare` is made.
    calls: Mutex<()>,
    pub(super) send: Attached,
    pub(super) recv: Receives,
    pub(super) pd: ProtectionDomain,
    rare: OnceLock<Box<Rare>>,
}

/// What most queue pairs never have.
#[derive(Default)]
struct Rare {
    /// The memory windows that were made for the pair.
    windows: Arc<Windows>,
    /// Its reads into exposed memory.
    reads: OnceLock<Arc<Reads>>,
    /// The multicast groups that it is attached to by hand.
    attachments: OnceLock<Arc<Attachments>>,
    /// What requests that are posted name beside memory.
    kept: Mutex<Vec<AddressHandle>>,
}

/// Where a queue pair receives.
#[derive(Debug)]
pub(super) enum Receives {
    /// From a queue of its own.
    Own(Attached),
    /// From a shared one, completing to the queue.
    Shared(SharedQueue, CqHandle),
}

impl Rare {
    fn kept(&self) -> MutexGuard<'_, Vec<AddressHandle>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what must be gone before the queue pair is destroyed.
    fn end(&self) {
        self.windows.end();
        if let Some(attachments) = self.attachments.get() {
            attachments.end();
        }
    }

    /// Keeps for ever what the device may still use: the queue pair could not be destroyed.
    fn leak(&self) {
        mem::forget(mem::take(&mut *self.kept()));
        if let Some(reads) = self.reads.get() {
            reads.leak();
        }
    }
}

// SAFETY: the pointer is only handed to libibverbs and to the provider, which take the queue pair's locks, and to the owner,
// which takes those that its end needs.
unsafe impl Send for QpInner {}
// SAFETY: as for `Send`; what is written through `&QpInner` is behind a lock, or atomic.
unsafe impl Sync for QpInner {}

impl QpInner {
    /// # Safety
    ///
    /// As the invariants say.
    pub(super) unsafe fn new(
        raw: NonNull<ibv_qp>,
        owner: Arc<dyn QpOwner>,
        send: Attached,
        recv: Receives,
        pd: ProtectionDomain,
        granted: ibv_qp_cap,
    ) -> Self {
        // SAFETY: the queue pair is alive, and its number never changes.
        let qp_num = unsafe { (*raw.as_ptr()).qp_num };
        Self {
            raw,
            qp_num,
            capacities: Capacities::new(granted),
            owner,
            calls: Mutex::new(()),
            send,
            recv,
            pd,
            rare: OnceLock::new(),
        }
    }

    /// The memory windows that were made for the pair.
    pub(super) fn windows(&self) -> &Arc<Windows> {
        &self.rare().windows
    }

    /// The reads of the pair into exposed memory.
    pub(super) fn reads(&self) -> &Arc<Reads> {
        let reads = || Arc::new(Reads::new(self.send.ring().clone()));
        self.rare().reads.get_or_init(reads)
    }

    /// Keeps address handles until the queue pair is destroyed.
    pub(super) fn keep(&self, handles: Vec<AddressHandle>) {
        self.rare().kept().extend(handles);
    }

    fn rare(&self) -> &Rare {
        if let Some(rare) = self.rare.get() {
            return rare;
        }
        // Under the lock, so that an end finds it, or is seen here.
        let calls = self.calls();
        let rare = self.rare.get_or_init(|| {
            let rare = Box::<Rare>::default();
            if self.is_ended() {
                rare.windows.end();
            }
            rare
        });
        drop(calls);
        rare
    }

    /// Attaches the queue pair to a multicast group.
    pub(super) fn attach(&self, group: Gid, mlid: u16) -> Result<Attachment> {
        // SAFETY: the queue pair is alive until `end`, which ends the attachments first.
        let attachments = || unsafe { Attachments::new(self.raw) };
        self.rare()
            .attachments
            .get_or_init(attachments)
            .attach(group, mlid)
    }

    pub(super) fn raw(&self) -> NonNull<ibv_qp> {
        self.raw
    }

    pub(super) fn qp_num(&self) -> u32 {
        self.qp_num
    }

    pub(super) fn capacities(&self) -> Capacities {
        self.capacities
    }

    /// Whether the queue pair was destroyed, or leaked: the ring of its sends, which has room for that, remembers it.
    pub(super) fn is_ended(&self) -> bool {
        self.send.ring().has_ended()
    }

    /// How the connection of the queue pair stands.
    pub(super) fn standing(&self) -> &Standing {
        self.owner.standing()
    }

    /// The completion queue that receives complete to.
    pub(super) fn recv_cq(&self) -> &CqHandle {
        match &self.recv {
            Receives::Own(attached) => attached.cq(),
            Receives::Shared(_, cq) => cq,
        }
    }

    /// Changes attributes of the queue pair.
    pub(super) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> Result<()> {
        // SAFETY: `ask` calls with the owner of this queue pair, under the lock, while it is alive.
        self.ask("ibv_modify_qp", |owner| unsafe {
            owner.modify(self.raw, attr, mask)
        })
    }

    /// Asks for attributes of the queue pair.
    pub(super) fn query(&self, mask: u32) -> Result<ibv_qp_attr> {
        let mut attr = ibv_qp_attr::default();
        // SAFETY: `ask` calls with the owner of this queue pair, under the lock, while it is alive.
        self.ask("ibv_query_qp", |owner| unsafe {
            owner.query(self.raw, &mut attr, mask)
        })?;
        Ok(attr)
    }

    /// Has the owner call `op`, while the queue pair is alive.
    fn ask(&self, op: &'static str, call: impl FnOnce(&dyn QpOwner) -> i32) -> Result<()> {
        let calls = self.calls();
        if self.is_ended() {
            return Err(ended(op));
        }
        let returned = call(&*self.owner);
        drop(calls);
        errno_of_verbs(returned).map_err(|errno| Error::os(op, errno))
    }

    fn calls(&self) -> MutexGuard<'_, ()> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys the queue pair, the first time.
    pub(super) fn end(&self) -> Result<()> {
        let calls = self.calls();
        if self.send.ring().set_ended() {
            return Ok(());
        }
        let rare = self.rare.get();
        if let Some(rare) = rare {
            rare.end();
        }
        // SAFETY: the owner of this queue pair, under the lock, and this is the last call: the pair has ended. Whoever posts
        // shares this value, or is shut at the end of a scope.
        let returned = unsafe { self.owner.destroy(self.pd.context(), self.raw) };
        drop(calls);
        if let Err(errno) = errno_of_verbs(returned) {
            // The device may still use the queue pair, and so everything that it was made of and all that is posted.
            mem::forget(Arc::clone(&self.owner));
            self.send.leak();
            match &self.recv {
                Receives::Own(attached) => attached.leak(),
                Receives::Shared(srq, cq) => {
                    mem::forget(srq.clone());
                    mem::forget(cq.clone());
                }
            }
            mem::forget(self.pd.clone());
            if let Some(rare) = rare {
                rare.leak();
            }
            return Err(Error::os("ibv_destroy_qp", errno));
        }
        if let Some(reads) = rare.and_then(|rare| rare.reads.get()) {
            reads.end();
        }
        Ok(())
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        // `destroy` is for those who want to know; a failure here has leaked what the device may hold.
        drop(self.end());
    }
}

/// The error of a call for a queue pair that has ended while its halves are there.
#[cold]
pub(super) fn ended(op: &'static str) -> Error {
    let found = "this one was destroyed at the end of a scope";
    Error::state(op, "a queue pair", found)
}

impl fmt::Debug for QpInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("qp_num", &self.qp_num)
            .field("send", &self.send)
            .field("recv", &self.recv)
            .field("pd", &self.pd)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::qp::QueuePair;
    use super::*;

    #[test]
    fn a_queue_pair_takes_little_memory() {
        assert_eq!(size_of::<QueuePair>(), 184);
        // Two counts come before it in an `Arc`, and eight bytes of the allocator's.
        assert_eq!(16 + size_of::<QpInner>() + 8, 144);
    }
}

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::mapped::MappedMemory;
use super::region::Region;
use super::ring_arc::RingArc;

/// The exposed memory that reads of one queue pair go into: it stays registered until their completions were taken, or the queue
/// pair is destroyed.
pub(super) struct Reads {
    ring: RingArc,
    /// By the ids of the reads. Those that have ended are left until there is no room, or somebody asks.
    list: Mutex<Vec<(u64, Arc<Region<MappedMemory>>)>>,
}

impl Reads {
    /// Of the queue pair whose send queue has `ring`.
    pub(super) fn new(ring: RingArc) -> Self {
        // So that it never grows, and that room is made only after as many reads as the queue holds.
        let list = Vec::with_capacity(2 * ring.depth() as usize);
        Self {
            ring,
            list: Mutex::new(list),
        }
    }

    /// Keeps `region` for the read `id`, which is in its slot and not posted yet.
    pub(super) fn keep(&self, id: u64, region: Arc<Region<MappedMemory>>) {
        let mut list = self.list();
        if list.len() == list.capacity() {
            list.retain(|(id, _)| self.ring.is_posted(*id));
        }
        list.push((id, region));
    }

    /// Lets go of the memory of reads that have ended.
    pub(super) fn forget_ended(&self) {
        self.list().retain(|(id, _)| self.ring.is_posted(*id));
    }

    /// Lets go of everything. The queue pair is destroyed.
    pub(super) fn end(&self) {
        self.list().clear();
    }

    /// Never lets go of what is kept. The queue pair could not be destroyed.
    pub(super) fn leak(&self) {
        mem::forget(mem::take(&mut *self.list()));
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u64, Arc<Region<MappedMemory>>)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue pairs whose reads go, or went, into one memory. Dropped, it has them let go of what has ended.
#[derive(Default)]
pub(super) struct Readers {
    list: Mutex<Vec<Weak<Reads>>>,
}

impl Readers {
    /// Counts a queue pair in.
    pub(super) fn add(&self, reads: &Arc<Reads>) {
        let mut list = self.list();
        let known = |reader: &Weak<Reads>| ptr_eq(reader, reads);
        if list.iter().any(known) {
            return;
        }
        list.retain(|reader| reader.strong_count() > 0);
        list.push(Arc::downgrade(reads));
    }

    /// Has the queue pairs let go of the memory of reads that have ended.
    pub(super) fn forget_ended(&self) {
        for reads in self.list().iter().filter_map(Weak::upgrade) {
            reads.forget_ended();
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<Reads>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ptr_eq(reader: &Weak<Reads>, reads: &Arc<Reads>) -> bool {
    std::ptr::eq(reader.as_ptr(), Arc::as_ptr(reads))
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.forget_ended();
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").finish_non_exhaustive()
    }
}

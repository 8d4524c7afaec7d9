use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cq::CqHandle;
use super::producer::Producer;
use super::ring::Ring;
use crate::error::Result;

/// A ring that is attached to a completion queue, until this is dropped: after the end of its queue pair.
#[derive(Debug)]
pub(super) struct Attached {
    ring: Arc<Ring>,
    index: u32,
    cq: CqHandle,
    leaked: AtomicBool,
}

impl Attached {
    /// Makes a ring for `depth` requests of up to `pieces` buffers, attached to `cq`, and its only producer, which is shut.
    pub(super) fn new(cq: &CqHandle, depth: u32, pieces: u32) -> Result<(Self, Producer)> {
        let (index, ring) = cq.mailbox().attach(depth, pieces)?;
        let producer = Producer::shut(Arc::clone(&ring));
        Ok((Self::of(ring, index, cq), producer))
    }

    /// Attaches the ring of a shared receive queue to a further completion queue.
    pub(super) fn shared(cq: &CqHandle, index: u32, ring: &Arc<Ring>) -> Result<Self> {
        cq.mailbox().attach_shared(index, ring)?;
        Ok(Self::of(Arc::clone(ring), index, cq))
    }

    fn of(ring: Arc<Ring>, index: u32, cq: &CqHandle) -> Self {
        Self {
            ring,
            index,
            cq: cq.clone(),
            leaked: AtomicBool::new(false),
        }
    }

    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    pub(super) fn cq(&self) -> &CqHandle {
        &self.cq
    }

    /// The end of a ring to which nothing was ever posted: its room can be used at once.
    pub(super) fn abandon(self) {
        self.leaked.store(true, Ordering::Relaxed);
        self.cq.mailbox().release(self.index, self.ring.depth());
    }

    /// Keeps ring and completion queue for ever: the device may still use what is posted, and complete it.
    pub(super) fn leak(&self) {
        if !self.leaked.swap(true, Ordering::Relaxed) {
            mem::forget(Arc::clone(&self.ring));
            mem::forget(self.cq.clone());
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !*self.leaked.get_mut() {
            self.cq.mailbox().retire(self.index, self.ring.depth());
        }
    }
}

use std::mem;

use super::cq::CqHandle;
use super::producer::Producer;
use super::ring::Extra;
use super::ring_arc::RingArc;
use crate::error::Result;

/// A ring that is attached to a completion queue, until this is dropped: after the end of its queue pair.
#[derive(Debug)]
pub(super) struct Attached {
    ring: RingArc,
    cq: CqHandle,
}

impl Attached {
    /// Makes a ring for `depth` requests of up to `pieces` buffers, attached to `cq`, and its only producer, which is shut.
    /// `extra` is what few rings have; `op` is the call that makes the queue pair.
    pub(super) fn new(
        op: &'static str,
        cq: &CqHandle,
        depth: u32,
        pieces: u32,
        extra: Option<Extra>,
    ) -> Result<(Self, Producer)> {
        let ring = cq.mailbox().attach(op, depth, pieces, extra)?;
        let producer = Producer::shut(ring.clone());
        Ok((Self::of(ring, cq), producer))
    }

    /// Attaches the ring of a shared receive queue to a further completion queue.
    pub(super) fn shared(op: &'static str, cq: &CqHandle, ring: &RingArc) -> Result<Self> {
        cq.mailbox().attach_shared(op, ring)?;
        Ok(Self::of(ring.clone(), cq))
    }

    fn of(ring: RingArc, cq: &CqHandle) -> Self {
        Self {
            ring,
            cq: cq.clone(),
        }
    }

    pub(super) fn ring(&self) -> &RingArc {
        &self.ring
    }

    pub(super) fn cq(&self) -> &CqHandle {
        &self.cq
    }

    /// The end of a ring to which nothing was ever posted: its room can be used at once.
    pub(super) fn abandon(self) {
        self.ring.settle();
        let (index, depth) = (self.ring.index(), self.ring.depth());
        self.cq.mailbox().release(index, depth);
    }

    /// Keeps ring and completion queue for ever: the device may still use what is posted, and complete it. Called once.
    pub(super) fn leak(&self) {
        self.ring.settle();
        self.ring.leak();
        mem::forget(self.cq.clone());
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.ring.is_settled() {
            let (index, depth) = (self.ring.index(), self.ring.depth());
            self.cq.mailbox().retire(index, depth);
        }
    }
}

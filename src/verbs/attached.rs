use std::mem;
use std::sync::Arc;

use super::cq::CqHandle;
use super::ring::{Producer, Ring};
use crate::error::Result;

/// A ring that is attached to a completion queue, until this is dropped: after the end of its queue pair.
#[derive(Debug)]
pub(super) struct Attached {
    ring: Arc<Ring>,
    index: u32,
    cq: CqHandle,
    leaked: bool,
}

impl Attached {
    /// Makes a ring for `depth` requests, attached to `cq`, and its only producer.
    pub(super) fn new(cq: &CqHandle, depth: u32) -> Result<(Self, Producer)> {
        let (index, producer) = cq.mailbox().attach(depth)?;
        let attached = Self {
            ring: Arc::clone(producer.ring()),
            index,
            cq: cq.clone(),
            leaked: false,
        };
        Ok((attached, producer))
    }

    /// Keeps ring and completion queue for ever: the device may still use what is posted, and complete it.
    pub(super) fn leak(&mut self) {
        if !mem::replace(&mut self.leaked, true) {
            mem::forget(Arc::clone(&self.ring));
            mem::forget(self.cq.clone());
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.leaked {
            self.cq.mailbox().retire(self.index);
        }
    }
}

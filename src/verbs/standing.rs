use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How the connection of a queue pair stands: set by who made the queue pair, asked until it may send.
///
/// `reads` is written before `connected` (release), and read after it (acquire).
#[derive(Debug, Default)]
pub(crate) struct Standing {
    connected: AtomicBool,
    reads: AtomicU8,
}

impl Standing {
    /// The queue pair may send from now on, and have `reads` reads and atomics outstanding.
    pub(crate) fn connect(&self, reads: u8) {
        self.reads.store(reads, Ordering::Relaxed);
        self.connected.store(true, Ordering::Release);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    pub(super) fn reads(&self) -> u8 {
        self.reads.load(Ordering::Relaxed)
    }
}

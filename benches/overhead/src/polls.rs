//! Counts polls that found nothing: a loop that polled again has executed more than it had to.
#![expect(unsafe_code, reason = "exports a name")]

use std::sync::atomic::{AtomicU64, Ordering};

static EMPTY: AtomicU64 = AtomicU64::new(0);

/// How many there were.
pub(crate) fn empty() -> u64 {
    EMPTY.load(Ordering::Relaxed)
}

/// Counts one. The loops in C call it, too.
#[unsafe(no_mangle)]
#[cold]
pub(crate) extern "C" fn empty_poll() {
    EMPTY.fetch_add(1, Ordering::Relaxed);
}

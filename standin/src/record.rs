//! The order of calls, as a test can read it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::Entry;

static ON: AtomicBool = AtomicBool::new(false);
static SEQUENCE: AtomicU64 = AtomicU64::new(1);
static LOG: Mutex<Log> = Mutex::new(Log(Vec::new()));

struct Log(Vec<Seen>);

#[derive(Clone, Copy)]
struct Seen {
    name: &'static str,
    entered: u64,
    left: u64,
    thread: u64,
    args: [usize; 4],
    returned: i64,
    errno: i32,
}

/// The number of this thread: small, and never used twice.
pub(crate) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    if OWN.get() == 0 {
        OWN.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    OWN.get()
}

/// The next number of the sequence; 0 while nothing is recorded.
pub(crate) fn number() -> u64 {
    if ON.load(Ordering::Relaxed) {
        SEQUENCE.fetch_add(1, Ordering::SeqCst)
    } else {
        0
    }
}

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a call that has ended.
pub(crate) fn add(
    name: &'static str,
    entered: u64,
    args: [usize; 4],
    returned: i64,
    errno: Option<i32>,
) {
    if entered == 0 {
        return;
    }
    let seen = Seen {
        name,
        entered,
        left: SEQUENCE.fetch_add(1, Ordering::SeqCst),
        thread: thread(),
        args,
        returned,
        errno: errno.unwrap_or(0),
    };
    log().0.push(seen);
}

/// Forgets what was recorded and records from now on, or no more.
pub(crate) fn switch(on: bool) {
    log().0.clear();
    ON.store(on, Ordering::SeqCst);
}

/// The entry at `place`, in the order in which calls ended.
pub(crate) fn entry(place: usize) -> Option<Entry> {
    let seen = *log().0.get(place)?;
    Some(Entry {
        entered: seen.entered,
        left: seen.left,
        thread: seen.thread,
        name: seen.name.as_ptr(),
        name_len: seen.name.len(),
        args: seen.args,
        returned: seen.returned,
        errno: seen.errno,
    })
}

#![expect(unsafe_code, reason = "owns pointers to ibv_mw")]

use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rdma_sys::ibv_mw;

use super::mapped::MappedMemory;
use super::pd::ProtectionDomain;
use super::region::Region;
use crate::error::{Error, Result, errno_of_verbs};

/// The memory windows that were made for one queue pair.
///
/// They are freed before the queue pair is destroyed: soft-RoCE of Linux 6.1 waits in `ibv_destroy_qp`, for ever, while a
/// window is bound by the queue pair.
#[derive(Debug, Default)]
pub(super) struct Windows {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    has_ended: bool,
    windows: Vec<Weak<RawWindow>>,
}

impl Windows {
    /// Counts `window` in, unless the queue pair has ended.
    pub(super) fn add(&self, window: &Arc<RawWindow>) -> Result<()> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.has_ended {
            return Err(ended("ibv_alloc_mw"));
        }
        if list.windows.len() == list.windows.capacity() {
            list.windows.retain(|window| window.strong_count() > 0);
        }
        list.windows.push(Arc::downgrade(window));
        Ok(())
    }

    /// Frees every window. The queue pair is about to be destroyed.
    pub(super) fn end(&self) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.has_ended = true;
        for window in mem::take(&mut list.windows) {
            if let Some(window) = window.upgrade() {
                // One that cannot be freed has leaked what it opens.
                drop(window.end());
            }
        }
    }
}

/// The error of a call for a window whose queue pair is gone.
pub(super) fn ended(op: &'static str) -> Error {
    Error::state(op, "a queue pair", "this one was destroyed")
}

/// One memory window (`ibv_mw`).
#[derive(Debug)]
pub(super) struct RawWindow {
    state: Mutex<State>,
    pd: ProtectionDomain,
}

/// # Invariants
///
/// `raw` is a window that nobody else frees, or `None` once it is freed or leaked.
pub(super) struct State {
    raw: Option<NonNull<ibv_mw>>,
    /// As far as this side knows.
    pub(super) opened: Option<Opened>,
}

/// What a window opens.
pub(super) struct Opened {
    pub(super) key: u32,
    pub(super) region: Arc<Region<MappedMemory>>,
    /// Whether the invalidation of the key is posted.
    pub(super) is_ending: bool,
}

// SAFETY: the pointer is only handed to libibverbs and the provider, which take the window on any thread, and is behind a lock.
unsafe impl Send for State {}

impl RawWindow {
    /// # Safety
    ///
    /// `raw` is a window of `pd` that nobody else frees.
    pub(super) unsafe fn new(raw: NonNull<ibv_mw>, pd: ProtectionDomain) -> Self {
        // INVARIANT: what the caller says.
        Self {
            state: Mutex::new(State {
                raw: Some(raw),
                opened: None,
            }),
            pd,
        }
    }

    pub(super) fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the window, the first time: it opens nothing any more.
    pub(super) fn end(&self) -> Result<()> {
        let mut state = self.lock();
        let opened = state.opened.take();
        let Some(raw) = state.raw.take() else {
            return Ok(());
        };
        // SAFETY: `ibv_dealloc_mw` wants a window, which is taken out here and so freed once. Peers that use it get an error.
        let returned = unsafe { rdma_sys::ibv_dealloc_mw(raw.as_ptr()) };
        errno_of_verbs(returned).map_err(|errno| {
            // Peers may still reach the memory.
            mem::forget(opened);
            mem::forget(self.pd.clone());
            Error::os("ibv_dealloc_mw", errno)
        })
    }
}

impl Drop for RawWindow {
    fn drop(&mut self) {
        // `end` is for those who want to know; a failure has leaked what the peers may reach.
        drop(self.end());
    }
}

impl State {
    /// The window, while it is there.
    pub(super) fn raw(&self, op: &'static str) -> Result<NonNull<ibv_mw>> {
        self.raw.ok_or_else(|| ended(op))
    }

    /// The key by which peers reach memory, as far as this side knows.
    pub(super) fn key(&self) -> Option<u32> {
        self.opened.as_ref().map(|opened| opened.key)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

//! The end of a listener, whose memory C frees only when every connection request of it has been acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::anchor;
use super::channel::EventChannel;
use super::handle::RawId;

/// The connection requests of one listener that are not acknowledged yet.
///
/// Requests are counted inside the channel's gate, while the listener's handle is alive. So once the handle is gone from the
/// channel's table, the number only falls.
#[derive(Debug, Default)]
pub(super) struct Requests(Arc<Counter>);

#[derive(Debug, Default)]
struct Counter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    outstanding: usize,
    /// A listener that could be destroyed neither in place nor on a thread: the last request does it.
    orphan: Option<Ending>,
}

/// An id whose handle is gone, on its way to its destruction.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) id: RawId,
    /// Whether the id has seen its device go.
    pub(super) device_removed: bool,
    /// The channel that the id needs to the last.
    pub(super) channel: EventChannel,
}

impl Ending {
    pub(super) fn destroy(self) {
        self.id.destroy();
        if self.device_removed {
            anchor::let_go_of_removed_devices();
        }
        drop(self.channel);
    }
}

/// One request that is counted until this is dropped, which must be after the ack.
#[derive(Debug)]
pub(super) struct Outstanding {
    counter: Arc<Counter>,
}

impl Requests {
    /// Counts a request.
    pub(super) fn count(&self) -> Outstanding {
        let counter = Arc::clone(&self.0);
        counter.lock().outstanding += 1;
        Outstanding { counter }
    }

    /// Destroys an id without making the caller wait for requests that others hold.
    ///
    /// With none outstanding that is done in place. Otherwise a short-lived thread calls `rdma_destroy_id`: the kernel stops
    /// listening and frees the port at once, and the call returns with the last ack.
    pub(super) fn end(&self, ending: Ending) {
        let mut state = self.0.lock();
        if state.outstanding == 0 {
            drop(state);
            ending.destroy();
            return;
        }
        state.orphan = Some(ending);
        drop(state);
        let counter = Arc::clone(&self.0);
        // When no thread can be made, the orphan waits for the last request.
        let _ = thread::Builder::new()
            .name("rdmacm-listener-end".to_owned())
            .spawn(move || counter.destroy_orphan());
    }
}

impl Counter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn destroy_orphan(&self) {
        let orphan = self.lock().orphan.take();
        if let Some(orphan) = orphan {
            orphan.destroy();
        }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        let mut state = self.counter.lock();
        state.outstanding -= 1;
        let last = state.outstanding == 0;
        drop(state);
        if last {
            self.counter.destroy_orphan();
        }
    }
}

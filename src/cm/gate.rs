use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use super::event::Event;
use super::handle::{Handle, RawId, Token};

/// What a channel's gate protects: the table of handles, and in C all that is read with an event.
#[derive(Debug, Default)]
pub(super) struct Gate {
    handles: HashMap<Token, Weak<Handle>>,
    /// Events that were read ahead, in their order, for the readers to take.
    kept: VecDeque<Kept>,
}

/// An event that was read ahead of the readers.
///
/// It does not keep its handle: a channel that nobody reads must not keep ids. A request of a listener that goes is taken out
/// by [`Gate::remove`].
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) event: Event,
    pub(super) handle: Weak<Handle>,
}

/// What comes up inside a gate and must wait until it is unlocked.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Requests to listeners that are gone.
    pub(super) orphans: Vec<RawId>,
    /// Shares of handles, each of which may be the last.
    pub(super) handles: Vec<Arc<Handle>>,
}

impl Drop for Aside {
    fn drop(&mut self) {
        for child in self.orphans.drain(..) {
            child.reject();
        }
    }
}

impl Gate {
    pub(super) fn find(&self, token: Token) -> Option<Arc<Handle>> {
        self.handles.get(&token)?.upgrade()
    }

    pub(super) fn insert(&mut self, handle: &Arc<Handle>) {
        self.handles.insert(handle.token(), Arc::downgrade(handle));
    }

    /// Takes a handle out of the table, with the events that were kept for it: these are dropped outside the gate, since a
    /// request among them is an id.
    #[must_use = "dropped outside the gate"]
    pub(super) fn remove(&mut self, token: Token) -> VecDeque<Kept> {
        self.handles.remove(&token);
        let kept = std::mem::take(&mut self.kept);
        let (out, stay) = kept.into_iter().partition(|kept| kept.event.token == token);
        self.kept = stay;
        out
    }

    pub(super) fn keep(&mut self, event: Event, handle: &Arc<Handle>) {
        self.kept.push_back(Kept {
            event,
            handle: Arc::downgrade(handle),
        });
    }

    /// Adds what was kept on another channel.
    pub(super) fn append(&mut self, kept: VecDeque<Kept>) {
        self.kept.extend(kept);
    }

    pub(super) fn take_kept(&mut self) -> Option<Kept> {
        self.kept.pop_front()
    }

    pub(super) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Forgets the events of an id that `gone` picks; none of them is a request.
    pub(super) fn forget_kept(&mut self, token: Token, gone: impl Fn(&Event) -> bool) {
        self.kept
            .retain(|kept| kept.event.token != token || !gone(&kept.event));
    }
}

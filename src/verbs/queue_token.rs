use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number by which asynchronous events name a completion queue or a shared receive queue. No two of a process ever have
/// the same, so one that is gone is never taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueToken(usize);

impl QueueToken {
    /// A number that was never used before.
    pub(super) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number as `ibv_cq::cq_context` or `ibv_srq::srq_context`: no pointer, nobody follows it.
    pub(super) fn to_context(self) -> *mut c_void {
        ptr::without_provenance_mut(self.0)
    }

    /// The number in such a context; `None` of a queue that was made without one.
    pub(super) fn of_context(context: *mut c_void) -> Option<Self> {
        (!context.is_null()).then(|| Self(context.addr()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_from_its_context_and_is_not_used_again() {
        let (one, other) = (QueueToken::new(), QueueToken::new());
        assert_ne!(one, other);
        assert_eq!(QueueToken::of_context(one.to_context()), Some(one));
        assert_eq!(QueueToken::of_context(ptr::null_mut()), None);
    }
}

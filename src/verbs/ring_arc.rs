#![expect(unsafe_code, reason = "allocates a ring together with its slots")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::process;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use super::ring::{Cell, Extra, Ring, cells, lap};
use super::slot::Slot;

/// A share of a [`Ring`], as an `Arc` would be, with the slots and the cells of the ring in the same allocation: most queue pairs
/// of a server with many have small rings.
///
/// # Invariants
///
/// It leads to a [`Shared`] in an allocation of [`layout`], which lives as long as there are shares: `shares` counts them.
pub(super) struct RingArc(NonNull<Shared>);

/// What a [`RingArc`] points to; behind it, the slots and then the cells.
struct Shared {
    shares: AtomicUsize,
    ring: Ring,
}

// SAFETY: as for `Arc`: a ring is `Send` and `Sync`, and shares are counted by an atomic.
unsafe impl Send for RingArc {}
// SAFETY: as for `Send`.
unsafe impl Sync for RingArc {}

/// From so many slots on, none crosses a line of the cache. With fewer, aligning them would cost as much memory as they take.
const ALIGNED_FROM: usize = 8;

/// What is allocated for a ring, and where its slots begin.
fn layout(depth: u32, further_each: u8) -> (Layout, usize) {
    let lap = lap(depth) as usize;
    let align = if lap < ALIGNED_FROM {
        align_of::<Slot>()
    } else {
        size_of::<Slot>()
    };
    let parts = || {
        let slots = Layout::array::<Slot>(lap)?.align_to(align)?;
        let (layout, at) = Layout::new::<Shared>().extend(slots)?;
        // All of one alignment, so that nothing is in between.
        let (layout, _) = layout.extend(Layout::new::<AtomicU64>())?;
        let (layout, _) = layout.extend(Layout::array::<Cell>(cells(depth, further_each))?)?;
        Ok((layout, at))
    };
    let made: Result<_, std::alloc::LayoutError> = parts();
    match made {
        Ok(made) => made,
        Err(_) => unreachable!("at most MAX_DEPTH slots of at most MAX_PIECES buffers"),
    }
}

impl RingArc {
    /// Makes a ring for `depth` outstanding requests of up to `pieces` buffers each, with `index` in its completion queue.
    pub(super) fn new(depth: u32, pieces: u32, index: u32) -> Self {
        Self::with(depth, pieces, index, false, None)
    }

    /// As [`new`](Self::new), with what few rings have.
    pub(super) fn with(
        depth: u32,
        pieces: u32,
        index: u32,
        has_many_consumers: bool,
        extra: Option<Extra>,
    ) -> Self {
        let depth = depth.max(1);
        let further_each = match u8::try_from(pieces.saturating_sub(1)) {
            Ok(further_each) => further_each,
            Err(_) => unreachable!("at most MAX_PIECES buffers"),
        };
        let extra = extra.map(Box::new);
        let (layout, slots_at) = layout(depth, further_each);
        // SAFETY: the layout is not empty.
        let raw = unsafe { alloc(layout) };
        let Some(raw) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        // SAFETY: inside the allocation.
        let slots = unsafe { raw.add(slots_at) }.cast();
        // SAFETY: the allocation has room for the slots and the cells, and lives as long as the ring in it.
        let ring =
            unsafe { Ring::new(slots, depth, further_each, index, has_many_consumers, extra) };
        let shares = AtomicUsize::new(1);
        let shared = raw.cast();
        // SAFETY: the allocation begins with room for it.
        unsafe { shared.write(Shared { shares, ring }) };
        // INVARIANT: just allocated, and this is the one share.
        Self(shared)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: alive while this share is (the invariant), and only shared by reference.
        unsafe { self.0.as_ref() }
    }

    /// Whether both are shares of the same ring.
    #[cfg(test)]
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Keeps the ring for ever.
    pub(super) fn leak(&self) {
        let _ = ManuallyDrop::new(self.clone());
    }
}

impl Deref for RingArc {
    type Target = Ring;

    #[inline]
    fn deref(&self) -> &Ring {
        &self.shared().ring
    }
}

impl Clone for RingArc {
    fn clone(&self) -> Self {
        let before = self.shared().shares.fetch_add(1, Ordering::Relaxed);
        if before > isize::MAX as usize {
            // So many shares were forgotten: a count that wraps would free what is in use.
            process::abort();
        }
        // INVARIANT: counted.
        Self(self.0)
    }
}

impl Drop for RingArc {
    fn drop(&mut self) {
        if self.shared().shares.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // What the others did with the ring comes before its end.
        fence(Ordering::Acquire);
        let (layout, _) = layout(self.depth(), self.further_each());
        // SAFETY: this was the last share, so nobody else has the ring, whose end needs its slots.
        unsafe { self.0.drop_in_place() };
        // SAFETY: allocated with this layout (the invariant), and given back once. Slots and cells are plain data.
        unsafe { dealloc(self.0.as_ptr().cast(), layout) };
    }
}

impl fmt::Debug for RingArc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared().ring.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_ring_of_one_request_takes_little_memory() {
        // 96 bytes with what the C library's allocator adds.
        assert_eq!(layout(1, 0).0, Layout::from_size_align(80, 8).unwrap());
    }

    #[test]
    fn the_slots_of_a_large_ring_cross_no_line_of_the_cache() {
        for depth in [5, 8, 100] {
            let ring = RingArc::new(depth, 3, 2);
            let first = ring.first();
            assert_eq!(first.addr().get() % size_of::<Slot>(), 0, "depth {depth}");
        }
    }

    #[test]
    fn every_slot_has_cells_of_its_own() {
        for (depth, pieces) in [(1, 1), (1, 3), (3, 2), (16, 255)] {
            let ring = RingArc::new(depth, pieces, 2);
            let mut cells = Vec::new();
            for place in 0..depth {
                // SAFETY: inside the ring.
                let slot = unsafe { ring.first().add(place as usize) };
                // SAFETY: a slot of the ring, shared by reference.
                let slot = unsafe { slot.as_ref() };
                let further = ring.further(slot);
                assert_eq!(further.len(), pieces as usize - 1);
                cells.extend(further.iter().map(|cell| cell.get().addr()));
            }
            cells.sort_unstable();
            assert!(
                cells
                    .windows(2)
                    .all(|pair| pair[1] - pair[0] == size_of::<Cell>())
            );
        }
    }

    #[test]
    fn what_a_ring_keeps_goes_with_its_last_share() {
        let kept = Arc::new(());
        let extra = Extra::Index {
            _index: Box::new(Arc::clone(&kept)),
        };
        let ring = RingArc::with(4, 1, 3, true, Some(extra));
        let others: Vec<_> = (0..8).map(|_| ring.clone()).collect();
        drop(ring);
        for other in others {
            assert_eq!(Arc::strong_count(&kept), 2);
            thread::spawn(move || drop(other)).join().unwrap();
        }
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}

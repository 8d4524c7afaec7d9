#![expect(unsafe_code, reason = "follows the numbers in a wr_id to a slot")]

use std::fmt;
use std::sync::atomic::Ordering;

use super::ring::{INDEX_SHIFT, Place, ring_index};
use super::ring_arc::RingArc;
use super::slot::Slot;

/// The rings of a completion queue by index: how a `wr_id` leads to its slot.
///
/// # Invariants
///
/// Entry `i` is the place of `rings[i]`, or of a static slot that no `wr_id` leading to entry `i` can match. There is a power
/// of two of entries, at least two. So any number leads to a slot that is alive, and whose id says whether it is the right one.
pub(super) struct Table {
    entries: Box<[Place]>,
    /// The byte offset of the last entry; as entries have 16 bytes, it masks a `wr_id` to the offset of its entry.
    mask: u64,
    rings: Vec<Option<RingArc>>,
}

const _: () = assert!(size_of::<Place>() == 1 << INDEX_SHIFT);

/// Where entry 0 leads, which is no ring's: ids of 0 and [`NEVER`] come here, and must find something else. An id of index 1
/// does not come here.
static FIRST: Slot = Slot::new(1 << INDEX_SHIFT);
/// Where the other unused entries lead: no id of 0 comes here.
static UNUSED: Slot = Slot::new(0);

// SAFETY: the places are of the rings beside them, or of statics; slots are `Send` and `Sync`.
unsafe impl Send for Table {}
// SAFETY: as for `Send`.
unsafe impl Sync for Table {}

impl Table {
    pub(super) fn new() -> Self {
        Self::of(vec![None, None])
    }

    /// `rings` has a power of two of elements, and none first.
    fn of(rings: Vec<Option<RingArc>>) -> Self {
        let entries: Box<[Place]> = rings
            .iter()
            .enumerate()
            .map(|(index, ring)| match ring {
                Some(ring) => ring.place(),
                None => unused(index),
            })
            .collect();
        // INVARIANT: each entry was made from its ring; the callers see to the length.
        Self {
            mask: ((entries.len() - 1) << INDEX_SHIFT) as u64,
            entries,
            rings,
        }
    }

    /// Lets `ring` be found at its index.
    pub(super) fn set(&mut self, ring: RingArc) {
        let index = ring.index() as usize;
        if index >= self.rings.len() {
            let mut rings = std::mem::take(&mut self.rings);
            rings.resize((index + 1).next_power_of_two(), None);
            *self = Self::of(rings);
        }
        self.entries[index] = ring.place();
        self.rings[index] = Some(ring);
    }

    /// Forgets the ring at `index`.
    pub(super) fn remove(&mut self, index: u32) -> Option<RingArc> {
        let index = index as usize;
        let ring = self.rings.get_mut(index)?.take()?;
        self.entries[index] = unused(index);
        Some(ring)
    }

    /// The ring that `wr_id` names, if there is one.
    pub(super) fn ring(&self, wr_id: u64) -> Option<&RingArc> {
        self.rings.get(ring_index(wr_id))?.as_ref()
    }

    /// The slot that holds `wr_id`.
    #[inline]
    pub(super) fn find(&self, wr_id: u64) -> Option<&Slot> {
        let slot = self.slot(wr_id);
        (slot.id.load(Ordering::Acquire) == wr_id).then_some(slot)
    }

    /// The slot that holds `wr_id`, by a read that sees the last word of its producer.
    pub(super) fn find_at_last(&self, wr_id: u64) -> Option<&Slot> {
        let slot = self.slot(wr_id);
        slot.holds(wr_id).then_some(slot)
    }

    /// Where the ring of `id` is.
    #[inline]
    pub(super) fn place(&self, id: u64) -> Place {
        // CAST: masked to the size of a table.
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table")]
        let offset = (id & self.mask) as usize;
        // SAFETY: the mask keeps the offset inside the entries, at the start of one.
        let entry = unsafe { self.entries.as_ptr().byte_add(offset) };
        // SAFETY: as above.
        unsafe { *entry }
    }

    /// The slot that `wr_id` leads to.
    #[inline]
    fn slot(&self, wr_id: u64) -> &Slot {
        // SAFETY: `rings` keeps the ring of each entry; the others are statics.
        unsafe { self.place(wr_id).slot(wr_id) }
    }
}

fn unused(index: usize) -> Place {
    Place::of_static(if index == 0 { &FIRST } else { &UNUSED })
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rings.iter().flatten()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::Op;
    use super::super::producer::Producer;
    use super::super::ring::MAX_RINGS;
    use super::super::slot::{Held, Kind, NEVER};
    use super::*;

    #[test]
    fn an_invented_id_finds_nothing() {
        let mut table = Table::new();
        let ids = (0..64).flat_map(|bit| [1_u64 << bit, !(1 << bit)]);
        let ids: Vec<u64> = ids.chain([0, NEVER, u64::MAX]).collect();
        for index in [2, 3, 9, 64] {
            table.set(RingArc::new(4, 1, index));
            for &id in &ids {
                assert!(table.find(id).is_none(), "id {id:#x}, index {index}");
                assert!(
                    table.find_at_last(id).is_none(),
                    "id {id:#x}, index {index}"
                );
            }
        }
    }

    #[test]
    fn the_id_of_a_claimed_slot_leads_to_no_slot() {
        // In a small table, an index with all bits set leads to the last entry.
        for index in [1, 3, MAX_RINGS - 1] {
            let mut table = Table::new();
            let mut producer = Producer::shut(RingArc::new(1, 1, index)).opened();
            table.set(producer.ring().clone());
            let ready = producer.ready().unwrap();
            // SAFETY: just given.
            let id = unsafe { producer.put(ready, Held::new(Kind::Shared, Op::Receive, 0)) };
            assert!(table.find(id).unwrap().claim(id));
            assert_eq!(producer.slot_of(id).id.load(Ordering::Relaxed), NEVER);
            assert!(table.find(NEVER).is_none(), "index {index}");
            assert!(table.find_at_last(NEVER).is_none(), "index {index}");
        }
    }

    #[test]
    fn a_posted_id_finds_its_slot_until_the_ring_is_removed() {
        let mut table = Table::new();
        let mut producers: Vec<_> = [2, 5, 33]
            .map(|index| Producer::shut(RingArc::new(3, 1, index)).opened())
            .into();
        for producer in &producers {
            table.set(producer.ring().clone());
        }
        for user in 0..3 {
            for producer in &mut producers {
                let ready = producer.ready().unwrap();
                // SAFETY: just given.
                let id = unsafe { producer.put(ready, Held::new(Kind::Bare, Op::Send, user)) };
                let slot = table.find(id).unwrap();
                // SAFETY: this thread is the only consumer, and has seen the id.
                assert_eq!(unsafe { slot.held() }.user, user);
                assert!(std::ptr::eq(slot, producer.slot_of(id)));
                assert!(table.ring(id).unwrap().is(producer.ring()));
            }
        }
        let id = 5 << INDEX_SHIFT | 2;
        assert!(table.find(id).is_some());
        assert!(table.remove(5).is_some());
        assert!(table.find(id).is_none());
        assert!(table.remove(5).is_none());
    }
}

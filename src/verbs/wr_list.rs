#![expect(unsafe_code, reason = "links work requests to a list")]

use std::fmt;
use std::ptr::NonNull;

use rdma_sys::{ibv_send_wr, ibv_sge};

/// Room for the requests of a [`Batch`](super::Batch): made once, and used again for any queue.
///
/// 144 bytes for each request.
///
/// # Invariants
///
/// `entries` came from a box, and are this value's own. They are used by raw pointers only, since they point to each other.
pub struct WrList {
    /// Linked in their order.
    entries: NonNull<[Entry]>,
}

/// A request with one piece.
#[repr(C)]
pub(super) struct Entry {
    /// First, so that it is found where the entry is.
    pub(super) wr: ibv_send_wr,
    pub(super) sge: ibv_sge,
}

const _: () = assert!(size_of::<Entry>() == 144);

// SAFETY: the pointers lead from one entry to the next and to its own element.
unsafe impl Send for WrList {}
// SAFETY: through `&WrList` nothing is done.
unsafe impl Sync for WrList {}

impl WrList {
    /// Room for `requests` requests, at least one.
    #[must_use]
    pub fn with_capacity(requests: usize) -> Self {
        let requests = requests.max(1);
        let entries: Box<[Entry]> = (0..requests)
            .map(|_| Entry {
                wr: ibv_send_wr {
                    num_sge: 1,
                    ..ibv_send_wr::default()
                },
                sge: ibv_sge::default(),
            })
            .collect();
        // INVARIANT: from a box, which nobody has any more.
        let this = Self {
            entries: NonNull::from(Box::leak(entries)),
        };
        let start = this.start();
        for place in 0..requests {
            // SAFETY: inside the list.
            let entry = unsafe { start.add(place) };
            // SAFETY: as above; nothing is read.
            let sge = unsafe { &raw mut (*entry).sge };
            // SAFETY: as above; nobody else refers to it.
            let wr = unsafe { &mut (*entry).wr };
            wr.sg_list = sge;
            if place + 1 < requests {
                // SAFETY: inside the list. The request is the first field of an entry.
                wr.next = unsafe { entry.add(1) }.cast();
            }
        }
        this
    }

    /// Where the first entry is.
    pub(super) fn start(&self) -> *mut Entry {
        self.entries.as_ptr().cast()
    }

    /// How many requests there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }
}

impl Drop for WrList {
    fn drop(&mut self) {
        // SAFETY: from a box, and this value's own (the invariant).
        drop(unsafe { Box::from_raw(self.entries.as_ptr()) });
    }
}

impl fmt::Debug for WrList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrList")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_leads_to_its_element_and_to_the_next() {
        let list = WrList::with_capacity(3);
        assert_eq!(list.capacity(), 3);
        for round in 1..3 {
            let start = list.start();
            let mut entry = start;
            for place in 0..3 {
                // SAFETY: inside the list, and nobody else refers to it.
                let Entry { wr, sge } = unsafe { &mut *entry };
                wr.wr_id = u64::from(place);
                sge.length = 10 * round + place;
                // SAFETY: at most the end of the list.
                entry = unsafe { entry.add(1) };
            }
            // As a provider walks over it.
            let mut at: *const ibv_send_wr = start.cast();
            let mut found = Vec::new();
            while !at.is_null() {
                // SAFETY: the list is alive, and nobody else refers to it.
                let wr = unsafe { &*at };
                // SAFETY: as above.
                let sge = unsafe { &*wr.sg_list };
                found.push((wr.wr_id, wr.num_sge, sge.length));
                at = wr.next;
            }
            let wanted = [0, 1, 2].map(|place| (u64::from(place), 1, 10 * round + place));
            assert_eq!(found, wanted);
        }
    }
}

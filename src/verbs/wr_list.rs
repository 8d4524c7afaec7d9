#![expect(unsafe_code, reason = "links work requests to a list")]

use std::fmt;

use rdma_sys::{ibv_send_wr, ibv_sge};

/// Room for the requests of a [`Batch`](super::Batch): made once, and used again for any queue.
///
/// 144 bytes for each request.
pub struct WrList {
    /// Linked in their order.
    pub(super) entries: Box<[Entry]>,
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
        let mut entries: Box<[Entry]> = (0..requests)
            .map(|_| Entry {
                wr: ibv_send_wr {
                    num_sge: 1,
                    ..ibv_send_wr::default()
                },
                sge: ibv_sge::default(),
            })
            .collect();
        let start = entries.as_mut_ptr();
        for place in 0..entries.len() {
            // SAFETY: inside the box.
            let entry = unsafe { start.add(place) };
            // SAFETY: as above; nothing is read.
            let sge = unsafe { &raw mut (*entry).sge };
            // SAFETY: as above; nobody else refers to it.
            let wr = unsafe { &mut (*entry).wr };
            wr.sg_list = sge;
            if place + 1 < requests {
                // SAFETY: inside the box. The request is the first field of an entry.
                wr.next = unsafe { entry.add(1) }.cast();
            }
        }
        Self { entries }
    }

    /// How many requests there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }
}

impl fmt::Debug for WrList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrList")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

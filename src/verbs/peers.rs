use std::sync::atomic::{AtomicU64, Ordering};

use rdma_sys::ibv_ah;

use super::ah::AddressHandle;

/// A destination of datagrams that a queue knows: see
/// [`DatagramSendQueue::add_peer`](super::DatagramSendQueue::add_peer).
///
/// A small number, which another queue does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    place: u32,
    /// Never given twice in a process.
    number: u64,
}

/// The destinations of a send queue.
///
/// An address handle must live until the sends along it have completed. So what is removed stays until the last send to it has
/// given its slot back.
#[derive(Debug, Default)]
pub(super) struct Peers {
    known: Vec<Known>,
    /// Places in `known` that are free.
    free: Vec<u32>,
    leaving: Vec<Leaving>,
}

/// One destination.
#[derive(Debug)]
pub(super) struct Known {
    /// 0 for a place that is free.
    number: u64,
    ah: Option<AddressHandle>,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
    /// The id of the last send, 0 for none.
    pub(super) last: u64,
}

/// A handle that is used no more, but may be in use.
#[derive(Debug)]
struct Leaving {
    ah: AddressHandle,
    qp_num: u32,
    qkey: u32,
    last: u64,
}

/// Where one send goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) ah: *mut ibv_ah,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
}

impl Known {
    #[inline]
    pub(super) fn target(&self) -> Target {
        Target {
            ah: self
                .ah
                .as_ref()
                .map_or(std::ptr::null_mut(), AddressHandle::as_raw),
            qp_num: self.qp_num,
            qkey: self.qkey,
        }
    }
}

impl Peers {
    pub(super) fn add(&mut self, ah: AddressHandle, qp_num: u32, qkey: u32) -> Peer {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let known = Known {
            number,
            ah: Some(ah),
            qp_num,
            qkey,
            last: 0,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.known[place as usize] = known;
                place
            }
            None => {
                self.known.push(known);
                // CAST: four thousand million destinations do not fit into memory.
                u32::try_from(self.known.len() - 1).unwrap_or(u32::MAX)
            }
        };
        Peer { place, number }
    }

    #[inline]
    pub(super) fn find(&mut self, peer: Peer) -> Option<&mut Known> {
        self.known
            .get_mut(peer.place as usize)
            .filter(|known| known.number == peer.number)
    }

    /// Forgets a destination; false when it is not known. `is_posted` says whether a send has not completed yet.
    pub(super) fn remove(&mut self, peer: Peer, is_posted: impl Fn(u64) -> bool) -> bool {
        let Some(known) = self.find(peer) else {
            return false;
        };
        known.number = 0;
        let (qp_num, qkey, last) = (known.qp_num, known.qkey, known.last);
        let ah = known.ah.take();
        self.free.push(peer.place);
        if let Some(ah) = ah {
            self.leaving.push(Leaving {
                ah,
                qp_num,
                qkey,
                last,
            });
        }
        self.let_go(is_posted);
        true
    }

    /// Drops the handles that are not in use any more.
    pub(super) fn let_go(&mut self, is_posted: impl Fn(u64) -> bool) {
        self.leaving
            .retain(|leaving| leaving.last != 0 && is_posted(leaving.last));
    }

    /// A destination whose last send has not completed.
    pub(super) fn any_posted(&self, is_posted: impl Fn(u64) -> bool) -> Option<Target> {
        let known = self
            .known
            .iter()
            .find(|known| known.last != 0 && known.ah.is_some() && is_posted(known.last));
        if let Some(known) = known {
            return Some(known.target());
        }
        let leaving = self
            .leaving
            .iter()
            .find(|leaving| is_posted(leaving.last))?;
        Some(Target {
            ah: leaving.ah.as_raw(),
            qp_num: leaving.qp_num,
            qkey: leaving.qkey,
        })
    }

    /// Notes a send to a destination that [`any_posted`](Self::any_posted) gave.
    pub(super) fn keep_until(&mut self, target: Target, id: u64) {
        let is_it = |ah: &AddressHandle| ah.as_raw() == target.ah;
        for known in &mut self.known {
            if known.ah.as_ref().is_some_and(is_it) {
                known.last = id;
            }
        }
        for leaving in &mut self.leaving {
            if is_it(&leaving.ah) {
                leaving.last = id;
            }
        }
    }

    /// Every handle, for whoever keeps them until the end of the queue pair.
    pub(super) fn into_handles(self) -> Vec<AddressHandle> {
        let known = self.known.into_iter().filter_map(|known| known.ah);
        known
            .chain(self.leaving.into_iter().map(|leaving| leaving.ah))
            .collect()
    }
}

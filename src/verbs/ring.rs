#![expect(
    unsafe_code,
    reason = "hands buffers from a posting thread to a polling thread"
)]

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::completion::Op;
use super::pool::{Buf, Piece};

/// The slots of one work queue: what is posted and has not completed.
///
/// A completion names its request by the `wr_id` that is also in the slot, never by a pointer: bits 63 to 24 are the
/// request's number, bits 23 to 4 the ring's index in its completion queue, bits 3 to 0 are zero. A repeated, stale or
/// invented `wr_id` matches no slot.
///
/// # Invariants
///
/// While a slot's `id` is 0 its other fields belong to the [`Producer`], else to the ring's one consumer, the poller of the
/// completion queue. The producer stores the id (release) before it calls the provider; the consumer stores 0 (release) after
/// it has read the fields. So nobody reads a field while somebody writes it.
pub(super) struct Ring {
    slots: Box<[Slot]>,
    /// `slots.len() - 1`; the length is a power of two.
    mask: u64,
    /// How many requests may be outstanding: at most `slots.len()`.
    depth: u64,
    /// The index in the completion queue's table, in place in a `wr_id`.
    index_bits: u64,
}

/// One request. 32 bytes, so that two share a cache line and none crosses one.
#[repr(C, align(32))]
struct Slot {
    id: AtomicU64,
    user: UnsafeCell<u64>,
    piece: UnsafeCell<Option<NonNull<Piece>>>,
    op: UnsafeCell<Op>,
}

const _: () = assert!(size_of::<Slot>() == 32);

/// What a slot held.
pub(super) struct Taken {
    pub(super) buf: Buf,
    pub(super) user: u64,
    pub(super) op: Op,
}

const INDEX_SHIFT: u32 = 4;
const NUMBER_SHIFT: u32 = 24;
/// Ring indices are below this.
pub(super) const MAX_RINGS: u32 = 1 << (NUMBER_SHIFT - INDEX_SHIFT);

/// The index of the ring that a `wr_id` names.
pub(super) fn ring_index(wr_id: u64) -> usize {
    // CAST: 20 bits.
    (wr_id >> INDEX_SHIFT) as usize & (MAX_RINGS as usize - 1)
}

// SAFETY: the cells are passed between one producer and one consumer by the `id` (the invariant): acquire and release order
// the accesses. A piece may be sent, as the `Buf` that it stands for.
unsafe impl Send for Ring {}
// SAFETY: as for `Send`: there is one `Producer` of a ring and one consumer, and the `id` says whose turn it is.
unsafe impl Sync for Ring {}

impl Ring {
    /// Makes a ring for `depth` outstanding requests, with `index` in its completion queue, and its only producer.
    pub(super) fn with_producer(depth: u32, index: u32) -> Producer {
        let len = depth.max(1).next_power_of_two();
        let slots = (0..len)
            .map(|_| Slot {
                id: AtomicU64::new(0),
                user: UnsafeCell::new(0),
                piece: UnsafeCell::new(None),
                op: UnsafeCell::new(Op::Send),
            })
            .collect();
        Producer {
            ring: Arc::new(Self {
                slots,
                mask: u64::from(len) - 1,
                depth: u64::from(depth),
                index_bits: u64::from(index) << INDEX_SHIFT,
            }),
            // Number 0 of ring 0 would give the id 0, which means "free".
            next: 1,
        }
    }

    fn slot(&self, number: u64) -> &Slot {
        // CAST: the mask is below 2^32.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "masked to the length of a slice"
        )]
        let place = (number & self.mask) as usize;
        &self.slots[place]
    }

    /// Takes out the request that `wr_id` names, if it is posted in this ring.
    ///
    /// # Safety
    ///
    /// The caller is the ring's consumer, and the request is complete: the device has let go of its memory.
    pub(super) unsafe fn take(&self, wr_id: u64) -> Option<Taken> {
        let slot = self.slot(wr_id >> NUMBER_SHIFT);
        if wr_id == 0 || slot.id.load(Ordering::Acquire) != wr_id {
            return None;
        }
        // SAFETY: the id is not 0, so the fields are the consumer's, which the caller is.
        let user = unsafe { *slot.user.get() };
        // SAFETY: as above.
        let op = unsafe { *slot.op.get() };
        // SAFETY: as above.
        let piece = unsafe { *slot.piece.get() };
        slot.id.store(0, Ordering::Release);
        let piece = piece?;
        // SAFETY: the piece came from `into_piece` and is taken back once, since the id is 0 now; the device has let go.
        let buf = unsafe { Buf::from_piece(piece) };
        Some(Taken { buf, user, op })
    }

    /// Whether the request that `wr_id` names is posted in this ring, by a read that sees the producer's last word whatever
    /// order the device's writes became visible in.
    pub(super) fn holds(&self, wr_id: u64) -> bool {
        let id = &self.slot(wr_id >> NUMBER_SHIFT).id;
        id.compare_exchange(wr_id, wr_id, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Whether nothing is posted.
    pub(super) fn is_empty(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| slot.id.load(Ordering::Acquire) == 0)
    }

    /// How many requests may be outstanding.
    pub(super) fn depth(&self) -> u32 {
        // CAST: it was made from a u32.
        #[expect(clippy::cast_possible_truncation, reason = "made from a u32")]
        let depth = self.depth as u32;
        depth
    }
}

impl Drop for Ring {
    /// Gives every buffer back to its pool. A ring is dropped only when its queue pair's destruction has succeeded: until
    /// then the queue pair holds it, and if the destruction fails it is leaked.
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if *slot.id.get_mut() == 0 {
                continue;
            }
            let Some(piece) = slot.piece.get_mut().take() else {
                continue;
            };
            // SAFETY: the piece came from `into_piece`; nobody else takes it back, since the ring is dropped; the queue pair
            // is gone, so the device does not use it.
            drop(unsafe { Buf::from_piece(piece) });
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

/// The posting side of a [`Ring`]: there is one, and it is used through `&mut`.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Arc<Ring>,
    next: u64,
}

impl Producer {
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Puts a request into the next slot and gives the `wr_id` to post it with; gives the buffer back when the queue is full.
    pub(super) fn put(&mut self, buf: Buf, user: u64, op: Op) -> Result<u64, Buf> {
        let number = self.next;
        let slot = self.ring.slot(number);
        let oldest = self.ring.slot(number.wrapping_sub(self.ring.depth));
        if slot.id.load(Ordering::Acquire) != 0 || oldest.id.load(Ordering::Acquire) != 0 {
            return Err(buf);
        }
        let id = (number << NUMBER_SHIFT) | self.ring.index_bits;
        // SAFETY: the id is 0, so the fields are the producer's, which `&mut self` is.
        unsafe { *slot.user.get() = user };
        // SAFETY: as above.
        unsafe { *slot.op.get() = op };
        // SAFETY: as above.
        unsafe { *slot.piece.get() = Some(buf.into_piece()) };
        slot.id.store(id, Ordering::Release);
        // 40 bits of number: after the last comes 1, as at the start.
        self.next = if number == u64::MAX >> NUMBER_SHIFT {
            1
        } else {
            number + 1
        };
        Ok(id)
    }

    /// Takes back the request just put, which the provider has refused by name.
    ///
    /// # Safety
    ///
    /// `id` is what the last `put` gave, and the device does not have the request.
    pub(super) unsafe fn take_back(&mut self, id: u64) -> Option<Buf> {
        // SAFETY: the provider refused the request, so no completion of it comes and the consumer does not touch the slot:
        // this call acts in its place.
        let taken = unsafe { self.ring.take(id) }?;
        self.next = id >> NUMBER_SHIFT;
        Some(taken.buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_ring_and_never_is_zero() {
        let producer = Ring::with_producer(4, 5);
        assert_eq!(producer.next, 1);
        assert_eq!(
            ring_index((7 << NUMBER_SHIFT) | producer.ring.index_bits),
            5
        );
        assert_eq!(ring_index(u64::MAX), MAX_RINGS as usize - 1);
    }

    #[test]
    fn an_invented_id_matches_no_slot() {
        let producer = Ring::with_producer(3, 0);
        assert!(producer.ring.is_empty());
        assert_eq!(producer.ring.depth(), 3);
        for id in [0, 1 << NUMBER_SHIFT, u64::MAX] {
            // SAFETY: this thread is the only consumer, and nothing was posted.
            assert!(unsafe { producer.ring.take(id) }.is_none(), "id {id:#x}");
        }
    }
}

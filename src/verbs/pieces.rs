#![expect(unsafe_code, reason = "takes buffers out of the slots of a ring")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::ibv_wc;

use super::buf::Buf;
use super::completion::{Done, finished};
use super::op::Op;
use super::ring::Ring;
use super::slot::Slot;
use crate::error::Result;
use crate::status::Status;

/// A finished request with several buffers (scatter/gather elements, SGEs). Those that are not taken out go back to their pools.
///
/// An iterator over the buffers, in the order in which they were given. After a receive each is as long as what arrived in it.
#[must_use = "dropping it gives the buffers back to their pools"]
pub struct Pieces<'c> {
    /// Beside the queue, so that a completion is two words.
    spread: &'c mut Spread,
}

/// A request with several buffers, or a datagram, while it is handed out: kept by the completion queue.
///
/// # Invariants
///
/// While a [`Pieces`] or a [`Datagram`](super::Datagram) borrows it: the slot is one of `ring`, holds as many buffers as it says,
/// and is theirs.
pub(super) struct Spread {
    slot: NonNull<Slot>,
    wc: NonNull<ibv_wc>,
    ring: NonNull<Ring>,
    /// How many were taken.
    next: u8,
    /// What a receive has put into those that are left.
    bytes: u32,
}

// SAFETY: the pointers are followed only by a `Pieces`, which borrows the completion queue.
unsafe impl Send for Spread {}
// SAFETY: as for `Send`.
unsafe impl Sync for Spread {}

impl Spread {
    pub(super) const NONE: Self = Self {
        slot: NonNull::dangling(),
        wc: NonNull::dangling(),
        ring: NonNull::dangling(),
        next: 0,
        bytes: 0,
    };

    /// Of a slot of `ring`.
    pub(super) fn new(done: Done<'_>, ring: &Ring) -> Self {
        let bytes = match done.op() {
            Op::Receive => done.received(u32::MAX),
            _ => 0,
        };
        Self {
            slot: NonNull::from(done.slot),
            wc: NonNull::from(done.wc),
            ring: NonNull::from(ring),
            next: 0,
            bytes,
        }
    }

    /// # Safety
    ///
    /// The completion queue, which keeps ring and entry, is borrowed.
    pub(super) unsafe fn done(&self) -> Done<'_> {
        Done {
            // SAFETY: the caller's own obligation.
            slot: unsafe { self.slot.as_ref() },
            // SAFETY: as above.
            wc: unsafe { self.wc.as_ref() },
        }
    }

    /// # Safety
    ///
    /// As for [`done`](Self::done).
    pub(super) unsafe fn ring(&self) -> &Ring {
        // SAFETY: the caller's own obligation.
        unsafe { self.ring.as_ref() }
    }
}

finished!(Pieces);

impl<'c> Pieces<'c> {
    /// # Safety
    ///
    /// `spread` was just made, of a slot that is this value's.
    pub(super) unsafe fn new(spread: &'c mut Spread) -> Self {
        Self { spread }
    }

    fn done(&self) -> Done<'_> {
        // SAFETY: the completion queue is borrowed.
        unsafe { self.spread.done() }
    }

    /// The queue pair that a message came on.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.done().wc.qp_num
    }

    /// The immediate value that came with a message, if one did. In host order; C's `imm_data` is in network order.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        match self.op() {
            Op::Receive => self.done().imm(),
            _ => None,
        }
    }

    /// How many bytes came with a message, as [`Received::byte_len`](super::Received::byte_len) says; 0 for a request of a send
    /// queue.
    #[must_use]
    pub fn byte_len(&self) -> u32 {
        match self.op() {
            Op::Receive => self.done().byte_len(),
            _ => 0,
        }
    }

    /// Whether it was a write with an immediate value that used a receive up, as
    /// [`Received::is_write_with_imm`](super::Received::is_write_with_imm) says.
    #[doc(alias = "IBV_WC_RECV_RDMA_WITH_IMM")]
    #[must_use]
    pub fn is_write_with_imm(&self) -> bool {
        self.op() == Op::Receive && self.done().is_write_with_imm()
    }

    /// The key of the memory window that a message has invalidated, if it did.
    #[must_use]
    pub fn invalidated(&self) -> Option<u32> {
        match self.op() {
            Op::Receive => self.done().invalidated(),
            _ => None,
        }
    }

    /// All buffers at once; `None`, and the buffers go back to their pools, when there are not `K` left.
    #[must_use]
    pub fn into_bufs<const K: usize>(mut self) -> Option<[Buf; K]> {
        if self.len() != K {
            return None;
        }
        let bufs = std::array::from_fn(|_| self.next());
        // Each is there: there are `K`.
        bufs.iter()
            .all(Option::is_some)
            .then(|| bufs.map(|buf| buf.unwrap_or_else(|| unreachable!("there are {K} buffers"))))
    }
}

impl Iterator for Pieces<'_> {
    type Item = Buf;

    fn next(&mut self) -> Option<Buf> {
        // SAFETY: this value is the consumer of the slot.
        let held = unsafe { self.done().slot.held() };
        if self.spread.next == held.pieces {
            return None;
        }
        let piece = match self.spread.next.checked_sub(1) {
            // SAFETY: as above. It is taken out, so that a forgotten value has no second owner of it in the slot.
            None => unsafe { self.done().slot.take_first() },
            Some(place) => {
                // SAFETY: as in `done`.
                let ring = unsafe { self.spread.ring() };
                let cell = &ring.further(self.done().slot)[usize::from(place)];
                // SAFETY: the further buffers belong to whom the slot belongs to.
                unsafe { (*cell.get()).take() }
            }
        }?;
        self.spread.next += 1;
        // SAFETY: the piece came from `into_piece`; the request has completed; each is taken once, since `next` goes on.
        let mut buf = unsafe { Buf::from_piece(piece) };
        if held.op() == Op::Receive {
            let capacity = buf.whole().length;
            let length = self.spread.bytes.min(capacity);
            self.spread.bytes -= length;
            buf.set_length(length);
        }
        Some(buf)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // SAFETY: this value is the consumer of the slot.
        let pieces = unsafe { self.done().slot.held() }.pieces;
        let left = usize::from(pieces - self.spread.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Pieces<'_> {}

impl Drop for Pieces<'_> {
    #[inline]
    fn drop(&mut self) {
        end(self.spread);
    }
}

/// Gives back what was not taken. By reference to what is elsewhere, so that a completion can stay in registers.
#[inline(never)]
fn end(spread: &mut Spread) {
    let slot = spread.slot;
    // SAFETY: the caller has borrowed it from a `Pieces`, which ends; a second one's end is not run.
    let mut pieces = ManuallyDrop::new(unsafe { Pieces::new(spread) });
    for buf in &mut *pieces {
        drop(buf);
    }
    // SAFETY: the completion queue, which is borrowed, keeps the ring.
    unsafe { slot.as_ref() }.free();
}

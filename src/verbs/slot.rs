#![expect(
    unsafe_code,
    reason = "hands buffers from a posting thread to a polling thread"
)]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buf::Piece;
use super::op::Op;

/// One posted request. 32 bytes, so that two share a cache line and none crosses one.
///
/// # Invariants
///
/// While `id` is 0, `held` is the producer's, else the consumer's. The producer stores the id (release) before it calls the
/// provider; the consumer stores 0 (release) after it has read. So nobody reads `held` while somebody writes it.
#[repr(C, align(32))]
pub(super) struct Slot {
    pub(super) id: AtomicU64,
    held: UnsafeCell<Held>,
}

const _: () = assert!(size_of::<Slot>() == 32);

/// What a slot holds while its request is posted.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// The number that the caller has given.
    pub(super) user: u64,
    /// The first buffer; further ones lie beside the ring.
    pub(super) piece: Option<NonNull<Piece>>,
    /// The [`Kind`] in the low eight bits; above them how many unsignalled requests were posted right before.
    pub(super) kind_and_run: u32,
    pub(super) op: Op,
    /// How many buffers.
    pub(super) pieces: u8,
}

/// What the completion of a slot becomes. The first two are told apart on the fast path, and mean it only without a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A request of a send queue with one buffer.
    Sent,
    /// A receive with one buffer.
    Received,
    /// A request without a buffer.
    Bare,
    /// Several buffers, or none.
    Pieces,
    /// A receive of a shared receive queue, with one buffer.
    Shared,
    /// A request on memory that is lent to a scope, for reading.
    Lent,
    /// A request on memory that is lent to a scope, for writing, too.
    LentMut,
    /// A receive of a datagram queue pair, with one buffer.
    Datagram,
    /// None of ours: in no slot.
    Foreign,
}

pub(super) const SENT: u32 = Kind::Sent as u32;
pub(super) const RECEIVED: u32 = Kind::Received as u32;

impl Held {
    /// One request right before was unsignalled.
    pub(super) const RUN: u32 = 1 << 8;

    pub(super) const fn new(kind: Kind, op: Op, user: u64) -> Self {
        Self {
            user,
            piece: None,
            kind_and_run: kind as u32,
            op,
            pieces: 0,
        }
    }

    /// How many unsignalled requests were posted right before and are not handed out yet.
    pub(super) const fn run(&self) -> u32 {
        self.kind_and_run >> 8
    }

    pub(super) const fn kind(&self) -> Kind {
        match self.kind_and_run & 0xff {
            SENT => Kind::Sent,
            RECEIVED => Kind::Received,
            2 => Kind::Bare,
            3 => Kind::Pieces,
            4 => Kind::Shared,
            5 => Kind::Lent,
            6 => Kind::LentMut,
            7 => Kind::Datagram,
            _ => Kind::Foreign,
        }
    }
}

// SAFETY: `held` is passed between one producer and one consumer by the `id` (the invariant): acquire and release order the
// accesses. A piece may be sent, as the buffer that it stands for.
unsafe impl Send for Slot {}
// SAFETY: as for `Send`.
unsafe impl Sync for Slot {}

impl Slot {
    /// A slot that is free, for the id 0; or taken for good, for any other.
    pub(super) const fn new(id: u64) -> Self {
        Self {
            id: AtomicU64::new(id),
            held: UnsafeCell::new(Held::new(Kind::Bare, Op::Send, 0)),
        }
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.id.load(Ordering::Acquire) == 0
    }

    /// Puts a request in and publishes it.
    ///
    /// # Safety
    ///
    /// The caller is the ring's producer and has seen the slot free.
    #[inline]
    pub(super) unsafe fn put(&self, id: u64, held: Held) {
        // SAFETY: the id is 0, so `held` is the producer's, which the caller is.
        unsafe { *self.held.get() = held };
        self.id.store(id, Ordering::Release);
    }

    /// What is in the slot.
    ///
    /// # Safety
    ///
    /// The caller is the ring's consumer, or acts in its place, and has seen (acquire) an id in the slot.
    #[inline]
    pub(super) unsafe fn held(&self) -> Held {
        // SAFETY: the id is not 0, so `held` is the consumer's, which the caller is.
        unsafe { *self.held.get() }
    }

    /// Takes the first buffer out: the request has none any more.
    ///
    /// # Safety
    ///
    /// As for [`held`](Self::held), of a slot with one buffer.
    pub(super) unsafe fn take_piece(&self) -> Option<NonNull<Piece>> {
        // SAFETY: the id is not 0, so `held` is the consumer's, which the caller is.
        let held = unsafe { &mut *self.held.get() };
        held.kind_and_run = held.kind_and_run & !0xff | Kind::Bare as u32;
        held.piece.take()
    }

    /// Takes the first of several buffers out.
    ///
    /// # Safety
    ///
    /// As for [`held`](Self::held).
    pub(super) unsafe fn take_first(&self) -> Option<NonNull<Piece>> {
        // SAFETY: the id is not 0, so `held` is the consumer's, which the caller is.
        unsafe { (*self.held.get()).piece.take() }
    }

    /// One more request of the run before this one was handed out.
    ///
    /// # Safety
    ///
    /// As for [`held`](Self::held), and the run is not 0.
    pub(super) unsafe fn shorten_run(&self) {
        // SAFETY: the id is not 0, so `held` is the consumer's, which the caller is.
        unsafe { (*self.held.get()).kind_and_run -= Held::RUN };
    }

    /// Gives the slot back to the producer.
    #[inline]
    pub(super) fn free(&self) {
        self.id.store(0, Ordering::Release);
    }

    /// Claims the slot for one of several consumers, if it holds `id`: it holds another one afterwards by which nobody can claim
    /// it.
    pub(super) fn claim(&self, id: u64) -> bool {
        // An invented completion may name one that is claimed.
        id & CLAIMED == 0
            && self
                .id
                .compare_exchange(id, id | CLAIMED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Whether the slot holds `id`, by a read that sees the producer's last word whatever order the device's writes became
    /// visible in.
    pub(super) fn holds(&self, id: u64) -> bool {
        self.id
            .compare_exchange(id, id, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// A bit of an id that no posted id has.
const CLAIMED: u64 = 1;

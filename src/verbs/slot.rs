#![expect(
    unsafe_code,
    reason = "hands buffers from a posting thread to a polling thread"
)]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buf::Piece;
use super::op::Op;

/// One posted request. 32 bytes, so that two share a line of the cache.
///
/// # Invariants
///
/// While `id` is 0, `held` is the producer's, else the consumer's. The producer stores the id (release) before it calls the
/// provider; the consumer stores 0 (release) after it has read. So nobody reads `held` while somebody writes it.
#[repr(C)]
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
    /// See [`op`](Self::op).
    op: Op,
    /// How many buffers, of a request with several.
    pub(super) pieces: u8,
    /// Written with the others, as one word.
    rest: u16,
}

/// The rest of a [`Held`].
pub(super) type What = (u32, Op, u8);

/// What the completion of a slot becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A receive with one buffer.
    Received,
    /// A request of a send queue with one buffer.
    Sent,
    /// A request without a buffer.
    Bare,
    /// Several buffers, or none.
    Pieces,
    /// A receive with one buffer, of a shared receive queue that several completion queues report.
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

pub(super) const RECEIVED: u32 = Kind::Received as u32;
pub(super) const SENT: u32 = Kind::Sent as u32;
pub(super) const BARE: u32 = Kind::Bare as u32;

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
            rest: 0,
        }
    }

    /// As a receive that several completion queues may report.
    #[inline]
    pub(super) const fn shared(mut self) -> Self {
        self.kind_and_run = Kind::Shared as u32;
        self
    }

    /// What there is beside `user` and `piece`.
    #[inline]
    pub(super) const fn what(&self) -> What {
        (self.kind_and_run, self.op, self.pieces)
    }

    pub(super) const fn of_parts(user: u64, piece: Option<NonNull<Piece>>, what: What) -> Self {
        let (kind_and_run, op, pieces) = what;
        Self {
            user,
            piece,
            kind_and_run,
            op,
            pieces,
            rest: 0,
        }
    }

    /// What the request does.
    pub(super) const fn op(&self) -> Op {
        self.op
    }

    /// How many unsignalled requests were posted right before and are not handed out yet.
    pub(super) const fn run(&self) -> u32 {
        self.kind_and_run >> 8
    }

    pub(super) const fn kind(&self) -> Kind {
        match self.kind_and_run & 0xff {
            RECEIVED => Kind::Received,
            SENT => Kind::Sent,
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

    /// Whether a slot is free, of which nothing but the id is looked at.
    ///
    /// # Safety
    ///
    /// There is the id of a slot at least.
    #[inline]
    pub(super) unsafe fn is_free_at(slot: NonNull<Self>) -> bool {
        // SAFETY: the id is there, by the caller's promise, and shared by reference only.
        let id = unsafe { &(*slot.as_ptr()).id };
        id.load(Ordering::Acquire) == 0
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

    /// As [`put`](Self::put), for a receive with one buffer, whose id says so.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub(super) unsafe fn put_receive(&self, id: u64, user: u64, piece: NonNull<Piece>) {
        let held = self.held.get();
        // SAFETY: the id is 0, so `held` is the producer's, which the caller is.
        unsafe { (*held).user = user };
        // SAFETY: as above.
        unsafe { (*held).piece = Some(piece) };
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

    /// Takes the first buffer out: the request has none any more, and its id's mark says no more than that.
    ///
    /// # Safety
    ///
    /// As for [`held`](Self::held), of a slot with one buffer whose kind was written, and which has one consumer.
    pub(super) unsafe fn take_piece(&self) -> Option<NonNull<Piece>> {
        // SAFETY: the id is not 0, so `held` is the consumer's, which the caller is.
        let held = unsafe { &mut *self.held.get() };
        held.kind_and_run = held.kind_and_run & !0xff | Kind::Bare as u32;
        let piece = held.piece.take();
        let id = self.id.load(Ordering::Relaxed);
        self.id.store(id & !MARKS | MARK_OTHER, Ordering::Release);
        piece
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

    /// Forgets the run before this request, which is being handed out.
    ///
    /// # Safety
    ///
    /// As for [`held`](Self::held), of a slot whose kind was written.
    pub(super) unsafe fn forget_run(&self) {
        // SAFETY: the id is not 0, so `held` is the consumer's, which the caller is.
        unsafe { (*self.held.get()).kind_and_run &= Held::RUN - 1 };
    }

    /// Gives the slot back to the producer.
    #[inline]
    pub(super) fn free(&self) {
        self.id.store(0, Ordering::Release);
    }

    /// The kind of the request, which the slot holds.
    ///
    /// # Safety
    ///
    /// As for [`held`](Self::held).
    pub(super) unsafe fn kind(&self) -> Kind {
        match self.id.load(Ordering::Relaxed) & MARKS {
            0 => Kind::Received,
            // SAFETY: the caller's own obligation.
            _ => unsafe { self.held() }.kind(),
        }
    }

    /// Whether the slot holds the request `id`, whatever its mark.
    pub(super) fn holds_request(&self, id: u64) -> bool {
        (self.id.load(Ordering::Acquire) ^ id) & !MARKS == 0
    }

    /// The id that the slot holds for the request of `id`: its mark may be another one by now.
    pub(super) fn id_now(&self, id: u64) -> u64 {
        let now = self.id.load(Ordering::Acquire);
        if (now ^ id) & !MARKS == 0 { now } else { id }
    }

    /// Claims the slot for one of several consumers, if it holds `id`: afterwards no completion leads to it.
    pub(super) fn claim(&self, id: u64) -> bool {
        self.id
            .compare_exchange(id, NEVER, Ordering::AcqRel, Ordering::Acquire)
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

/// The low four bits of an id say where to look for the kind: a receive with one buffer has 0, any other one of four bits.
pub(super) const MARKS: u64 = 0xf;
/// The mark of a request of a send queue with one buffer and no run.
pub(super) const MARK_SENT: u64 = 1;
/// The mark of everything else: the slot says what it is.
pub(super) const MARK_OTHER: u64 = 2;
/// The marks of requests on lent memory with no run.
pub(super) const MARK_LENT: u64 = 4;
pub(super) const MARK_LENT_MUT: u64 = 8;
/// An id that stands in slots which are taken for good, or claimed: of index 0, which is no ring's. A completion with that
/// `wr_id` is looked for where index 0 leads, and at none of these slots.
pub(super) const NEVER: u64 = 1 << 24;

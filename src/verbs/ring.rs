#![expect(unsafe_code, reason = "walks over the slots of a ring")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::arrivals::Arrivals;
use super::buf::{Buf, Piece};
use super::slot::{Kind, MARKS, NEVER, Slot};
use super::stage::Further;

/// The slots of one work queue: what is posted and has not completed.
///
/// A completion names its request by the `wr_id` that is also in the slot, never by a pointer: bits 63 to 24 are the
/// request's number, bits 23 to 4 the ring's index in its completion queue, bits 3 to 0 a mark that says what a plain request is
/// ([`MARKS`]). A repeated, stale or invented `wr_id` matches no slot. Index 0 is no ring's, so no id is 0.
///
/// There is one [`Producer`](super::producer::Producer) of a ring and, at a time, one consumer of a slot: see [`Slot`].
///
/// # Invariants
///
/// `slots` leads to a lap of slots and, behind them, the id of one more that is taken for good and [`cells`] cells. They live as
/// long as the ring: [`RingArc`](super::ring_arc::RingArc) has them in the ring's own allocation. They are shared by reference
/// only.
pub(super) struct Ring {
    slots: NonNull<Slot>,
    extra: Option<Box<Extra>>,
    /// How many requests may be outstanding. The slots from there on are taken for good.
    depth: u32,
    lap: u32,
    index: u32,
    /// How many further buffers a slot has cells for. The cells belong to whom the slot's `held` belongs to.
    further_each: u8,
    /// Whether several completion queues complete requests of this ring.
    pub(super) has_many_consumers: bool,
    /// See [`settle`](Self::settle).
    settled: AtomicBool,
    /// See [`set_ended`](Self::set_ended).
    ended: AtomicBool,
}

/// What few rings have.
pub(super) enum Extra {
    /// Where the datagrams that are received here come in.
    Arrivals(Arrivals),
    /// The index of a ring of several completion queues: given back with the ring.
    Index { _index: Box<dyn Send + Sync> },
}

/// A cell for a further buffer of a slot.
pub(super) type Cell = UnsafeCell<Option<NonNull<Piece>>>;

pub(super) const INDEX_SHIFT: u32 = 4;
pub(super) const NUMBER_SHIFT: u32 = 24;
/// From one request's id to the next one's.
pub(super) const NEXT: u64 = 1 << NUMBER_SHIFT;
/// From a `wr_id` to the byte offset of its slot, before the ring's mask.
const OFFSET_SHIFT: u32 = NUMBER_SHIFT - SLOT_SHIFT;
const SLOT_SHIFT: u32 = size_of::<Slot>().trailing_zeros();
/// Ring indices are below this.
pub(super) const MAX_RINGS: u32 = 1 << (NUMBER_SHIFT - INDEX_SHIFT);

// Of index 0, in a table of any size.
const _: () = assert!(ring_index(NEVER) == 0 && NEVER != 0);

// SAFETY: the slots are `Send` and `Sync`; their cells are passed between producer and consumer together with them. What is
// `extra` is both, too.
unsafe impl Send for Ring {}
// SAFETY: as for `Send`.
unsafe impl Sync for Ring {}

/// Where the slots of a ring are: what posting and polling need of it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    slots: NonNull<Slot>,
    /// The byte offset of the last slot.
    mask: u32,
}

impl Place {
    /// A place of one slot for good.
    pub(super) const fn of_static(slot: &'static Slot) -> Self {
        Self {
            // SAFETY: a reference is not null.
            slots: unsafe { NonNull::new_unchecked(ptr::from_ref(slot).cast_mut()) },
            mask: 0,
        }
    }

    /// The slot of the request `id`.
    ///
    /// # Safety
    ///
    /// The ring of this place is alive, for as long as the reference is used.
    #[inline]
    pub(super) unsafe fn slot<'a>(self, id: u64) -> &'a Slot {
        // SAFETY: the caller's own obligation.
        let slot = unsafe { self.at(id) };
        // SAFETY: the caller keeps the ring alive; slots are shared by reference only.
        unsafe { slot.as_ref() }
    }

    /// Where the slot of the request `id` is: a pointer from which those of the others can be reached.
    ///
    /// # Safety
    ///
    /// The ring of this place is alive.
    #[inline]
    pub(super) unsafe fn at(self, id: u64) -> NonNull<Slot> {
        // CAST: masked to 32 bits.
        #[expect(clippy::cast_possible_truncation, reason = "masked to 32 bits")]
        let offset = ((id >> OFFSET_SHIFT) as u32 & self.mask) as usize;
        // SAFETY: the mask keeps the offset inside the ring's slots, at the start of one.
        unsafe { self.slots.byte_add(offset) }
    }
}

impl Ring {
    /// A ring of `slots`, for `depth` outstanding requests with up to `further_each` buffers beside the first, with `index` in its
    /// completion queue.
    ///
    /// # Safety
    ///
    /// The invariant: there is room for what `slots` leads to, for as long as the ring lives. It is written here.
    pub(super) unsafe fn new(
        slots: NonNull<Slot>,
        depth: u32,
        further_each: u8,
        index: u32,
        has_many_consumers: bool,
        extra: Option<Box<Extra>>,
    ) -> Self {
        // INVARIANT: the caller vouches for the room.
        let this = Self {
            slots,
            extra,
            depth,
            lap: lap(depth),
            index,
            further_each,
            has_many_consumers,
            settled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        };
        for place in 0..this.lap() {
            let id = if place < depth as usize { 0 } else { NEVER };
            // SAFETY: inside the slots, by the caller's promise.
            let slot = unsafe { slots.add(place) };
            // SAFETY: as above: room for a slot, which nobody uses yet.
            unsafe { slot.write(Slot::new(id)) };
        }
        // SAFETY: as above: room for an id, which nobody uses yet.
        unsafe { this.behind().write(AtomicU64::new(NEVER)) };
        for place in 0..cells(depth, further_each) {
            // SAFETY: inside the cells, by the caller's promise.
            let cell = unsafe { this.first_cell().add(place) };
            // SAFETY: as above: room for a cell, which nobody uses yet.
            unsafe { cell.write(UnsafeCell::new(None)) };
        }
        this
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: so many slots live as long as the ring, and are shared by reference only (the invariant).
        unsafe { slice::from_raw_parts(self.slots.as_ptr(), self.lap()) }
    }

    /// Where the first slot is.
    pub(super) fn first(&self) -> NonNull<Slot> {
        self.slots
    }

    /// What is behind the last slot for a request: it has the id of one that is taken for good, and may have nothing else.
    pub(super) fn end(&self) -> NonNull<Slot> {
        // SAFETY: the depth is at most a lap, and behind a lap there is an id (the invariant).
        unsafe { self.slots.add(self.depth as usize) }
    }

    /// The id behind the slots.
    fn behind(&self) -> NonNull<AtomicU64> {
        // SAFETY: the slots have an end, where the id is (the invariant).
        unsafe { self.slots.add(self.lap()) }.cast()
    }

    fn first_cell(&self) -> NonNull<Cell> {
        // SAFETY: the cells are right behind the id (the invariant).
        unsafe { self.behind().add(1) }.cast()
    }

    pub(super) fn place(&self) -> Place {
        let bytes = (self.lap() - 1) << SLOT_SHIFT;
        Place {
            slots: self.slots,
            // CAST: a ring has at most 2^20 slots, as `MAX_DEPTH` says.
            #[expect(clippy::cast_possible_truncation, reason = "at most MAX_DEPTH slots")]
            mask: bytes as u32,
        }
    }

    /// Whether the request `id` has not completed, or was not taken from its completion queue.
    pub(super) fn is_posted(&self, id: u64) -> bool {
        // SAFETY: this is the ring.
        let slot = unsafe { self.place().slot(id) };
        slot.holds_request(id)
    }

    /// Where the datagrams that are received here come in.
    pub(super) fn arrivals(&self) -> Option<&Arrivals> {
        match self.extra.as_deref() {
            Some(Extra::Arrivals(arrivals)) => Some(arrivals),
            _ => None,
        }
    }

    /// Says that no completion queue is to be told of the ring's end.
    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Says that the queue is gone, or leaked: nobody posts to it any more. Whether that was said before.
    pub(super) fn set_ended(&self) -> bool {
        self.ended.swap(true, Ordering::AcqRel)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The index in the completion queue's table.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The index, in place in a `wr_id`.
    pub(super) fn index_bits(&self) -> u64 {
        u64::from(self.index) << INDEX_SHIFT
    }

    /// How many numbers there are in a lap.
    pub(super) fn lap(&self) -> usize {
        self.lap as usize
    }

    pub(super) fn further_each(&self) -> u8 {
        self.further_each
    }

    /// How many buffers a request may have.
    pub(super) fn pieces(&self) -> u32 {
        u32::from(self.further_each) + 1
    }

    fn position(&self, slot: &Slot) -> usize {
        (ptr::from_ref(slot).addr() - self.slots.addr().get()) >> SLOT_SHIFT
    }

    /// The cells of the further buffers of `slot`.
    pub(super) fn further(&self, slot: &Slot) -> Further<'_> {
        let each = usize::from(self.further_each);
        let position = self.position(slot);
        assert!(position < self.depth as usize, "not a slot of this ring");
        // SAFETY: there are so many cells for each slot that can hold a request (the invariant), of which `slot` is one.
        let first = unsafe { self.first_cell().add(position * each) };
        // SAFETY: as above; they live as long as the ring, and are shared by reference only.
        unsafe { slice::from_raw_parts(first.as_ptr(), each) }
    }

    /// The slots with a posted request.
    pub(super) fn posted(&self) -> impl Iterator<Item = &Slot> {
        self.slots()[..self.depth as usize]
            .iter()
            .filter(|slot| !slot.is_free())
    }

    /// Whether nothing is posted.
    pub(super) fn is_empty(&self) -> bool {
        self.posted().next().is_none()
    }

    /// How many requests may be outstanding.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// How many numbers before `id` lead to requests that are posted still, without one between them that is not.
    pub(super) fn posted_before(&self, id: u64) -> u32 {
        let place = self.place();
        let mut run = 0;
        for number in 1..self.lap() {
            // CAST: below the length of a lap.
            #[expect(clippy::cast_possible_truncation, reason = "below the length of a lap")]
            let number = number as u32;
            let before = id_before(id & !MARKS, number);
            // SAFETY: this is the ring.
            let slot = unsafe { place.slot(before) };
            if slot.holds_request(before) {
                run = number;
            } else if slot.id.load(Ordering::Acquire) != NEVER {
                break;
            }
        }
        run
    }

    /// Takes the buffers out of a slot, and gives the slot back.
    ///
    /// # Safety
    ///
    /// The caller is the consumer of `slot`, or acts in its place; the slot is of this ring and holds a request; no device uses
    /// its memory any more.
    pub(super) unsafe fn clear(&self, slot: &Slot) {
        // SAFETY: the caller's own obligation.
        let held = unsafe { slot.held() };
        if let Some(piece) = held.piece {
            // SAFETY: the piece came from `into_piece`, and the caller says that the device has let go; it is taken once, since
            // the slot is freed below. Lent memory of a scope ends in the same way.
            drop(unsafe { Buf::from_piece(piece) });
        }
        // SAFETY: the caller's own obligation.
        if unsafe { slot.kind() } == Kind::Pieces {
            for further in self.further(slot) {
                // SAFETY: the further buffers of a slot belong to whom the slot belongs to.
                if let Some(piece) = unsafe { (*further.get()).take() } {
                    // SAFETY: as above.
                    drop(unsafe { Buf::from_piece(piece) });
                }
            }
        }
        slot.free();
    }
}

impl Drop for Ring {
    /// Gives every buffer back to its pool. A ring is dropped only when its queue's destruction has succeeded: until then the
    /// queue holds it, and if the destruction fails it is leaked.
    fn drop(&mut self) {
        for slot in self.posted() {
            // SAFETY: nobody else has the ring; its queue is gone, so no device uses the memory.
            unsafe { self.clear(slot) };
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

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").finish()
    }
}

/// How many numbers there are in a lap of a ring, and slots: a power of two, which a mask can reach.
pub(super) const fn lap(depth: u32) -> u32 {
    depth.next_power_of_two()
}

/// How many cells a ring has for further buffers.
pub(super) const fn cells(depth: u32, further_each: u8) -> usize {
    depth as usize * further_each as usize
}

/// The id after `id`.
#[inline]
pub(super) fn id_after(id: u64) -> u64 {
    id.wrapping_add(NEXT)
}

/// The id `run` numbers before `id`.
pub(super) fn id_before(id: u64, run: u32) -> u64 {
    id.wrapping_sub(u64::from(run) << NUMBER_SHIFT)
}

/// A queue holds at most as many requests.
pub(super) const MAX_DEPTH: u32 = 1 << 20;
const _: () = assert!((MAX_DEPTH as u64) << SLOT_SHIFT <= u32::MAX as u64);

/// The index of the ring that a `wr_id` names.
pub(super) const fn ring_index(wr_id: u64) -> usize {
    // CAST: 20 bits.
    (wr_id >> INDEX_SHIFT) as usize & (MAX_RINGS as usize - 1)
}

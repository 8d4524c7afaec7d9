#![expect(unsafe_code, reason = "puts requests into the slots of a ring")]

use std::ptr::{self, NonNull};

use super::buf::Piece;
use super::ring::{NEXT, NUMBER_SHIFT};
use super::ring_arc::RingArc;
use super::slot::{
    Held, Kind, MARK_LENT, MARK_LENT_MUT, MARK_OTHER, MARK_SENT, MARKS, NEVER, Slot, What,
};
use super::stage::Further;

/// The slot of a producer that may not post: never free.
static SHUT: Slot = Slot::new(NEVER);

/// A slot that was seen free, and the id of the request that goes into it.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    slot: NonNull<Slot>,
    pub(super) id: u64,
}

/// The posting side of a [`Ring`](super::ring::Ring): there is one, and it is used through `&mut`.
///
/// # Invariants
///
/// `slot` is where `next` leads to in the ring, or [`SHUT`], or one that is taken for good: at the end of a lap.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Producer {
    // First, so that the address of `slot` is not that of the whole, which the slow paths take: one instruction less.
    ring: RingArc,
    slot: NonNull<Slot>,
    /// The one behind the last of a lap, and the first: at the end of a lap, `gap` is added to the id.
    end: NonNull<Slot>,
    first: NonNull<Slot>,
    gap: u64,
    /// The id of the next request.
    next: u64,
    /// How many unsignalled requests were posted since the last signalled one, in place for `kind_and_run`.
    run: u32,
    /// At this length a request is signalled in any case.
    longest_run: u32,
}

// SAFETY: the slot is the ring's, whose slots are `Sync`, or a static.
unsafe impl Send for Producer {}
// SAFETY: as for `Send`: through `&Producer` atomics and numbers are read.
unsafe impl Sync for Producer {}

impl Producer {
    /// The only producer of `ring`, shut.
    pub(super) fn shut(ring: RingArc) -> Self {
        Self {
            slot: NonNull::from(&SHUT),
            end: ring.end(),
            first: ring.first(),
            gap: (ring.lap() as u64 - u64::from(ring.depth())) << NUMBER_SHIFT,
            next: ring.index_bits(),
            run: 0,
            // 0 in a queue of one request: an unsignalled one would keep its slot for ever.
            longest_run: (ring.depth() / 2) * Held::RUN,
            ring,
        }
    }

    /// Lets it post.
    pub(super) fn open(&mut self) {
        self.go_to(self.next);
    }

    #[cfg(test)]
    pub(super) fn opened(mut self) -> Self {
        self.open();
        self
    }

    /// Goes to the slot of `id`, a request that can be posted.
    fn go_to(&mut self, id: u64) {
        self.next = id;
        // SAFETY: the producer keeps its ring.
        self.slot = unsafe { self.ring.place().at(id) };
    }

    /// Ends posting: from now on no slot is free.
    pub(super) fn close(&mut self) {
        self.slot = NonNull::from(&SHUT);
    }

    pub(super) fn is_shut(&self) -> bool {
        ptr::eq(self.slot.as_ptr(), &raw const SHUT)
    }

    pub(super) fn ring(&self) -> &RingArc {
        &self.ring
    }

    /// The cells of the further buffers of the next slot, which is free.
    pub(super) fn further(&self) -> Further<'_> {
        // SAFETY: the producer keeps its ring.
        self.ring.further(unsafe { self.slot.as_ref() })
    }

    /// The next slot, if it is free.
    #[inline]
    pub(super) fn ready(&self) -> Option<Ready> {
        // SAFETY: the producer keeps its ring, where there is an id at least; the other slot is a static.
        let is_free = unsafe { Slot::is_free_at(self.slot) };
        let ready = Ready {
            slot: self.slot,
            id: self.next,
        };
        is_free.then_some(ready)
    }

    /// Starts the next lap if this one is at its end; none when the queue is full.
    #[cold]
    #[inline(never)]
    pub(super) fn skip(&mut self) -> Option<Ready> {
        if self.slot == self.end {
            self.slot = self.first;
            self.next = self.next.wrapping_add(self.gap);
            if self.run > 0 {
                // A run is counted in numbers; those of the gap are nobody's.
                // CAST: below the length of a lap.
                #[expect(clippy::cast_possible_truncation, reason = "below the length of a lap")]
                let gap = (self.gap >> NUMBER_SHIFT) as u32;
                self.run += gap * Held::RUN;
            }
        }
        self.ready()
    }

    /// Goes on to the next free slot, wherever it is; none when there is none.
    #[cold]
    #[inline(never)]
    pub(super) fn look_further(&mut self) -> Option<Ready> {
        if self.is_shut() {
            return None;
        }
        (0..=self.ring.lap()).find_map(|_| {
            let ready = self.ready();
            if ready.is_none() {
                self.go_to(self.next.wrapping_add(NEXT));
            }
            ready
        })
    }

    /// Puts a signalled request into the next slot, and gives its `wr_id`.
    ///
    /// # Safety
    ///
    /// `ready` was given by [`ready`](Self::ready) since the last `put`.
    #[inline]
    pub(super) unsafe fn put(&mut self, ready: Ready, held: Held) -> u64 {
        if self.run != 0 {
            // SAFETY: the caller's own obligation.
            return unsafe { self.put_after_run(ready, held.user, held.piece, held.what()) };
        }
        // SAFETY: as above.
        unsafe { self.put_unsignaled_at(ready, held) }
    }

    /// As [`put`](Self::put), after unsignalled requests. What a slot holds comes in parts, which stay in registers.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline(never)]
    unsafe fn put_after_run(
        &mut self,
        ready: Ready,
        user: u64,
        piece: Option<NonNull<Piece>>,
        what: What,
    ) -> u64 {
        let mut held = Held::of_parts(user, piece, what);
        held.kind_and_run |= self.run;
        self.run = 0;
        // SAFETY: the caller's own obligation.
        unsafe { self.put_marked(ready, held, MARK_OTHER) }
    }

    /// Whether the next request must be signalled whatever the caller says: unsignalled ones keep their slots.
    #[inline]
    pub(super) fn must_signal(&self) -> bool {
        self.run >= self.longest_run
    }

    /// As [`put`](Self::put), for a request that is not signalled.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub(super) unsafe fn put_unsignaled(&mut self, ready: Ready, held: Held) -> u64 {
        self.run += Held::RUN;
        // SAFETY: the caller's own obligation.
        unsafe { self.put_unsignaled_at(ready, held) }
    }

    /// Puts a request with no run before it, or that does not say so.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline]
    unsafe fn put_unsignaled_at(&mut self, ready: Ready, held: Held) -> u64 {
        let mark = match held.kind() {
            Kind::Sent => MARK_SENT,
            Kind::Lent => MARK_LENT,
            Kind::LentMut => MARK_LENT_MUT,
            _ => MARK_OTHER,
        };
        // SAFETY: the caller's own obligation.
        unsafe { self.put_marked(ready, held, mark) }
    }

    /// As [`put`](Self::put), for a receive queue.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline]
    pub(super) unsafe fn put_receive(&mut self, ready: Ready, held: Held) -> u64 {
        let (Kind::Received, Some(piece)) = (held.kind(), held.piece) else {
            // SAFETY: the caller's own obligation.
            return unsafe { self.put_marked(ready, held, MARK_OTHER) };
        };
        // SAFETY: the producer keeps its ring.
        let slot = unsafe { ready.slot.as_ref() };
        // SAFETY: the caller has seen the slot free, and `&mut self` is the producer.
        unsafe { slot.put_receive(ready.id, held.user, piece) };
        // SAFETY: as below.
        unsafe { self.advance(ready) };
        ready.id
    }

    /// Puts a request under an id with `mark`.
    ///
    /// # Safety
    ///
    /// As for [`put`](Self::put).
    #[inline]
    unsafe fn put_marked(&mut self, ready: Ready, held: Held, mark: u64) -> u64 {
        // The bits are free; an addition takes one instruction less than to set them.
        let id = ready.id + mark;
        // SAFETY: the producer keeps its ring.
        let slot = unsafe { ready.slot.as_ref() };
        // SAFETY: the caller has seen the slot free, and `&mut self` is the producer.
        unsafe { slot.put(id, held) };
        // SAFETY: as below.
        unsafe { self.advance(ready) };
        id
    }

    /// Goes on after `ready`, which was free.
    ///
    /// # Safety
    ///
    /// `ready` was the next slot.
    #[inline]
    unsafe fn advance(&mut self, ready: Ready) {
        self.next = ready.id.wrapping_add(NEXT);
        // SAFETY: a slot that was free is one for a request, and behind each of those there is at least an id.
        self.slot = unsafe { ready.slot.add(1) };
    }

    /// The slot of `id`, which was put.
    pub(super) fn slot_of(&self, id: u64) -> &Slot {
        // SAFETY: the producer keeps its ring.
        unsafe { self.ring.place().slot(id) }
    }

    /// Takes back the last request that was put and not taken back yet, after its buffers were taken out.
    ///
    /// # Safety
    ///
    /// `id` is that request's, and the device does not have it.
    pub(super) unsafe fn take_back(&mut self, id: u64, signaled: bool) {
        let slot = self.slot_of(id);
        // SAFETY: the device does not have the request, so no completion of it comes and the consumer does not touch the slot:
        // this call acts in its place.
        let run = unsafe { slot.held() }.run() * Held::RUN;
        slot.free();
        if !signaled {
            self.run -= Held::RUN;
        } else if id & MARKS != 0 {
            self.run = run;
        }
        self.go_to(id & !MARKS);
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::Op;
    use super::super::ring::{INDEX_SHIFT, id_before, ring_index};
    use super::*;

    fn bare(user: u64) -> Held {
        Held::new(Kind::Bare, Op::Send, user)
    }

    fn producer(depth: u32) -> Producer {
        Producer::shut(RingArc::new(depth, 1, 5)).opened()
    }

    /// Puts a request, and gives its id.
    ///
    /// # Safety
    ///
    /// The next slot is free.
    unsafe fn put(producer: &mut Producer) -> u64 {
        let ready = producer.ready().unwrap();
        // SAFETY: just given.
        unsafe { producer.put(ready, bare(0)) }
    }

    /// Puts requests until the queue is full, and gives their ids.
    fn fill(producer: &mut Producer) -> Vec<u64> {
        let mut ids = Vec::new();
        while producer.ready().is_some() || producer.skip().is_some() {
            // SAFETY: the slot is free.
            ids.push(unsafe { put(producer) });
        }
        ids
    }

    #[test]
    fn a_ring_of_any_depth_holds_as_many() {
        for depth in [1, 2, 3, 7, 8, 9, 100] {
            let mut producer = producer(depth);
            for lap in 0..3 {
                let ids = fill(&mut producer);
                assert_eq!(ids.len(), depth as usize, "depth {depth}, lap {lap}");
                for id in ids {
                    assert_eq!(ring_index(id), 5);
                    assert!(producer.slot_of(id).holds(id));
                    producer.slot_of(id).free();
                }
                assert!(producer.ring().is_empty());
            }
        }
    }

    #[test]
    fn a_shut_ring_is_full_and_an_opened_one_is_not() {
        let mut producer = Producer::shut(RingArc::new(4, 1, 3));
        assert!(producer.ready().is_none());
        assert!(producer.skip().is_none());
        assert!(producer.look_further().is_none());
        producer.open();
        assert!(producer.ready().is_some());
        producer.close();
        assert!(producer.is_shut());
        assert!(producer.ready().is_none());
    }

    #[test]
    fn an_id_never_is_zero_and_comes_again_after_two_to_the_forty() {
        let mut producer = producer(4);
        producer.go_to(producer.next.wrapping_sub(NEXT));
        // SAFETY: the ring is empty.
        let last = unsafe { put(&mut producer) };
        assert_eq!(last >> NUMBER_SHIFT, u64::MAX >> NUMBER_SHIFT);
        assert!(producer.skip().is_some());
        // SAFETY: the ring has three free slots.
        let first = unsafe { put(&mut producer) };
        assert_eq!(first & !MARKS, 5 << INDEX_SHIFT);
        assert_eq!(id_before(first, 1), last);
    }

    #[test]
    fn a_taken_back_request_leaves_no_trace() {
        let mut producer = producer(4);
        // SAFETY: the ring is empty.
        unsafe { producer.put_unsignaled(producer.ready().unwrap(), bare(1)) };
        let (next, run) = (producer.next, producer.run);
        assert_eq!(run, Held::RUN);
        // SAFETY: the ring has three free slots.
        let id = unsafe { put(&mut producer) };
        assert_eq!(producer.run, 0);
        // SAFETY: the request was just put, and never posted.
        unsafe { producer.take_back(id, true) };
        assert_eq!((producer.next, producer.run), (next, run));
        assert!(producer.ready().is_some());
    }

    #[test]
    fn slots_come_free_in_any_order() {
        let mut producer = producer(4);
        let ids = fill(&mut producer);
        producer.slot_of(ids[2]).free();
        assert!(producer.ready().is_none());
        assert!(producer.look_further().is_some());
        // SAFETY: `look_further` has found a free slot.
        let id = unsafe { put(&mut producer) };
        assert!(std::ptr::eq(producer.slot_of(id), producer.slot_of(ids[2])));
        assert!(producer.look_further().is_none());
    }
}

#![expect(unsafe_code, reason = "polls a completion queue")]

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use rdma_sys::{ibv_wc, ibv_wc_opcode, ibv_wc_status};

use super::completion::{Bare, Completion, Done, Foreign, Received, Sent};
use super::cq::{BATCH, CompletionQueue};
use super::datagram::Datagram;
use super::op::Op;
use super::pieces::{Pieces, Spread};
use super::ring::{Ring, id_after, id_before};
use super::slot::{BARE, Kind, MARK_OTHER, MARK_SENT, MARKS, Slot};
use crate::error::{Error, Result};

/// The operation in the entry of a send before which the run was handed out: no device's.
const TOLD: ibv_wc_opcode = ibv_wc_opcode(u32::MAX);

/// What the provider has filled and was not taken: the entries from `next` to `end`.
pub(super) struct Unread {
    pub(super) next: *mut ibv_wc,
    pub(super) end: *mut ibv_wc,
}

impl Unread {
    /// None, in front of `entries`.
    pub(super) fn none(entries: NonNull<ibv_wc>) -> Self {
        Self {
            next: entries.as_ptr(),
            end: entries.as_ptr(),
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Takes the entry at the front, which is there.
    #[inline(always)]
    fn take(&mut self) -> NonNull<ibv_wc> {
        // SAFETY: an entry is not at null.
        let entry = unsafe { NonNull::new_unchecked(self.next) };
        // SAFETY: there is an entry, so this is at most the end of them.
        self.next = unsafe { self.next.add(1) };
        entry
    }

    /// Puts the entry that was taken last back to the front.
    fn put_back(&mut self, entry: NonNull<ibv_wc>) {
        if self.is_empty() {
            // SAFETY: behind an entry is at most the end of them.
            self.end = unsafe { entry.as_ptr().add(1) };
        }
        self.next = entry.as_ptr();
    }

    fn left(&self) -> usize {
        (self.end.addr() - self.next.addr()) / size_of::<ibv_wc>()
    }
}

impl CompletionQueue {
    /// Takes the next completion; `None` when there is none now.
    ///
    /// Calls `ibv_poll_cq` ([man 3](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)) for several at a time.
    /// Blocks: no.
    ///
    /// # Errors
    ///
    /// What the provider reports; the queue is then unusable.
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Completion<'_>>> {
        let Some(entry) = self.take()? else {
            return Ok(None);
        };
        // SAFETY: filled by the provider, over memory that was zeroed before; it is read only until the next poll, which needs
        // this value: what is made of it borrows the queue.
        let wc = unsafe { entry.as_ref() };
        let id = wc.wr_id;
        if let Some(slot) = self.table.find(id).map(NonNull::from) {
            // SAFETY: the table keeps the ring while this value is borrowed, which what is made here borrows.
            let slot = unsafe { slot.as_ref() };
            let done = Done { slot, wc };
            if id & MARK_SENT != 0 {
                // One that has failed tells of those before it, too. Whoever looks at the status looks at it once.
                if done.is_success() {
                    // SAFETY: the mark says that there is one buffer. The entry is taken, so it is nobody else's.
                    return Ok(Some(Completion::Sent(unsafe { Sent::new(done) })));
                }
            } else if id & MARKS == 0 {
                // SAFETY: as above.
                return Ok(Some(Completion::Received(unsafe { Received::new(done) })));
            } else if wc.status == ibv_wc_status::IBV_WC_SUCCESS {
                // SAFETY: this value is the one consumer of its rings, but for a shared one's, whose kind is not this one; it
                // has seen the id, and its mark says that the kind was written.
                if unsafe { slot.held() }.kind_and_run == BARE {
                    // SAFETY: the kind says that there is none.
                    return Ok(Some(Completion::Bare(unsafe { Bare::new(done) })));
                }
            }
        }
        let mut completion = MaybeUninit::uninit();
        self.special(entry, &mut completion);
        // SAFETY: `special` has written it.
        Ok(Some(unsafe { completion.assume_init() }))
    }

    /// Takes the next entry, which is polled for if none is left; none when the queue is empty.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Result<Option<NonNull<ibv_wc>>> {
        if !self.unread.is_empty() {
            return Ok(Some(self.unread.take()));
        }
        // SAFETY: `ibv_poll_cq` wants a queue, which the handle keeps alive, and room for as many entries as it is told.
        let returned = unsafe { rdma_sys::ibv_poll_cq(self.raw, BATCH, self.entries.as_ptr()) };
        if returned == 1 {
            // The usual case where latency counts: nothing to keep.
            return Ok(Some(self.entries));
        }
        self.polled(returned)?;
        if self.unread.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.unread.take()))
    }

    /// Puts back the entry that was taken last.
    pub(super) fn put_back(&mut self, entry: NonNull<ibv_wc>) {
        self.unread.put_back(entry);
    }

    /// Whether there is an entry, which is polled for if none is left.
    pub(super) fn has_entry(&mut self) -> Result<bool> {
        if let Some(entry) = self.take()? {
            self.put_back(entry);
        }
        Ok(!self.unread.is_empty())
    }

    /// Keeps what a poll has returned, and polls again as often as an empty queue asks for.
    #[inline(never)]
    fn polled(&mut self, mut returned: i32) -> Result<()> {
        loop {
            match usize::try_from(returned) {
                Ok(0) if !self.queue_is_empty() => return Ok(()),
                Ok(0) => {}
                Ok(filled) => {
                    self.hand_out(filled);
                    return Ok(());
                }
                Err(_) => return Err(Error::os("ibv_poll_cq", returned.saturating_abs())),
            }
            // SAFETY: as in `take`.
            returned = unsafe { rdma_sys::ibv_poll_cq(self.raw, BATCH, self.entries.as_ptr()) };
        }
    }

    /// The first `filled` entries are to be taken.
    fn hand_out(&mut self, filled: usize) {
        self.unread.next = self.entries.as_ptr();
        // SAFETY: as many were filled.
        self.unread.end = unsafe { self.entries.as_ptr().add(filled) };
    }

    /// The queue was just seen empty: what was retired before cannot be in it any more. True when the mail has brought more
    /// to retire, for which the queue must be seen empty once more.
    fn queue_is_empty(&mut self) -> bool {
        if self.keeps {
            // Some of them may be among what is kept, which was taken out before.
            return false;
        }
        for (index, depth) in std::mem::take(&mut self.retiring) {
            drop(self.table.remove(index));
            self.shared.mailbox().release(index, depth);
        }
        self.read_mail();
        !self.retiring.is_empty()
    }

    pub(super) fn read_mail(&mut self) {
        let mail = self.shared.mailbox().collect();
        for ring in mail.attached {
            self.table.set(ring);
        }
        self.retiring.extend(mail.retired);
    }

    /// What the entry that was taken is about: whatever is not one of the plain ones.
    ///
    /// The answer goes through memory, so that the fast path keeps its own in registers.
    #[inline(never)]
    fn special<'c>(
        &'c mut self,
        mut entry: NonNull<ibv_wc>,
        completion: &mut MaybeUninit<Completion<'c>>,
    ) {
        // SAFETY: as in `poll`.
        let mut wc = unsafe { entry.as_ref() };
        let Some(mut slot) = self.table.find(wc.wr_id).map(NonNull::from) else {
            self.unknown(entry, completion);
            return;
        };
        // SAFETY: as in `poll`.
        let marked = unsafe { slot.as_ref() };
        let several = self
            .table
            .ring(wc.wr_id)
            .is_some_and(|ring| ring.has_many_consumers);
        if several {
            // One of several consumers asks for the slot before it reads anything in it.
            let found = match marked.claim(wc.wr_id) {
                // SAFETY: claimed; such a ring has no other marks than the one that says that the kind was written.
                true => unsafe { marked.held() }.kind(),
                false => Kind::Foreign,
            };
            completion.write(self.completion(found, Done { slot: marked, wc }, wc.wr_id));
            return;
        }
        // SAFETY: this value is the consumer, and has seen the id.
        let run = unsafe { self.run_before(marked, wc) };
        if run > 0 {
            self.hand_out_run(entry, run);
            entry = self.unread.take();
            // SAFETY: as in `poll`.
            wc = unsafe { entry.as_ref() };
            if let Some(first) = self.table.find(wc.wr_id) {
                slot = NonNull::from(first);
            }
        }
        // SAFETY: as in `poll`.
        let slot = unsafe { slot.as_ref() };
        // SAFETY: this value is the consumer, and has seen the id.
        let kind = unsafe { slot.kind() };
        completion.write(self.completion(kind, Done { slot, wc }, wc.wr_id));
    }

    /// How many numbers before a request there may be unsignalled ones that have ended with it: told once.
    ///
    /// # Safety
    ///
    /// The caller is the consumer of the slot, or one of several, and has seen the id of `wc` in it.
    unsafe fn run_before(&self, slot: &Slot, wc: &ibv_wc) -> u32 {
        let mark = wc.wr_id & MARKS;
        if mark == MARK_OTHER {
            // SAFETY: the mark says that the run was written.
            let run = unsafe { slot.held() }.run();
            if run > 0 {
                // SAFETY: as above.
                unsafe { slot.forget_run() };
                return run;
            }
        }
        // SAFETY: the caller's own obligation.
        let is_receive = mark == 0 || unsafe { slot.held() }.op() == Op::Receive;
        if is_receive || wc.status == ibv_wc_status::IBV_WC_SUCCESS || wc.opcode == TOLD {
            return 0;
        }
        // An unsignalled request that fails says so itself. What was posted before it and is there still is unsignalled, and has
        // ended well: requests of a queue end in their order.
        self.table
            .ring(wc.wr_id)
            .map_or(0, |ring| ring.posted_before(wc.wr_id))
    }

    /// Puts the entry that was taken back, and in front of it one for each unsignalled request of the run before it that is
    /// still posted: they have ended well, or they would have said so.
    fn hand_out_run(&mut self, entry: NonNull<ibv_wc>, run: u32) {
        self.unread.put_back(entry);
        let rest = self.unread.left();
        // What is unread may lie in the one of the two that was used last.
        let mut list = std::mem::take(&mut self.idle);
        let wanted = run as usize + rest;
        if wanted > list.len() {
            list.resize(wanted, ibv_wc::default());
        }
        // SAFETY: as in `poll`.
        let id = unsafe { entry.as_ref() }.wr_id;
        let place = self.table.place(id);
        let mut before = id_before(id & !MARKS, run);
        let start = list.as_mut_ptr();
        let mut end = start;
        for _ in 0..run {
            // SAFETY: the table keeps the ring.
            let holds = unsafe { place.slot(before) }.id.load(Ordering::Acquire);
            // SAFETY: fewer than `run` were filled, for which there is room.
            let wc = unsafe { &mut *end };
            // Of a send that has ended well, nothing else is looked at. What has reported its own end is written over.
            wc.wr_id = holds;
            wc.status = ibv_wc_status::IBV_WC_SUCCESS;
            if holds & !MARKS == before {
                // SAFETY: as above: at most the end of the room.
                end = unsafe { end.add(1) };
            }
            before = id_after(before);
        }
        // SAFETY: that many entries are left from `entry` on, which are not in this list, and there is room for them behind.
        unsafe { ptr::copy_nonoverlapping(entry.as_ptr(), end, rest) };
        // SAFETY: as above: the entry itself. The operation of one that has failed is undefined.
        unsafe { (*end).opcode = TOLD };
        // SAFETY: as above.
        end = unsafe { end.add(rest) };
        self.unread = Unread { next: start, end };
        self.idle = std::mem::replace(&mut self.spread_out, list);
    }

    /// Takes the entry at the front if it is that of a loan, once the run before it was handed out; the mail may bring its ring.
    pub(super) fn find_loan(&mut self) -> Option<(NonNull<Slot>, NonNull<ibv_wc>)> {
        let entry = NonNull::new(self.unread.next)?;
        // SAFETY: as in `poll`.
        let id = unsafe { entry.as_ref() }.wr_id;
        if self.table.find(id).is_none() {
            self.read_mail();
        }
        let slot = NonNull::from(self.table.find_at_last(id)?);
        // SAFETY: as in `poll`.
        let found = unsafe { slot.as_ref() };
        // SAFETY: this value is the consumer, or one of several; it has seen the id.
        let kind = unsafe { found.kind() };
        if !matches!(kind, Kind::Lent | Kind::LentMut) {
            return None;
        }
        // SAFETY: as above.
        let run = unsafe { found.held() }.run();
        if run > 0 {
            // SAFETY: as above.
            unsafe { found.forget_run() };
            let entry = self.unread.take();
            self.hand_out_run(entry, run);
            if self.front_id() != Some(id) {
                return None;
            }
        }
        Some((slot, self.unread.take()))
    }

    /// The id of the entry at the front.
    fn front_id(&self) -> Option<u64> {
        let entry = NonNull::new(self.unread.next).filter(|_| !self.unread.is_empty())?;
        // SAFETY: as in `poll`.
        Some(unsafe { entry.as_ref() }.wr_id)
    }

    /// As [`special`](Self::special), of a request that was not found at first. The mail may bring its ring; then the last word
    /// is read.
    #[cold]
    #[inline(never)]
    fn unknown<'c>(
        &'c mut self,
        entry: NonNull<ibv_wc>,
        completion: &mut MaybeUninit<Completion<'c>>,
    ) {
        // SAFETY: as in `poll`.
        let wc = unsafe { entry.as_ref() };
        self.read_mail();
        if self.table.find_at_last(wc.wr_id).is_some() {
            self.special(entry, completion);
        } else {
            completion.write(Completion::Foreign(Foreign::new(wc)));
        }
    }

    /// The completion of the request `id`, which has ended.
    fn completion<'c>(&'c mut self, kind: Kind, done: Done<'c>, id: u64) -> Completion<'c> {
        let Some(ring) = self.table.ring(id) else {
            return Completion::Foreign(Foreign::new(done.wc));
        };
        match kind {
            // SAFETY: the kind says what is in the slot, and the entry is taken, or the request is out of its run.
            Kind::Sent => Completion::Sent(unsafe { Sent::new(done) }),
            // SAFETY: as above.
            Kind::Received | Kind::Shared => Completion::Received(unsafe { Received::new(done) }),
            // SAFETY: as above.
            Kind::Bare => Completion::Bare(unsafe { Bare::new(done) }),
            Kind::Pieces => {
                self.spread = Spread::new(done, ring);
                // SAFETY: just filled for this slot.
                Completion::Pieces(unsafe { Pieces::new(&mut self.spread) })
            }
            Kind::Datagram => {
                self.spread = Spread::new(done, ring);
                // SAFETY: as above.
                Completion::Datagram(unsafe { Datagram::new(&mut self.spread) })
            }
            // A scope takes its own, before anybody else can poll.
            Kind::Lent | Kind::LentMut | Kind::Foreign => {
                Completion::Foreign(Foreign::new(done.wc))
            }
        }
    }

    /// Polls into `entries`, past the books of this crate: for requests that were posted raw. Returns how many were filled.
    ///
    /// A request of one of the other methods that is met here stays posted for the books: its buffers come back at the end of
    /// its queue pair.
    ///
    /// Calls `ibv_poll_cq` ([man 3](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// What the provider reports; the queue is then unusable.
    #[inline]
    pub fn poll_raw(&mut self, entries: &mut [ibv_wc]) -> Result<usize> {
        let wanted = i32::try_from(entries.len()).unwrap_or(i32::MAX);
        // SAFETY: `ibv_poll_cq` wants a queue, which the handle keeps alive, and room for as many entries as it is told.
        let returned = unsafe { rdma_sys::ibv_poll_cq(self.raw, wanted, entries.as_mut_ptr()) };
        usize::try_from(returned).map_err(|_| Error::os("ibv_poll_cq", returned.saturating_abs()))
    }

    /// Takes every completion that is there of requests for which `wanted` says yes, and keeps the others for the next poll.
    /// True when there was any.
    ///
    /// # Safety
    ///
    /// `wanted` either leaves the slot alone and gives false, or takes everything out of it, frees it and gives true; or it
    /// changes the slot, and the mark of its id, for a completion that is still to be handed out, and gives false.
    pub(super) unsafe fn sweep(
        &mut self,
        mut wanted: impl FnMut(&Ring, &Slot) -> bool,
    ) -> Result<bool> {
        let mut kept = Vec::new();
        let mut any = false;
        let result = loop {
            let entry = match self.take() {
                Ok(Some(entry)) => entry,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            any = true;
            // SAFETY: as in `poll`.
            let wc = unsafe { entry.as_ref() };
            if self.table.find_at_last(wc.wr_id).is_none() {
                self.read_mail();
            }
            let known = self
                .table
                .find_at_last(wc.wr_id)
                .zip(self.table.ring(wc.wr_id));
            let Some((slot, ring)) = known else {
                kept.push(*wc);
                self.keeps = true;
                continue;
            };
            let run = match wc.wr_id & MARKS {
                // SAFETY: this value is the one consumer, and has seen the id, whose mark says that the run was written.
                MARK_OTHER if !ring.has_many_consumers => unsafe { slot.held() }.run(),
                _ => 0,
            };
            let place = ring.place();
            for before in (1..=run).rev() {
                let id = id_before(wc.wr_id & !MARKS, before);
                // SAFETY: the table keeps the ring.
                let before = unsafe { place.slot(id) };
                if before.holds_request(id) {
                    wanted(ring, before);
                }
            }
            if !wanted(ring, slot) {
                let mut stays = *wc;
                stays.wr_id = slot.id_now(wc.wr_id);
                kept.push(stays);
                self.keeps = true;
            }
        };
        self.keep(&kept);
        self.keeps = false;
        result.map(|()| any)
    }

    /// Puts entries in front of what the provider has. None is left.
    fn keep(&mut self, kept: &[ibv_wc]) {
        if kept.is_empty() {
            return;
        }
        if kept.len() > self.room {
            self.grow(kept.len());
        }
        // SAFETY: there is room for as many.
        unsafe { ptr::copy_nonoverlapping(kept.as_ptr(), self.entries.as_ptr(), kept.len()) };
        self.hand_out(kept.len());
    }
}

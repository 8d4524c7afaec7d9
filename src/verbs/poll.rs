#![expect(unsafe_code, reason = "polls a completion queue")]

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use rdma_sys::{ibv_wc, ibv_wc_status};

use super::completion::{Completion, Done, Found, Received, Sent};
use super::cq::{BATCH, CompletionQueue};
use super::mailbox::Mail;
use super::pieces::Spread;
use super::ring::Ring;
use super::slot::{Kind, RECEIVED, SENT, Slot};
use crate::error::{Error, Result};

/// What an unsignalled request that comes back with a later one ended with.
static ENDED_WELL: Plain = Plain(ibv_wc {
    wr_id: 0,
    status: ibv_wc_status::IBV_WC_SUCCESS,
    opcode: rdma_sys::ibv_wc_opcode::IBV_WC_SEND,
    vendor_err: 0,
    byte_len: 0,
    __bindgen_anon_1: rdma_sys::ibv_wc__bindgen_ty_1 { imm_data: 0 },
    qp_num: 0,
    src_qp: 0,
    wc_flags: 0,
    pkey_index: 0,
    slid: 0,
    sl: 0,
    dlid_path_bits: 0,
});

/// The slot of what is none of ours.
static NONE: Slot = Slot::new(0);

struct Plain(ibv_wc);
// SAFETY: plain numbers.
unsafe impl Sync for Plain {}

/// What the provider has filled and was not handed out.
pub(super) struct Unread {
    pub(super) next: *mut ibv_wc,
    /// How many, from `next` on.
    pub(super) left: u32,
}

impl Unread {
    /// Takes the entry at the front, which is there.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.left -= 1;
        // SAFETY: there is an entry, so this is at most the end of them.
        self.next = unsafe { self.next.add(1) };
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
        let Some(wc) = self.front()? else {
            return Ok(None);
        };
        if let Some(slot) = self.table.find(wc.wr_id).map(NonNull::from) {
            // SAFETY: the table keeps the ring while this value is borrowed, which what is made here borrows.
            let slot = unsafe { slot.as_ref() };
            // SAFETY: this value is the one consumer of its rings, but for a shared one's, whose kind is not one of the two;
            // it has seen the id.
            let kind_and_run = unsafe { slot.held() }.kind_and_run;
            let done = Done { slot, wc };
            if kind_and_run == SENT {
                self.unread.advance();
                // SAFETY: the kind says that there is one buffer. The entry is taken, so it is nobody else's.
                return Ok(Some(Completion::Sent(unsafe { Sent::new(done) })));
            }
            if kind_and_run == RECEIVED {
                self.unread.advance();
                // SAFETY: as above.
                return Ok(Some(Completion::Received(unsafe { Received::new(done) })));
            }
        }
        let mut found = MaybeUninit::uninit();
        self.special(&mut found);
        // SAFETY: `special` has written it.
        let found = unsafe { found.assume_init() };
        // SAFETY: it has taken the entry, or the request before it, and looked at the kind.
        Ok(Some(unsafe { found.into_completion() }))
    }

    /// The entry to look at next, which is polled for if none is left.
    ///
    /// The reference is not bound to `self`, so that the table can be used beside it.
    #[inline(always)]
    pub(super) fn front<'c>(&mut self) -> Result<Option<&'c ibv_wc>> {
        if self.unread.left == 0 {
            self.refill()?;
            if self.unread.left == 0 {
                return Ok(None);
            }
        }
        // SAFETY: `left` entries from `next` on were filled by the provider, over memory that was zeroed before, and are not
        // taken; read only until the next poll, which needs this value: what is made of it borrows the queue.
        Ok(Some(unsafe { &*self.unread.next }))
    }

    /// Polls the provider. Nothing is left unread before.
    #[inline(always)]
    pub(super) fn refill(&mut self) -> Result<()> {
        // SAFETY: `ibv_poll_cq` wants a queue, which the handle keeps alive, and room for as many entries as it is told.
        let returned = unsafe { rdma_sys::ibv_poll_cq(self.raw, BATCH, self.entries()) };
        if returned <= 0 {
            return self.refill_later(returned);
        }
        self.unread.next = self.entries();
        // CAST: above 0.
        #[expect(clippy::cast_sign_loss, reason = "above 0")]
        let filled = returned as u32;
        self.unread.left = filled;
        Ok(())
    }

    /// The queue is empty, or broken.
    #[inline(never)]
    fn refill_later(&mut self, mut returned: i32) -> Result<()> {
        loop {
            match u32::try_from(returned) {
                Ok(0) if !self.queue_is_empty() => return Ok(()),
                Ok(0) => {}
                Ok(filled) => {
                    self.unread.next = self.entries();
                    self.unread.left = filled;
                    return Ok(());
                }
                Err(_) => return Err(Error::os("ibv_poll_cq", returned.saturating_abs())),
            }
            // SAFETY: as in `refill`.
            returned = unsafe { rdma_sys::ibv_poll_cq(self.raw, BATCH, self.entries()) };
        }
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
        for mail in self.shared.mailbox().collect() {
            match mail {
                Mail::Attach(index, ring) => self.table.set(index, ring),
                Mail::Retire(index, depth) => self.retiring.push((index, depth)),
            }
        }
    }

    /// Takes the entry at the front, or an unsignalled request that has ended with it: whatever is not one of the plain two.
    ///
    /// The answer goes through memory, so that the fast path keeps its own in registers.
    #[inline(never)]
    fn special<'c>(&'c mut self, found: &mut MaybeUninit<Found<'c>>) {
        // SAFETY: the caller has seen an entry at the front.
        let wc = unsafe { &*self.unread.next };
        if self.table.find(wc.wr_id).is_none() {
            // The mail may bring its ring; then the last word is read.
            self.read_mail();
        }
        let foreign = Found {
            kind: Kind::Foreign,
            done: Done { slot: &NONE, wc },
            spread: None,
        };
        let Some(slot) = self.table.find_at_last(wc.wr_id) else {
            self.unread.advance();
            found.write(foreign);
            return;
        };
        let ring = self.table.ring(wc.wr_id).map(|ring| &**ring);
        // SAFETY: this value is the consumer, or one of several of a slot that has no run; it has seen the id.
        let held = unsafe { slot.held() };
        if held.run() > 0 {
            if let Some((before, _)) = self.table.run_before(slot, wc.wr_id) {
                let wc = &ENDED_WELL.0;
                // SAFETY: as above: its slot was found by its id.
                let kind = unsafe { before.held() }.kind();
                let done = Done { slot: before, wc };
                let spread = spread_out(&mut self.spread, kind, done, ring);
                found.write(Found { kind, done, spread });
                return;
            }
        }
        self.unread.advance();
        // One of several consumers of a slot asks for it first.
        let is_shared = ring.is_some_and(|ring| ring.has_many_consumers.load(Ordering::Relaxed));
        if is_shared && !slot.claim(wc.wr_id) {
            found.write(foreign);
            return;
        }
        let kind = held.kind();
        let done = Done { slot, wc };
        let spread = spread_out(&mut self.spread, kind, done, ring);
        found.write(Found { kind, done, spread });
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
    /// changes the slot for a completion that is still to be handed out, and gives false.
    pub(super) unsafe fn sweep(
        &mut self,
        mut wanted: impl FnMut(&Ring, &Slot) -> bool,
    ) -> Result<bool> {
        let mut kept = Vec::new();
        let mut any = false;
        let result = loop {
            let wc = match self.front() {
                Ok(Some(wc)) => wc,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            any = true;
            self.unread.advance();
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
            while let Some((before, id)) = self.table.peek_run_before(slot, wc.wr_id) {
                if !self.table.ring(id).is_some_and(|ring| wanted(ring, before)) {
                    break;
                }
                // SAFETY: this value is the consumer, and has seen the id.
                unsafe { slot.shorten_run() };
            }
            if !wanted(ring, slot) {
                kept.push(*wc);
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
        unsafe { ptr::copy_nonoverlapping(kept.as_ptr(), self.entries(), kept.len()) };
        self.unread.next = self.entries();
        self.unread.left = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    }
}

/// Prepares to hand out a request that has more to it than its slot and its entry.
fn spread_out(
    spread: &mut Spread,
    kind: Kind,
    done: Done<'_>,
    ring: Option<&Ring>,
) -> Option<NonNull<Spread>> {
    let ring = ring.filter(|_| matches!(kind, Kind::Pieces | Kind::Datagram))?;
    *spread = Spread::new(done, ring);
    Some(NonNull::from(spread))
}

#![expect(unsafe_code, reason = "posts work requests")]

use rdma_sys::ibv_recv_wr;

use super::op::Op;
use super::prepared::{Place, Prepared};
use super::producer::{Producer, Ready};
use super::refused::Refused;
use super::send_limits::{post_error, too_many};
use super::slot::{Held, Kind};
use super::stage::Stage;
use crate::error::Error;

/// What posts receives, to a queue pair's own queue or to a shared one.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) producer: Producer,
    /// Made while the producer is shut, before it opens.
    request: Prepared<ibv_recv_wr, 1>,
}

/// The queue behind a [`Receiver`].
pub(super) trait Target {
    /// The call that posts to it.
    const OP: &'static str;
    /// The capacity that says how many buffers a receive may have.
    const MAX_SGE: &'static str;
    /// Whether receives complete in the order of their posting, so that the next slot comes free before any other.
    const IN_ORDER: bool;

    /// Whether receives may be posted to it.
    fn is_open(&self) -> bool;

    /// Why there is no free slot.
    fn none_free(&self) -> Error;

    /// Puts a receive into a slot, and gives its `wr_id`.
    ///
    /// # Safety
    ///
    /// As for [`Producer::put`].
    unsafe fn put(&self, producer: &mut Producer, ready: Ready, held: Held) -> u64;

    /// Posts a list of one request, and returns what C did.
    ///
    /// # Safety
    ///
    /// `wr` is readable during the call, with `next` null, and `bad` is writable. Nobody else touches the memory until the
    /// completion. The queue has room for one more.
    unsafe fn call(&self, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32;
}

impl Receiver {
    /// Of a producer that is shut: the first receive opens it.
    pub(super) fn new(producer: Producer) -> Self {
        Self {
            producer,
            request: Prepared::none(),
        }
    }

    /// Posts any sink, owned or lent.
    ///
    /// # Safety
    ///
    /// `to` is the queue whose ring this value fills.
    #[inline(always)]
    pub(super) unsafe fn post<S: Stage, T: Target>(
        &mut self,
        to: &T,
        sink: S,
        user: u64,
    ) -> Result<(), Refused<S::Back>> {
        let pieces = sink.pieces();
        if pieces > 1 && pieces > self.producer.ring().pieces() as usize {
            let limit = self.producer.ring().pieces();
            let error = too_many(T::OP, T::MAX_SGE, pieces, limit);
            return Err(Refused::with(error, sink.back()));
        }
        let ready = match self.producer.ready() {
            Some(ready) => ready,
            None => match self.make_ready(to) {
                Some(ready) => ready,
                None => return Err(Refused::with(to.none_free(), sink.back())),
            },
        };
        let (producer, request) = (&mut self.producer, &mut self.request);
        let kind = match S::KIND {
            Kind::Sent => Kind::Received,
            kind => kind,
        };
        let mut held = Held::new(kind, Op::Receive, user);
        // SAFETY: the request was made, since there is a free slot.
        let Place { wr, bad, list } = unsafe { request.place(0) };
        // SAFETY: the request is this value's own, and `&mut self` is the only access.
        let wr = unsafe { &mut *wr };
        // CAST: at most `MAX_PIECES`.
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_PIECES")]
        #[expect(clippy::cast_possible_wrap, reason = "at most MAX_PIECES")]
        let pieces = pieces as i32;
        let one = pieces == 1;
        if !one {
            wr.num_sge = pieces;
        }
        let further = || producer.further();
        // SAFETY: the elements have room for as many pieces as the queue takes, which was checked; the further cells are of the
        // free slot, which is the producer's.
        unsafe { sink.stage(true, &mut held, further, list) };
        // SAFETY: the slot is free.
        let id = unsafe { to.put(producer, ready, held) };
        wr.wr_id = id;
        // SAFETY: the request is the prepared one, with `next` null; the buffers were moved into the ring, which outlives the
        // queue; the slot was free, and the queue holds as many requests as its ring, by the caller's promise.
        let returned = unsafe { to.call(wr, bad) };
        if !one {
            wr.num_sge = 1;
        }
        if returned == 0 {
            return Ok(());
        }
        let named = request.take_name();
        // SAFETY: the request is the last one of this ring, and the provider has named it or not.
        Err(unsafe { refused::<S>(T::OP, returned, named, producer, id) })
    }

    /// Makes the next slot one that is free; none when there is none.
    #[cold]
    #[inline(never)]
    fn make_ready<T: Target>(&mut self, to: &T) -> Option<Ready> {
        if self.request.is_none() && to.is_open() {
            self.request = Prepared::new(self.producer.ring().pieces());
            self.producer.open();
            return self.producer.ready();
        }
        if T::IN_ORDER {
            self.producer.skip()
        } else {
            self.producer.look_further()
        }
    }
}

/// The error of a post that failed. Only a request that the provider names comes back.
///
/// # Safety
///
/// `id` is the last request of `producer`, of a payload `S`; if it is `named`, the device does not have it.
#[cold]
unsafe fn refused<S: Stage>(
    op: &'static str,
    returned: i32,
    named: bool,
    producer: &mut Producer,
    id: u64,
) -> Refused<S::Back> {
    let error = post_error(op, returned);
    if !named {
        return Refused::kept(error);
    }
    let slot = producer.slot_of(id);
    // SAFETY: no completion of the request comes, so this call acts in the consumer's place.
    let held = unsafe { slot.held() };
    // SAFETY: `stage` has filled them for this slot.
    let back = unsafe { S::unstage(held, producer.ring().further(slot)) };
    // SAFETY: the caller's own obligation.
    unsafe { producer.take_back(id, true) };
    Refused::with(error, back)
}

#![expect(unsafe_code, reason = "calls rdma_accept and rdma_reject")]

use std::fmt;
use std::net::SocketAddr;
use std::ptr;

use rdma_sys::rdma_conn_param;

use super::channel::EventChannel;
use super::handle::{RawQp, Token};
use super::id::CmId;
use super::param::{ConnParam, Limits, Message, Negotiated, check_private_data};
use super::pending::{Failed, Pending, REJECT, Reject};
use super::phase::Phase;
use super::qp;
use super::unacked::Unacked;
use crate::error::{Error, ErrorKind, Result, errno_of_rdma};
use crate::verbs::{
    Context, HandedBack, ProtectionDomain, QueuePair, QueuePairInit, RetryCount, RnrRetry,
};

const ACCEPT: &str = "rdma_accept";

/// A peer's wish to connect: the new id, and the event that brought it, which stays un-acknowledged until the request was
/// answered.
///
/// It is answered once, by a method that consumes it. Dropped, it rejects the peer. It may wait, and move to another thread;
/// the peer waits meanwhile, and gives up some time after.
///
/// Make the queue pair and post the first receives before accepting: the peer may send as soon as the connection stands.
#[must_use = "dropping a request rejects the peer"]
pub struct ConnRequest {
    pending: Pending,
}

/// What the peer offered with its request: a view of the event's own memory, until the request is answered.
///
/// The depths are turned round already: [`responder_resources`](Self::responder_resources) is about what *this* side answers.
#[derive(Clone, Copy)]
pub struct Offer<'ev> {
    unacked: &'ev Unacked,
}

impl ConnRequest {
    pub(super) fn new(unacked: Unacked, id: CmId) -> Self {
        Self {
            pending: Pending::new(unacked, id),
        }
    }

    /// The number by which events name the new id.
    #[must_use]
    pub fn token(&self) -> Token {
        self.pending.id.token()
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.pending.id.peer_addr()
    }

    /// The address that the peer connected to.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.pending.id.local_addr()
    }

    /// The device that the connection will be on.
    ///
    /// # Errors
    ///
    /// As for [`CmId::context`](super::CmId::context); the id of a request has a device.
    #[doc(alias = "verbs")]
    pub fn context(&self) -> Result<Context> {
        self.pending.id.context()
    }

    /// What the peer offered.
    #[must_use]
    pub fn offer(&self) -> Offer<'_> {
        Offer {
            unacked: &self.pending.unacked,
        }
    }

    /// What the peer sent with its request: see [`Offer::private_data`].
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.offer().private_data()
    }

    /// Makes the queue pair of the new id: see [`CmId::create_qp`].
    ///
    /// # Errors
    ///
    /// As for [`CmId::create_qp`]. The request stays; dropping it rejects the peer.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_qp(&self, pd: &ProtectionDomain, init: &QueuePairInit) -> Result<QueuePair> {
        self.pending.id.create_qp(pd, init)
    }

    /// Moves the new id to a channel of its own, so that it survives the listener's: see [`CmId::migrate`].
    ///
    /// # Errors
    ///
    /// As for [`CmId::migrate`].
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<()> {
        self.pending.id.migrate(channel)
    }

    /// Accepts as the library chooses: both depths the smaller of offer and device, RNR retry for ever, no private data.
    ///
    /// Needs a queue pair on the id. What follows is [`Established`](super::EventKind::Established), or a failure when the
    /// peer has changed its mind.
    ///
    /// Calls `rdma_accept` with NULL ([man 3](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)); the request's event
    /// is acknowledged after it has returned. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) without a queue pair: the request comes back. [`PeerGone`](ErrorKind::PeerGone) when the
    /// peer has given up.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self) -> Result<CmId, HandedBack<Self>> {
        let called = self.call_accept(&Choice::Library);
        self.finish(called)
    }

    /// Accepts with `param`. What it leaves out is chosen as in [`accept`](Self::accept).
    ///
    /// To send back something out of the event itself, use [`accept_from`](Self::accept_from): `param` cannot borrow from the
    /// request that this consumes.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept), and [`TooLarge`](ErrorKind::TooLarge) for private data of more than 196 bytes (255
    /// over iWARP), a depth above the device's, or an `initiator_depth` above the offer: the request comes back.
    #[doc(alias = "rdma_accept")]
    pub fn accept_with(self, param: &ConnParam<'_>) -> Result<CmId, HandedBack<Self>> {
        let called = self.call_accept(&Choice::Own(param));
        self.finish(called)
    }

    /// Accepts with what `choose` makes of the offer; it may borrow private data from the event.
    ///
    /// # Errors
    ///
    /// As for [`accept_with`](Self::accept_with). When `choose` panics, the peer is rejected.
    #[doc(alias = "rdma_accept")]
    pub fn accept_from<F>(self, choose: F) -> Result<CmId, HandedBack<Self>>
    where
        F: for<'ev> FnOnce(Offer<'ev>) -> ConnParam<'ev>,
    {
        let param = choose(self.offer());
        let called = self.call_accept(&Choice::Own(&param));
        drop(param);
        self.finish(called)
    }

    /// Accepts with the event's own parameters, as they came: both depths, flow control and retry counts of the offer, and
    /// the peer's own private data sent back to it.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept), and [`TooLarge`](ErrorKind::TooLarge) for an offer above the device's limits, to
    /// which nothing is adjusted here: the request comes back.
    #[doc(alias = "rdma_accept")]
    pub fn accept_as_offered(self) -> Result<CmId, HandedBack<Self>> {
        let called = self.call_accept(&Choice::Offered);
        self.finish(called)
    }

    /// Makes an external queue pair for the new id: see [`CmId::create_external_qp`].
    ///
    /// # Errors
    ///
    /// As for [`CmId::create_external_qp`]. The request stays; dropping it rejects the peer.
    pub fn create_external_qp(
        &self,
        pd: &ProtectionDomain,
        init: &QueuePairInit,
    ) -> Result<QueuePair> {
        self.pending.id.create_external_qp(pd, init)
    }

    /// The new id, to set its options before it is accepted.
    #[must_use]
    pub fn id(&self) -> &CmId {
        &self.pending.id
    }

    /// Rejects the peer, with `private_data` as the reason that a program can read.
    ///
    /// Calls `rdma_reject` ([man 3](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)), acknowledges the event and
    /// destroys the id. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for more than 148 bytes (255 over iWARP): the peer is rejected without them.
    /// A peer that has given up meanwhile is no error.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.reject_by(rdma_sys::rdma_reject, private_data)
    }

    /// Rejects the peer because of its [`Ece`](super::Ece): as [`reject`](Self::reject), with the reason 35, "vendor option not
    /// supported".
    ///
    /// Calls `rdma_reject_ece` ([man 3](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`reject`](Self::reject).
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(self, private_data: &[u8]) -> Result<()> {
        self.reject_by(rdma_sys::rdma_reject_ece, private_data)
    }

    fn reject_by(self, call: Reject, private_data: &[u8]) -> Result<()> {
        let iwarp = self.context()?.is_iwarp();
        let length = check_private_data(REJECT, Message::Reject, iwarp, private_data)?;
        self.pending.reject(call, private_data, length)
    }

    /// Ends the request after an accept: acknowledges its event, now that the call has returned.
    fn finish(self, called: Result<(), Failed>) -> Result<CmId, HandedBack<Self>> {
        match called {
            Ok(()) => {
                self.pending.id.handle().set_connected();
                Ok(self.pending.answered())
            }
            Err(failed) => Err(failed.hand_back(self)),
        }
    }
}

/// The three ways to accept, as `rdma_accept(3)` has them.
enum Choice<'p> {
    /// NULL.
    Library,
    /// The event's own structure.
    Offered,
    /// The caller's.
    Own(&'p ConnParam<'p>),
}

impl ConnRequest {
    /// Calls `rdma_accept`. The event stays un-acknowledged, since `self` does.
    fn call_accept(&self, choice: &Choice<'_>) -> Result<(), Failed> {
        let context = self
            .pending
            .id
            .context_for(ACCEPT)
            .map_err(Failed::Before)?;
        let control = self.pending.id.handle().lock();
        let mut raw = self
            .parameters(choice, &context, control.external)
            .map_err(Failed::Before)?;
        let agreed =
            Negotiated::agreed(raw.as_ref(), self.pending.unacked.param(), context.limits());
        // ESTABLISHED may be read before the call returns: the handle must be ready for it.
        self.pending.id.handle().set_negotiated(agreed);
        self.pending.id.handle().phase().advance(Phase::Connecting);
        if let Some(RawQp(qp)) = control.external {
            self.pending
                .id
                .bring_up(&context, qp, Some(agreed))
                .map_err(Failed::Called)?;
        }
        let param = raw.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: `rdma_accept` wants
        // - the id of a request, which was not accepted yet: the phase, checked under the id's lock;
        // - parameters, and private data, that it reads during the call: `raw`, and behind it the event, which is not
        //   acknowledged, or the caller's `ConnParam`; or NULL, when there is a queue pair on the id, which was checked;
        // - that the event is not acknowledged before it returns: `self` holds it.
        let returned = unsafe { rdma_sys::rdma_accept(self.pending.id.as_raw(), param) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| {
            let gone = match errno {
                libc::EINVAL => qp::peer_gone(self.pending.id.handle()),
                libc::ECONNRESET => true,
                _ => false,
            };
            let error = if gone {
                Error::os_as(ACCEPT, errno, ErrorKind::PeerGone)
            } else {
                Error::os(ACCEPT, errno)
            };
            Failed::Called(error.at(self.pending.id.local_addr(), self.pending.id.peer_addr()))
        })
    }

    /// Checks that the request can be accepted, and gives what to accept it with in C's form; `None` is NULL.
    fn parameters(
        &self,
        choice: &Choice<'_>,
        context: &Context,
        external: Option<RawQp>,
    ) -> Result<Option<rdma_conn_param>> {
        self.pending
            .id
            .expect(ACCEPT, "a request that is not answered", |phase| {
                phase == Phase::Requested
            })?;
        if external.is_none() && !self.pending.id.has_qp() {
            return Err(Error::state(
                ACCEPT,
                "a queue pair on the request (`create_qp`)",
                "there is none",
            ));
        }
        let offer = self.pending.unacked.param();
        let limits = Limits {
            op: ACCEPT,
            message: Message::Accept,
            context,
            offered_initiator_depth: Some(offer.initiator_depth),
        };
        let param = match (choice, external) {
            (Choice::Library, None) => return Ok(None),
            // The library would follow NULL to the queue pair's number.
            (Choice::Library, Some(_)) => ConnParam::new().to_raw(&limits)?,
            (Choice::Own(param), _) => param.to_raw(&limits)?,
            (Choice::Offered, _) => {
                limits.check_offer(offer)?;
                *offer
            }
        };
        Ok(Some(rdma_conn_param {
            // The event's own structure names the peer's queue pair here.
            qp_num: external.map_or(0, qp::number),
            srq: 0,
            ..param
        }))
    }
}

impl fmt::Debug for ConnRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnRequest")
            .field("id", &self.pending.id)
            .finish_non_exhaustive()
    }
}

impl<'ev> Offer<'ev> {
    /// What the peer sent with its request: over InfiniBand and RoCE always 56 bytes, padded with zeros; over iWARP as many
    /// as were sent.
    #[must_use]
    pub fn private_data(self) -> &'ev [u8] {
        self.unacked.private_data()
    }

    /// RDMA reads and atomics that the peer wants to ask of this side at a time.
    #[must_use]
    pub fn responder_resources(self) -> u8 {
        self.unacked.param().responder_resources
    }

    /// RDMA reads and atomics that the peer is ready to answer at a time: the limit of this side's `initiator_depth`.
    #[must_use]
    pub fn initiator_depth(self) -> u8 {
        self.unacked.param().initiator_depth
    }

    /// Whether the peer does hardware flow control.
    #[must_use]
    pub fn flow_control(self) -> bool {
        self.unacked.param().flow_control != 0
    }

    /// How often this side is to repeat a send when the peer does not answer.
    #[must_use]
    pub fn retry_count(self) -> RetryCount {
        RetryCount::from_raw(self.unacked.param().retry_count)
    }

    /// How often this side is to repeat a send while the peer has no receive posted.
    #[must_use]
    pub fn rnr_retry(self) -> RnrRetry {
        RnrRetry::from_raw(self.unacked.param().rnr_retry_count)
    }

    /// The number of the peer's queue pair.
    #[must_use]
    pub fn qp_num(self) -> u32 {
        self.unacked.param().qp_num
    }
}

impl fmt::Debug for Offer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("responder_resources", &self.responder_resources())
            .field("initiator_depth", &self.initiator_depth())
            .field("flow_control", &self.flow_control())
            .field("retry_count", &self.retry_count())
            .field("rnr_retry", &self.rnr_retry())
            .field("private_data_len", &self.private_data().len())
            .finish_non_exhaustive()
    }
}

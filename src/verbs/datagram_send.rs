#![expect(unsafe_code, reason = "posts work requests")]

use std::mem;
use std::sync::Arc;

use rdma_sys::{ibv_send_wr__bindgen_ty_2 as Union, ibv_send_wr__bindgen_ty_2__bindgen_ty_3 as Ud};

use super::ah::AddressHandle;
use super::buf::Buf;
use super::op::Op;
use super::peers::{Peer, Peers, Target};
use super::producer::Ready;
use super::qp_inner::QpInner;
use super::refused::Refused;
use super::send_queue::SendQueue;
use super::send_queue::Shape;
use super::slot::Held;
use super::stage::{Inline, Payload, Stage};
use super::wire::MAX_NUMBER;
use super::work::Work;
use crate::error::{Error, ErrorKind, Result};

const OP: &str = "ibv_post_send";

/// The sending half of a [`DatagramPair`](super::DatagramPair): every request names a destination, a [`Peer`].
///
/// A send completes when it has left; whether it arrives nobody says. A message fits one packet:
/// [`max_message_len`](Self::max_message_len).
///
/// All requests call `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)), do not block, and
/// fail with
///
/// - [`QueueFull`](ErrorKind::QueueFull) when as many requests as the queue holds have not completed: poll the completion queue;
/// - [`TooLarge`](ErrorKind::TooLarge) for a message that does not fit a packet, which devices drop without a word, and for more
///   bytes or buffers than the pair was made for;
/// - [`State`](ErrorKind::State) for a peer that was removed, or is another queue's.
#[derive(Debug)]
pub struct DatagramSendQueue {
    queue: SendQueue,
    peers: Kept,
    max_message_len: u32,
}

/// The destinations, whose handles the queue pair gets when the queue goes: sends that are posted name them until it is
/// destroyed.
#[derive(Debug)]
struct Kept {
    peers: Peers,
    qp: Arc<QpInner>,
}

/// A send of datagrams: to whom, and with what.
#[must_use = "it does nothing until it is posted"]
#[derive(Clone, Copy, Debug)]
pub struct DatagramWork {
    work: Work,
    to: Peer,
}

impl DatagramWork {
    /// Sends a message into a receive that `to` has posted; where none is, it is lost.
    #[doc(alias = "IBV_WR_SEND")]
    #[doc(alias = "ibv_wr_set_ud_addr")]
    #[inline]
    pub const fn send(to: Peer) -> Self {
        Self {
            work: Work::send(),
            to,
        }
    }

    /// Sends a message, and `imm` with it: the peer's [`Datagram::imm`](super::Datagram::imm).
    ///
    /// `imm` is in host order; C's `imm_data` is in network order, and is turned here.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[inline]
    pub const fn send_with_imm(to: Peer, imm: u32) -> Self {
        Self {
            work: Work::send_with_imm(imm),
            to,
        }
    }

    /// Without a completion of its own: see [`Work::unsignaled`].
    #[inline]
    pub const fn unsignaled(mut self) -> Self {
        self.work = self.work.unsignaled();
        self
    }

    /// Wakes a peer that has asked for solicited events only.
    #[inline]
    pub const fn solicited(mut self) -> Self {
        self.work = self.work.solicited();
        self
    }
}

impl DatagramSendQueue {
    pub(super) fn new(queue: SendQueue, max_message_len: u32) -> Self {
        Self {
            peers: Kept {
                peers: Peers::default(),
                qp: Arc::clone(&queue.qp),
            },
            queue,
            max_message_len,
        }
    }

    /// Adds a destination: the queue pair `qp_num` where `ah` leads, or, with the number 0xffffff, a multicast group.
    ///
    /// The destination takes only messages with its own key, `qkey`. (One with its highest bit set stands for this queue pair's
    /// own key.) The queue keeps the address handle.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a handle of another protection domain than the queue pair's;
    /// [`TooLarge`](ErrorKind::TooLarge) for a number of more than 24 bits.
    pub fn add_peer(&mut self, ah: &AddressHandle, qp_num: u32, qkey: u32) -> Result<Peer> {
        if *ah.protection_domain() != self.queue.qp.pd {
            return Err(Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "the address handle is of another protection domain than the queue pair; make both in one",
            ));
        }
        if qp_num > MAX_NUMBER {
            return Err(Error::too_large(
                OP,
                "qp_num",
                qp_num.into(),
                MAX_NUMBER.into(),
                "a queue pair's number has 24 bits",
            ));
        }
        let ring = self.queue.producer.ring();
        self.peers.peers.let_go(|id| ring.is_posted(id));
        Ok(self.peers.peers.add(ah.clone(), qp_num, qkey))
    }

    /// Forgets a destination. Its address handle is let go of when the last send to it has completed, and this method or
    /// [`add_peer`](Self::add_peer) is called again, or the pair ends.
    ///
    /// # Errors
    ///
    /// [`State`](ErrorKind::State) for a peer that was removed, or is another queue's.
    pub fn remove_peer(&mut self, peer: Peer) -> Result<()> {
        let ring = self.queue.producer.ring();
        if self.peers.peers.remove(peer, |id| ring.is_posted(id)) {
            Ok(())
        } else {
            Err(unknown())
        }
    }

    /// Posts a send of `payload`. `user` comes back with the completion.
    ///
    /// # Errors
    ///
    /// As for every request of the queue.
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "rdma_post_ud_send")]
    #[doc(alias = "wr_id")]
    #[inline]
    pub fn post<P: Payload>(
        &mut self,
        work: DatagramWork,
        payload: P,
        user: u64,
    ) -> Result<(), Refused<P::Back>> {
        let Some(known) = self.peers.peers.find(work.to) else {
            return Err(Refused::with(unknown(), payload.back()));
        };
        if payload.bytes() > self.max_message_len.into() {
            let error = too_long(payload.bytes(), self.max_message_len);
            return Err(Refused::with(error, payload.back()));
        }
        if let Err(error) = self.queue.limits().check(&work.work, &payload) {
            return Err(Refused::with(error, payload.back()));
        }
        let ready = match self.queue.producer.ready() {
            Some(ready) => ready,
            None => match self.queue.make_ready() {
                Ok(ready) => ready,
                Err(error) => return Err(Refused::with(error, payload.back())),
            },
        };
        let id = ready.id;
        let target = known.target();
        // SAFETY: the next slot is free, and the payload was checked. The handle of the target is kept until the slot is free
        // again, or until the end of the queue pair: right below.
        let posted = unsafe { go(&mut self.queue, ready, target, work.work, payload, user) };
        if is_with_the_device(&posted) {
            known.last = id;
        }
        posted
    }

    /// Sends what is in `buf` as one message: [`DatagramWork::send`].
    ///
    /// # Errors
    ///
    /// As for every request of the queue.
    #[inline]
    pub fn send(&mut self, to: Peer, buf: Buf, user: u64) -> Result<(), Refused> {
        self.post(DatagramWork::send(to), buf, user)
    }

    /// Has what was posted unsignalled complete, where nothing signalled comes behind it. False when there is no room yet.
    pub(super) fn signal(&mut self) -> bool {
        let ring = self.queue.producer.ring();
        let Some(target) = self.peers.peers.any_posted(|id| ring.is_posted(id)) else {
            return true;
        };
        let Ok(ready) = self.queue.make_ready() else {
            return false;
        };
        let id = ready.id;
        let (work, nothing) = (Work::send(), Inline(&[]));
        // SAFETY: the next slot is free, and nothing fits every queue. The handle of the target is kept as for any send to it.
        let posted = unsafe { go(&mut self.queue, ready, target, work, nothing, 0) };
        let is_posted = is_with_the_device(&posted);
        if is_posted {
            self.peers.peers.keep_until(target, id);
        }
        is_posted
    }

    /// How many bytes fit a message: the MTU of the port, as it was when the pair was made.
    #[must_use]
    pub fn max_message_len(&self) -> u32 {
        self.max_message_len
    }

    /// How many requests may be outstanding.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.queue.depth()
    }

    /// Whether nothing is posted: every request has completed and was polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    /// The queue without its destinations.
    pub(super) fn into_queue(self) -> SendQueue {
        self.queue
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let handles = mem::take(&mut self.peers).into_handles();
        if !handles.is_empty() {
            self.qp.keep(handles);
        }
    }
}

/// Whether the device has the request, or may have it: else its id is the next one's.
#[inline]
fn is_with_the_device<B>(posted: &Result<(), Refused<B>>) -> bool {
    posted.as_ref().map_or_else(Refused::is_kept, |()| true)
}

/// Posts one send.
///
/// # Safety
///
/// `ready` is the next slot and the payload fits the queue. The handle of `target` lives until the request has completed, or the
/// queue pair was destroyed.
#[inline]
unsafe fn go<S: Stage>(
    queue: &mut SendQueue,
    ready: Ready,
    target: Target,
    work: Work,
    payload: S,
    user: u64,
) -> Result<(), Refused<S::Back>> {
    let held = Held::of::<S>(Op::Send, user);
    let must_signal = queue.producer.must_signal();
    let work = if must_signal { work.signaled() } else { work };
    // SAFETY: the caller's own obligation; the shape is any request's.
    unsafe {
        queue.go(
            ready,
            payload,
            held,
            work.is_signaled(),
            Shape::Other,
            |wr| {
                work.fill(wr, S::FLAGS);
                wr.wr = Union {
                    ud: Ud {
                        ah: target.ah,
                        remote_qpn: target.qp_num,
                        remote_qkey: target.qkey,
                    },
                };
            },
        )
    }
}

#[cold]
fn unknown() -> Error {
    Error::state(
        OP,
        "a peer that this queue knows",
        "this one was removed, or is another queue's",
    )
}

#[cold]
fn too_long(len: u64, limit: u32) -> Error {
    Error::too_large(
        OP,
        "length of the message",
        len,
        limit.into(),
        "a datagram fits one packet, and the MTU of the port is the limit",
    )
}

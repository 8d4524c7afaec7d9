#![expect(unsafe_code, reason = "takes buffers out of the slots of a ring")]

use std::fmt;
use std::mem;

use rdma_sys::{ibv_wc, ibv_wc_opcode};

use super::buf::Buf;
use super::datagram::Datagram;
use super::op::Op;
use super::pieces::Pieces;
use super::slot::{MARKS, Slot};
use crate::error::{Cause, Error, Result};
use crate::status::Status;

/// A finished work request (`ibv_wc`), with what belongs to it.
///
/// It keeps its place in the queue of its pair until it is taken apart or dropped; one that is forgotten keeps it until the end
/// of the pair.
#[doc(alias = "ibv_wc")]
#[derive(Debug)]
#[non_exhaustive]
pub enum Completion<'c> {
    /// A request of a send queue, with its buffer.
    Sent(Sent<'c>),
    /// A request of a receive queue, with its buffer.
    Received(Received<'c>),
    /// A receive of a [`DatagramPair`](super::DatagramPair), with its buffer.
    Datagram(Datagram<'c>),
    /// A request with several buffers, of either queue.
    Pieces(Pieces<'c>),
    /// A request without a buffer, such as one with [`Inline`](super::Inline) data.
    Bare(Bare<'c>),
    /// An entry that belongs to no request of this crate: of a queue pair that is gone, or posted by hand.
    Foreign(Foreign<'c>),
}

impl Completion<'_> {
    /// How the request ended.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Sent(sent) => sent.status(),
            Self::Received(received) => received.status(),
            Self::Datagram(datagram) => datagram.status(),
            Self::Pieces(pieces) => pieces.status(),
            Self::Bare(bare) => bare.status(),
            Self::Foreign(foreign) => foreign.status(),
        }
    }
}

/// A slot whose request has completed, and the entry that says so.
///
/// # Invariants
///
/// `slot` holds the request that `wc` is about, or one that ended well with it, and its consumer is whoever has this value: it
/// borrows the completion queue.
#[derive(Clone, Copy)]
pub(super) struct Done<'c> {
    pub(super) slot: &'c Slot,
    pub(super) wc: &'c ibv_wc,
}

impl Done<'_> {
    #[inline]
    pub(super) fn status(&self) -> Status {
        Status::from_raw(self.wc.status.0)
    }

    #[inline]
    pub(super) fn is_success(&self) -> bool {
        self.wc.status.0 == Status::SUCCESS.as_raw()
    }

    #[inline]
    pub(super) fn user(&self) -> u64 {
        // SAFETY: this value is the consumer, and the slot has an id (the invariant).
        unsafe { self.slot.held() }.user
    }

    #[inline]
    pub(super) fn op(&self) -> Op {
        match self.wc.wr_id & MARKS {
            // Of a receive with one buffer nothing else was written.
            0 => Op::Receive,
            // SAFETY: as for `user`.
            _ => unsafe { self.slot.held() }.op(),
        }
    }

    /// Takes the one buffer out and gives the slot back.
    ///
    /// # Safety
    ///
    /// The slot has one buffer of a pool; it is taken once.
    #[inline]
    pub(super) unsafe fn take(&self) -> Buf {
        // SAFETY: as for `user`.
        let piece = unsafe { self.slot.held() }.piece;
        // SAFETY: the caller says that there is one.
        let piece = unsafe { piece.unwrap_unchecked() };
        self.slot.free();
        // SAFETY: the piece came from `into_piece`; the request has completed, so the device has let go; it is taken once.
        unsafe { Buf::from_piece(piece) }
    }

    /// How many bytes a receive has put into its buffers, at most `capacity`.
    #[inline]
    pub(super) fn received(&self, capacity: u32) -> u32 {
        // The byte_len of a write with immediate counts what was written elsewhere; that of a failed completion is undefined.
        if !self.is_success() || self.wc.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM {
            return nothing();
        }
        self.wc.byte_len.min(capacity)
    }

    /// How many bytes came with a receive, wherever they went.
    #[inline]
    pub(super) fn byte_len(&self) -> u32 {
        if self.is_success() {
            self.wc.byte_len
        } else {
            0
        }
    }

    /// Whether a receive was used up by a write with an immediate value.
    #[inline]
    pub(super) fn is_write_with_imm(&self) -> bool {
        // The opcode of a failed completion is undefined.
        self.is_success() && self.wc.opcode == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM
    }

    #[inline]
    fn extra(&self, flag: u32) -> Option<u32> {
        // On an errored completion only wr_id, status, qp_num and vendor_err are defined.
        if !self.is_success() || self.wc.wc_flags & flag == 0 {
            return None;
        }
        // SAFETY: both members of the union are four plain bytes, and the queue's array was zeroed before it was polled into.
        Some(unsafe { self.wc.__bindgen_anon_1.imm_data })
    }

    #[inline]
    pub(super) fn imm(&self) -> Option<u32> {
        self.extra(rdma_sys::IBV_WC_WITH_IMM).map(u32::from_be)
    }

    pub(super) fn invalidated(&self) -> Option<u32> {
        self.extra(rdma_sys::IBV_WC_WITH_INV)
    }

    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        if self.is_success() {
            return Ok(());
        }
        Err((*self).failed())
    }

    #[cold]
    #[inline(never)]
    fn failed(self) -> Error {
        let call = match self.op() {
            Op::Receive => "ibv_post_recv",
            _ => "ibv_post_send",
        };
        let status = self.status();
        Error::new(call, Cause::Completion { status })
    }

    pub(super) fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("op", &self.op())
            .field("user", &self.user())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// No bytes: the other way is the usual one.
#[cold]
fn nothing() -> u32 {
    0
}

/// What the kinds of finished requests have in common.
macro_rules! finished {
    ($name:ident $(, $env:lifetime)?) => {
        impl $name<'_ $(, $env)?> {
            /// How the request ended.
            #[inline]
            #[must_use]
            pub fn status(&self) -> Status {
                self.done().status()
            }

            /// What the request did.
            #[inline]
            #[must_use]
            pub fn op(&self) -> Op {
                self.done().op()
            }

            /// The number that was given with the request.
            #[doc(alias = "wr_id")]
            #[inline]
            #[must_use]
            pub fn user(&self) -> u64 {
                self.done().user()
            }

            /// What the device's maker says about a request that failed; 0 for one that did not.
            #[must_use]
            pub fn vendor_err(&self) -> u32 {
                if self.done().is_success() {
                    0
                } else {
                    self.done().wc.vendor_err
                }
            }

            /// An error unless the request was carried out.
            ///
            /// # Errors
            ///
            /// [`WorkFailed`](crate::ErrorKind::WorkFailed) with the [`Status`].
            #[inline]
            pub fn check(&self) -> Result<()> {
                self.done().check()
            }
        }

        impl fmt::Debug for $name<'_ $(, $env)?> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.done().show(stringify!($name), f)
            }
        }
    };
}
pub(super) use finished;

/// A finished request of a send queue. Its buffer goes back to its pool unless it is taken out.
pub struct Sent<'c> {
    /// Of a slot with one buffer.
    done: Done<'c>,
}

finished!(Sent);

impl<'c> Sent<'c> {
    #[inline]
    fn done(&self) -> Done<'c> {
        self.done
    }

    /// # Safety
    ///
    /// The slot has one buffer of a pool, and is this value's.
    #[inline]
    pub(super) unsafe fn new(done: Done<'c>) -> Self {
        Self { done }
    }

    /// The buffer, for the program to use again.
    #[inline]
    #[must_use]
    pub fn into_buf(self) -> Buf {
        let done = self.done;
        mem::forget(self);
        // SAFETY: one buffer, as `new` was told, and taken once, since this value is gone.
        unsafe { done.take() }
    }
}

impl Drop for Sent<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: one buffer, as `new` was told, and not taken, since `into_buf` forgets this value.
        drop(unsafe { self.done.take() });
    }
}

/// A finished request of a receive queue. Its buffer goes back to its pool unless it is taken out.
#[doc(alias = "ibv_wc_flags")]
pub struct Received<'c> {
    /// Of a slot with one buffer.
    done: Done<'c>,
}

finished!(Received);

impl<'c> Received<'c> {
    #[inline]
    fn done(&self) -> Done<'c> {
        self.done
    }

    /// # Safety
    ///
    /// The slot has one buffer of a pool, and is this value's.
    #[inline]
    pub(super) unsafe fn new(done: Done<'c>) -> Self {
        Self { done }
    }

    /// The queue pair that the message came on.
    #[inline]
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.done.wc.qp_num
    }

    /// The immediate value that came with the message, if one did. In host order; C's `imm_data` is in network order.
    #[doc(alias = "IBV_WC_WITH_IMM")]
    #[doc(alias = "imm_data")]
    #[inline]
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        self.done.imm()
    }

    /// How many bytes came: into the buffer or, with a [write](Self::is_write_with_imm), into the memory that was exposed. 0
    /// unless the request was carried out.
    #[inline]
    #[must_use]
    pub fn byte_len(&self) -> u32 {
        self.done.byte_len()
    }

    /// Whether it was a write with an immediate value that used this receive up, and no message: the bytes are in the memory
    /// that was exposed, and the buffer is empty. False unless the request was carried out.
    #[doc(alias = "IBV_WC_RECV_RDMA_WITH_IMM")]
    #[doc(alias = "opcode")]
    #[inline]
    #[must_use]
    pub fn is_write_with_imm(&self) -> bool {
        self.done.is_write_with_imm()
    }

    /// The key of the memory window that the message has invalidated, if it did.
    #[doc(alias = "IBV_WC_WITH_INV")]
    #[doc(alias = "invalidated_rkey")]
    #[must_use]
    pub fn invalidated(&self) -> Option<u32> {
        self.done.invalidated()
    }

    /// The message: the buffer, as long as what arrived, and empty unless the request was carried out.
    #[inline]
    #[must_use]
    pub fn into_buf(self) -> Buf {
        let done = self.done;
        mem::forget(self);
        // SAFETY: one buffer, as `new` was told, and taken once, since this value is gone.
        let mut buf = unsafe { done.take() };
        let length = done.received(buf.whole().length);
        buf.set_length(length);
        buf
    }
}

impl Drop for Received<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: one buffer, as `new` was told, and not taken, since `into_buf` forgets this value.
        drop(unsafe { self.done.take() });
    }
}

/// A finished request that has no buffer.
pub struct Bare<'c> {
    done: Done<'c>,
}

finished!(Bare);

impl<'c> Bare<'c> {
    #[inline]
    fn done(&self) -> Done<'c> {
        self.done
    }

    /// # Safety
    ///
    /// The slot has no buffer, and is this value's.
    #[inline]
    pub(super) unsafe fn new(done: Done<'c>) -> Self {
        Self { done }
    }
}

impl Drop for Bare<'_> {
    #[inline]
    fn drop(&mut self) {
        self.done.slot.free();
    }
}

/// A completion that belongs to no request of this crate.
#[derive(Clone, Copy)]
pub struct Foreign<'c> {
    wc: &'c ibv_wc,
}

impl<'c> Foreign<'c> {
    #[inline]
    pub(super) fn new(wc: &'c ibv_wc) -> Self {
        Self { wc }
    }

    /// The `wr_id` of the entry.
    #[must_use]
    pub fn wr_id(&self) -> u64 {
        self.wc.wr_id
    }

    /// The queue pair that the entry is about.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.wc.qp_num
    }

    /// How the request ended.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_raw(self.wc.status.0)
    }
}

impl fmt::Debug for Foreign<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("wr_id", &self.wr_id())
            .field("qp_num", &self.qp_num())
            .field("status", &self.status())
            .finish()
    }
}

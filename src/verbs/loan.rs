#![expect(unsafe_code, reason = "moves lent memory into the slots of a ring")]

use std::fmt;
use std::marker::PhantomData;
use std::mem;

use super::completion::{Done, finished};
use super::lent::{Lent, LentMut};
use super::op::Op;
use super::stage::{Memory, OnePiece, Payload, Sink, Stage};
use crate::error::Result;
use crate::status::Status;

/// A finished request on [`Lent`] memory. The loan ends when this is dropped, unless the memory is taken out.
pub struct Returned<'c, 'env>(Back<'c, Lent<'env>>);

/// A finished request on [`LentMut`] memory. The loan ends when this is dropped, unless the memory is taken out.
pub struct ReturnedMut<'c, 'env>(Back<'c, LentMut<'env>>);

/// The loan `L` of a finished request, which ends when this is dropped, unless it is taken out.
struct Back<'c, L: OnePiece> {
    done: Done<'c>,
    _loan: PhantomData<L>,
}

finished!(Returned, '_);
finished!(ReturnedMut, '_);

/// What a request in a scope sends: whatever it does outside, or [`Lent`] or [`LentMut`] memory.
#[expect(private_bounds, reason = "only the types here can be loans")]
pub trait Loan<'env>: Memory + Stage {
    /// Whether the memory is lent.
    #[doc(hidden)]
    const IS_LENT: bool;
}

impl<'env> Loan<'env> for Lent<'env> {
    const IS_LENT: bool = true;
}

impl<'env> Loan<'env> for LentMut<'env> {
    const IS_LENT: bool = true;
}

impl<P: Payload> Loan<'_> for P {
    const IS_LENT: bool = false;
}

/// Where a request in a scope puts what arrives: whatever it does outside, or [`LentMut`] memory.
pub trait LoanMut<'env>: Loan<'env> + Memory<Back = Self> {}

impl<'env> LoanMut<'env> for LentMut<'env> {}

impl<P: Sink> LoanMut<'_> for P {}

impl<'c, 'env> Returned<'c, 'env> {
    /// # Safety
    ///
    /// The slot has a loan for reading, of the scope's, and is this value's.
    #[inline]
    pub(super) unsafe fn new(done: Done<'c>) -> Self {
        // SAFETY: the caller's own obligation.
        Self(unsafe { Back::new(done) })
    }

    #[inline]
    fn done(&self) -> Done<'c> {
        self.0.done
    }

    /// The memory, to be lent again.
    #[inline]
    #[must_use]
    pub fn into_lent(self) -> Lent<'env> {
        self.0.take()
    }
}

impl<'c, 'env> ReturnedMut<'c, 'env> {
    /// # Safety
    ///
    /// The slot has a loan for writing, of the scope's, and is this value's.
    #[inline]
    pub(super) unsafe fn new(done: Done<'c>) -> Self {
        // SAFETY: the caller's own obligation.
        Self(unsafe { Back::new(done) })
    }

    #[inline]
    fn done(&self) -> Done<'c> {
        self.0.done
    }

    /// The memory, to be lent again. After a receive it is as long as what arrived, and empty unless that was carried out.
    #[inline]
    #[must_use]
    pub fn into_lent(self) -> LentMut<'env> {
        let done = self.done();
        let op = done.op();
        let mut lent = self.0.take();
        if op == Op::Receive {
            let length = done.received(lent.piece().whole.length);
            OnePiece::set_length(&mut lent, length);
        }
        lent
    }

    /// The immediate value that came with a message, if one did. In host order; C's `imm_data` is in network order.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        match self.op() {
            Op::Receive => self.done().imm(),
            _ => None,
        }
    }

    /// How many bytes came with a message, as [`Received::byte_len`](super::Received::byte_len) says; 0 for a request of a send
    /// queue.
    #[must_use]
    pub fn byte_len(&self) -> u32 {
        match self.op() {
            Op::Receive => self.done().byte_len(),
            _ => 0,
        }
    }

    /// Whether it was a write with an immediate value that used a receive up, as
    /// [`Received::is_write_with_imm`](super::Received::is_write_with_imm) says.
    #[doc(alias = "IBV_WC_RECV_RDMA_WITH_IMM")]
    #[must_use]
    pub fn is_write_with_imm(&self) -> bool {
        self.op() == Op::Receive && self.done().is_write_with_imm()
    }
}

impl<'c, L: OnePiece> Back<'c, L> {
    /// # Safety
    ///
    /// The slot has a loan `L`, of the scope's, and is this value's.
    #[inline]
    unsafe fn new(done: Done<'c>) -> Self {
        Self {
            done,
            _loan: PhantomData,
        }
    }

    /// Takes the loan out, and gives the slot back.
    #[inline]
    fn take(self) -> L {
        let done = self.done;
        mem::forget(self);
        // SAFETY: of a slot with a loan `L`, as `new` says, and taken once, since this value is gone.
        unsafe { taken(done) }
    }
}

impl<L: OnePiece> Drop for Back<'_, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: of a slot with a loan `L`, as `new` says, not taken, since `take` forgets this value.
        drop(unsafe { taken::<L>(self.done) });
    }
}

/// Takes the loan out of a slot, and gives the slot back.
///
/// # Safety
///
/// The slot has a loan `L` of the scope's, which is taken once.
#[inline]
unsafe fn taken<L: OnePiece>(done: Done<'_>) -> L {
    // SAFETY: whoever has a `Done` is the consumer.
    let held = unsafe { done.slot.held() };
    done.slot.free();
    // SAFETY: the caller says that there is one.
    let piece = unsafe { held.piece.unwrap_unchecked() };
    // SAFETY: from `into_piece` of an `L`, taken once, and its request has completed.
    unsafe { L::from_piece(piece) }
}

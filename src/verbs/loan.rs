#![expect(unsafe_code, reason = "moves lent memory into the slots of a ring")]

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use super::buf::Piece;
use super::completion::{Done, finished};
use super::lent::{Lent, LentMut};
use super::op::Op;
use super::stage::{Memory, OnePiece, Payload, Sink, Stage};
use crate::error::Result;
use crate::status::Status;

/// A finished request on [`Lent`] memory. The loan ends when this is dropped, unless the memory is taken out.
pub struct Returned<'c, 'env> {
    done: Done<'c>,
    _env: PhantomData<Lent<'env>>,
}

/// A finished request on [`LentMut`] memory. The loan ends when this is dropped, unless the memory is taken out.
pub struct ReturnedMut<'c, 'env> {
    done: Done<'c>,
    _env: PhantomData<LentMut<'env>>,
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
        Self {
            done,
            _env: PhantomData,
        }
    }

    #[inline]
    fn done(&self) -> Done<'c> {
        self.done
    }

    /// The memory, to be lent again.
    #[inline]
    #[must_use]
    pub fn into_lent(self) -> Lent<'env> {
        let done = self.done;
        mem::forget(self);
        // SAFETY: of a slot with a loan, and taken once, since this value is gone.
        let piece = unsafe { taken(done) };
        // SAFETY: a loan of this scope, for reading.
        unsafe { Lent::from_piece(piece) }
    }
}

impl<'c, 'env> ReturnedMut<'c, 'env> {
    /// # Safety
    ///
    /// The slot has a loan for writing, of the scope's, and is this value's.
    #[inline]
    pub(super) unsafe fn new(done: Done<'c>) -> Self {
        Self {
            done,
            _env: PhantomData,
        }
    }

    #[inline]
    fn done(&self) -> Done<'c> {
        self.done
    }

    /// The memory, to be lent again. After a receive it is as long as what arrived, and empty unless that was carried out.
    #[inline]
    #[must_use]
    pub fn into_lent(self) -> LentMut<'env> {
        let done = self.done;
        mem::forget(self);
        let op = done.op();
        // SAFETY: of a slot with a loan, and taken once, since this value is gone.
        let piece = unsafe { taken(done) };
        // SAFETY: a loan of this scope, for writing.
        let mut lent = unsafe { LentMut::from_piece(piece) };
        if op == Op::Receive {
            let length = done.received(lent.piece().whole.length);
            OnePiece::set_length(&mut lent, length);
        }
        lent
    }

    /// The immediate value that came with a message, if one did.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        match self.op() {
            Op::Receive => self.done.imm(),
            _ => None,
        }
    }
}

/// Takes the loan out of a slot, and gives the slot back.
///
/// # Safety
///
/// The slot has a loan, which is taken once.
#[inline]
unsafe fn taken(done: Done<'_>) -> NonNull<Piece> {
    // SAFETY: whoever has a `Done` is the consumer.
    let held = unsafe { done.slot.held() };
    done.slot.free();
    // SAFETY: the caller says that there is one.
    unsafe { held.piece.unwrap_unchecked() }
}

impl Drop for Returned<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: of a slot with a loan, not taken, since `into_lent` forgets this value.
        let piece = unsafe { taken(self.done) };
        // SAFETY: a loan of this scope.
        drop(unsafe { Lent::from_piece(piece) });
    }
}

impl Drop for ReturnedMut<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: of a slot with a loan, not taken, since `into_lent` forgets this value.
        let piece = unsafe { taken(self.done) };
        // SAFETY: a loan of this scope.
        drop(unsafe { LentMut::from_piece(piece) });
    }
}

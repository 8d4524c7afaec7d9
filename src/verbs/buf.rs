#![expect(unsafe_code, reason = "owns registered memory that a device writes to")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use rdma_sys::ibv_sge;

use super::lent::LentPiece;
use super::pool::{Inner, Pool};

/// One buffer, as the device needs it.
pub(super) struct Piece {
    /// What a send reads: the address, the current length, the key.
    pub(super) filled: ibv_sge,
    /// What a receive may write: the address, the capacity, the key.
    pub(super) whole: ibv_sge,
    /// The pool, as `Arc::into_raw` gave it, while a `Buf` owns the piece; else null. Null also for lent memory.
    pool: *const Inner,
    index: u32,
}

impl Piece {
    /// The piece number `index` of a pool.
    pub(super) const fn of_pool(whole: ibv_sge, index: u32) -> Self {
        Self {
            filled: whole,
            whole,
            pool: ptr::null(),
            index,
        }
    }

    /// Memory that is lent.
    pub(super) const fn lent(whole: ibv_sge) -> Self {
        Self::of_pool(whole, 0)
    }

    /// Gives the piece, which its pool has handed out, its share of the pool, and its whole length.
    pub(super) fn take(&mut self, pool: Arc<Inner>) {
        self.pool = Arc::into_raw(pool);
        self.filled.length = self.whole.length;
    }
}

/// A buffer of registered memory, owned by the program: plain bytes.
///
/// One word wide. Posting it moves it into the request; the completion brings it back. Dropped, it returns to its [`Pool`].
///
/// # Invariants
///
/// `piece` is owned by this value alone, and its `pool` is a share of the pool that the piece is of. (In a ring, a piece may also
/// be lent memory, which has no pool; a program never gets a `Buf` of it.)
#[doc(alias = "ibv_sge")]
pub struct Buf {
    piece: NonNull<Piece>,
}

// SAFETY: a `Buf` owns its piece and the bytes behind it, as a `Box<[u8]>` does.
unsafe impl Send for Buf {}
// SAFETY: through `&Buf` bytes and numbers are only read.
unsafe impl Sync for Buf {}

impl Buf {
    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.whole().length as usize
    }

    /// Sets how many bytes are in use: what a send sends.
    ///
    /// # Panics
    ///
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        let length = u32::try_from(len)
            .ok()
            .filter(|&length| length <= self.whole().length);
        let length = length.unwrap_or_else(|| {
            panic!(
                "length {len} of a buffer with a capacity of {}",
                self.capacity()
            )
        });
        self.set_length(length);
    }

    /// Sets the length, which is not above the capacity.
    #[inline]
    pub(super) fn set_length(&mut self, length: u32) {
        debug_assert!(length <= self.whole().length);
        // SAFETY: the piece is this value's own (the invariant).
        unsafe { (*self.piece.as_ptr()).filled.length = length };
    }

    /// Copies `data` in and makes that the buffer's content.
    ///
    /// # Panics
    ///
    /// When `data` is longer than the capacity.
    pub fn fill_from(&mut self, data: &[u8]) {
        self.set_len(data.len());
        self.copy_from_slice(data);
    }

    /// Whether the buffer is one of `pool`'s.
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        // SAFETY: the piece is this value's own (the invariant).
        let own = unsafe { self.piece.as_ref() }.pool;
        ptr::eq(own, Arc::as_ptr(&pool.inner))
    }

    /// What a send reads.
    #[inline]
    pub(super) fn filled(&self) -> ibv_sge {
        self.piece().filled
    }

    #[inline]
    pub(super) fn piece(&self) -> &Piece {
        // SAFETY: the piece is this value's own (the invariant).
        unsafe { self.piece.as_ref() }
    }

    /// What a receive may write.
    #[inline]
    pub(super) fn whole(&self) -> ibv_sge {
        self.piece().whole
    }

    /// Gives up the buffer for a pointer, which owns it from now on.
    #[inline]
    pub(super) fn into_piece(self) -> NonNull<Piece> {
        ManuallyDrop::new(self).piece
    }

    /// Takes back what [`into_piece`](Self::into_piece) gave.
    ///
    /// # Safety
    ///
    /// `piece` came from `into_piece`, is taken back once, and no device uses its bytes.
    #[inline]
    pub(super) unsafe fn from_piece(piece: NonNull<Piece>) -> Self {
        // INVARIANT: the caller hands over what `into_piece` gave up.
        Self { piece }
    }

    pub(super) fn address(&self) -> *mut u8 {
        // CAST: the address of memory of this process fits its pointers.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an address of this process"
        )]
        let address = self.whole().addr as usize;
        ptr::with_exposed_provenance_mut(address)
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let len = self.filled().length as usize;
        // SAFETY: the first `len` bytes are part of the piece's range, initialised (zeroed at allocation), and owned by this
        // value: no device uses them, since posting moves the `Buf` away. The pool keeps them allocated.
        unsafe { slice::from_raw_parts(self.address(), len) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.filled().length as usize;
        // SAFETY: as for `deref`, and `&mut self` makes the access the only one.
        unsafe { slice::from_raw_parts_mut(self.address(), len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the piece is this value's own (the invariant), and it is not used after this.
        unsafe { give_back(self.piece) };
    }
}

/// Ends a buffer. By value, so that a `Buf` can stay in a register.
///
/// # Safety
///
/// The piece is the caller's own, and is given up.
#[inline(never)]
unsafe fn give_back(piece: NonNull<Piece>) {
    // SAFETY: the piece is the caller's own.
    let Piece { pool, index, .. } = *unsafe { piece.as_ref() };
    if pool.is_null() {
        // SAFETY: a piece without a pool that somebody owns is a lent one, and ends here.
        unsafe { LentPiece::end(piece) };
        return;
    }
    // SAFETY: `pool` came from `Arc::into_raw` when the piece was taken, and that share is given back once, here.
    let pool = unsafe { Arc::from_raw(pool) };
    pool.give_back(index);
}

#![expect(unsafe_code, reason = "registers borrowed memory")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use rdma_sys::{ibv_mr, ibv_sge};

use super::buf::Piece;
use super::pd::ProtectionDomain;
use super::region::{REG_MR, check_len};
use super::slot::Kind;
use super::stage::{self, OnePiece};
use super::wire::MAX_MESSAGE;
use crate::error::{Result, errno_of_verbs, not_registered, pointer_of};

/// Borrowed memory, registered for sends and writes: to be posted inside a [`Scope`](super::Scope).
///
/// Made by [`ProtectionDomain::lend`]. Cloning shares the registration: several requests can send the same bytes at once. It ends
/// when the last share is dropped. Forgotten, it is leaked, which is harmless: no peer can reach the memory, and this side only by
/// a request on it.
pub struct Lent<'m> {
    memory: Memory<'m>,
}

/// Borrowed memory, registered for sends, writes, receives and reads: to be posted inside a [`Scope`](super::Scope).
///
/// Made by [`ProtectionDomain::lend_mut`]; otherwise as [`Lent`].
pub struct LentMut<'m> {
    memory: Memory<'m>,
}

/// # Invariants
///
/// `raw` is a [`LentPiece`] from a box, owned by this value alone, that describes memory which is borrowed for `'m`: for
/// writing, too, in a [`LentMut`].
struct Memory<'m> {
    raw: NonNull<LentPiece>,
    _borrow: PhantomData<&'m mut [u8]>,
}

/// A piece of memory that is lent.
#[repr(C)]
pub(super) struct LentPiece {
    /// First, so that a pointer to it is one to the whole.
    piece: Piece,
    region: Arc<Region>,
}

/// A registration of memory that somebody else owns.
///
/// # Invariants
///
/// `mr` is registered in `pd` without remote access, and nobody else deregisters it.
struct Region {
    mr: NonNull<ibv_mr>,
    pd: ProtectionDomain,
}

// SAFETY: the pointer is only handed to libibverbs.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; nothing is written through `&Region`.
unsafe impl Sync for Region {}

// SAFETY: borrowed bytes, as in a `&mut [u8]`, and a share of a `Region`.
unsafe impl Send for Memory<'_> {}
// SAFETY: through `&Memory` bytes and numbers are read.
unsafe impl Sync for Memory<'_> {}

impl ProtectionDomain {
    /// Registers borrowed memory for sends and writes inside a [`Scope`](super::Scope).
    ///
    /// Registering takes far longer than copying a small message: for those, copy into a [`Buf`](super::Buf) or send
    /// [`Inline`](super::Inline).
    ///
    /// Calls `ibv_reg_mr` ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)) without remote access. Blocks: no.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for no bytes; [`TooLarge`](crate::ErrorKind::TooLarge) for more than 2 GiB or the
    /// device's `max_mr_size`; `ENOMEM` above the limit of locked memory.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "rdma_reg_msgs")]
    pub fn lend<'m>(&self, memory: &'m [u8]) -> Result<Lent<'m>> {
        let start = NonNull::from(memory).cast();
        // SAFETY: the bytes are borrowed for `'m`, and only read.
        let memory = unsafe { Memory::new(self, start, memory.len(), 0) }?;
        Ok(Lent { memory })
    }

    /// Registers borrowed memory for sends, writes, receives and reads inside a [`Scope`](super::Scope).
    ///
    /// Calls `ibv_reg_mr` with local write access and without remote access. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`lend`](Self::lend).
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "rdma_reg_msgs")]
    pub fn lend_mut<'m>(&self, memory: &'m mut [u8]) -> Result<LentMut<'m>> {
        let len = memory.len();
        let start = NonNull::from(memory).cast();
        // SAFETY: the bytes are borrowed for `'m`, for writing.
        let memory = unsafe { Memory::new(self, start, len, rdma_sys::IBV_ACCESS_LOCAL_WRITE) }?;
        Ok(LentMut { memory })
    }
}

impl Memory<'_> {
    /// # Safety
    ///
    /// The `len` bytes at `start` are borrowed for the lifetime of the result, for writing if `access` says so.
    unsafe fn new(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        access: u32,
    ) -> Result<Self> {
        check_len(REG_MR, pd, len, MAX_MESSAGE.into())?;
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        let length = len as u32;
        let addr = start.as_ptr().expose_provenance() as u64;
        // SAFETY: `ibv_reg_mr` wants a domain, which `pd` is, and `len` bytes that are mapped: they are borrowed. What happens
        // to them afterwards is harmless as long as no request names the region, and requests own a `Memory`.
        // CAST: a low bit.
        let mr =
            unsafe { rdma_sys::ibv_reg_mr(pd.as_raw(), start.as_ptr().cast(), len, access as i32) };
        let mr = pointer_of(mr).map_err(|errno| not_registered(REG_MR, errno, len))?;
        // SAFETY: just registered; its key never changes.
        let lkey = unsafe { mr.as_ref() }.lkey;
        // INVARIANT: registered above.
        let region = Arc::new(Region { mr, pd: pd.clone() });
        Ok(Self::of(ibv_sge { addr, length, lkey }, region))
    }

    fn of(whole: ibv_sge, region: Arc<Region>) -> Self {
        let piece = LentPiece {
            piece: Piece::lent(whole),
            region,
        };
        // INVARIANT: from a box; the callers see to the memory.
        Self {
            raw: NonNull::from(Box::leak(Box::new(piece))),
            _borrow: PhantomData,
        }
    }

    fn piece(&self) -> &Piece {
        // SAFETY: owned by this value (the invariant).
        unsafe { &self.raw.as_ref().piece }
    }

    fn set_length(&mut self, length: u32) {
        // SAFETY: owned by this value (the invariant).
        unsafe { (*self.raw.as_ptr()).piece.filled.length = length };
    }

    fn bytes(&self) -> NonNull<[u8]> {
        let ibv_sge { addr, length, .. } = self.piece().filled;
        // CAST: the address of memory of this process fits its pointers.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an address of this process"
        )]
        let start = std::ptr::with_exposed_provenance_mut(addr as usize);
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        NonNull::slice_from_raw_parts(start, length as usize)
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        let whole = self.piece().whole;
        let mid = u32::try_from(mid).ok().filter(|&mid| mid <= whole.length);
        let mid =
            mid.unwrap_or_else(|| panic!("the split is beyond the {} bytes lent", whole.length));
        // SAFETY: owned by this value (the invariant).
        let region = Arc::clone(&unsafe { self.raw.as_ref() }.region);
        let first = ibv_sge {
            length: mid,
            ..whole
        };
        let second = ibv_sge {
            addr: whole.addr + u64::from(mid),
            length: whole.length - mid,
            ..whole
        };
        (
            Self::of(first, Arc::clone(&region)),
            Self::of(second, region),
        )
    }

    fn into_piece(self) -> NonNull<Piece> {
        ManuallyDrop::new(self).raw.cast()
    }

    /// # Safety
    ///
    /// `piece` came from `into_piece` of a memory that is borrowed for at least as long, and is taken back once.
    unsafe fn from_piece(piece: NonNull<Piece>) -> Self {
        // INVARIANT: the caller hands over what `into_piece` gave up.
        Self {
            raw: piece.cast(),
            _borrow: PhantomData,
        }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: from a box, owned by this value alone (the invariant).
        drop(unsafe { Box::from_raw(self.raw.as_ptr()) });
    }
}

impl LentPiece {
    /// Ends a lent piece.
    ///
    /// # Safety
    ///
    /// `piece` came from `into_piece` of lent memory, and nobody uses it any more.
    pub(super) unsafe fn end(piece: NonNull<Piece>) {
        // SAFETY: the caller's own obligation; the borrow has not ended, since a scope gives lent memory back before.
        drop(unsafe { Memory::from_piece(piece) });
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `ibv_dereg_mr` wants a region that no work request uses: those that did had a piece of it.
        let returned = unsafe { rdma_sys::ibv_dereg_mr(self.mr.as_ptr()) };
        if errno_of_verbs(returned).is_err() {
            // The region lives on, and so must its domain. Nobody can reach memory through it: no request has its key.
            std::mem::forget(self.pd.clone());
        }
    }
}

impl<'m> Lent<'m> {
    /// Two parts of one registration, the second from byte `mid` on.
    ///
    /// # Panics
    ///
    /// When `mid` is beyond the end.
    #[must_use]
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        let (first, second) = self.memory.split_at(mid);
        (Self { memory: first }, Self { memory: second })
    }
}

impl Clone for Lent<'_> {
    fn clone(&self) -> Self {
        // SAFETY: owned by this value (the invariant).
        let region = Arc::clone(&unsafe { self.memory.raw.as_ref() }.region);
        // The bytes are borrowed for reading only, which several may do.
        Self {
            memory: Memory::of(self.memory.piece().whole, region),
        }
    }
}

impl<'m> LentMut<'m> {
    /// Two parts of one registration, the second from byte `mid` on.
    ///
    /// # Panics
    ///
    /// When `mid` is beyond the end.
    #[must_use]
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        let (first, second) = self.memory.split_at(mid);
        (Self { memory: first }, Self { memory: second })
    }

    /// Sets how many bytes are in use: what a send sends, and what this is dereferenced to.
    ///
    /// # Panics
    ///
    /// When `len` is above what was lent.
    pub fn set_len(&mut self, len: usize) {
        let whole = self.piece().whole.length;
        let length = u32::try_from(len).ok().filter(|&length| length <= whole);
        let length = length.unwrap_or_else(|| panic!("length {len} of {whole} lent bytes"));
        self.memory.set_length(length);
    }
}

impl stage::Memory for Lent<'_> {
    type Back = Self;
}

impl stage::Memory for LentMut<'_> {
    type Back = Self;
}

// SAFETY: the bytes are borrowed for longer than the loan (the invariant of `Memory`).
unsafe impl OnePiece for Lent<'_> {
    const KIND: Kind = Kind::Lent;

    #[inline]
    fn piece(&self) -> &Piece {
        self.memory.piece()
    }

    #[inline]
    fn into_piece(self) -> NonNull<Piece> {
        self.memory.into_piece()
    }

    #[inline]
    unsafe fn from_piece(piece: NonNull<Piece>) -> Self {
        // SAFETY: the caller's own obligation: of a loan with this lifetime, or a longer one.
        let memory = unsafe { Memory::from_piece(piece) };
        Self { memory }
    }
}

// SAFETY: the bytes are borrowed for longer than the loan, for writing (the invariant of `Memory`).
unsafe impl OnePiece for LentMut<'_> {
    const KIND: Kind = Kind::LentMut;

    #[inline]
    fn piece(&self) -> &Piece {
        self.memory.piece()
    }

    #[inline]
    fn set_length(&mut self, length: u32) {
        self.memory.set_length(length);
    }

    #[inline]
    fn into_piece(self) -> NonNull<Piece> {
        self.memory.into_piece()
    }

    #[inline]
    unsafe fn from_piece(piece: NonNull<Piece>) -> Self {
        // SAFETY: the caller's own obligation: of a loan with this lifetime, or a longer one.
        let memory = unsafe { Memory::from_piece(piece) };
        Self { memory }
    }
}

impl Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.memory.bytes();
        // SAFETY: borrowed for `'m`, and with no device: posting moves the value away.
        unsafe { slice::from_raw_parts(bytes.cast().as_ptr(), bytes.len()) }
    }
}

impl Deref for LentMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.memory.bytes();
        // SAFETY: as for `Lent`.
        unsafe { slice::from_raw_parts(bytes.cast().as_ptr(), bytes.len()) }
    }
}

impl DerefMut for LentMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.memory.bytes();
        // SAFETY: as for `deref`, borrowed for writing, and `&mut self` makes the access the only one.
        unsafe { slice::from_raw_parts_mut(bytes.cast().as_ptr(), bytes.len()) }
    }
}

impl fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("len", &self.len()).finish()
    }
}

impl fmt::Debug for LentMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentMut").field("len", &self.len()).finish()
    }
}

#![expect(unsafe_code, reason = "moves buffers into the slots of a ring")]

use std::cell::UnsafeCell;
use std::ptr::NonNull;

use rdma_sys::ibv_sge;

use super::buf::{Buf, Piece};
use super::op::Op;
use super::slot::{Held, Kind};

/// The cells of the second and further buffers of a slot.
pub(super) type Further<'a> = &'a [UnsafeCell<Option<NonNull<Piece>>>];

/// What a request works on.
pub trait Memory {
    /// What comes back when a post fails and the device does not have the request: the buffers themselves.
    type Back;
}

/// Memory on its way into a request: what every kind of payload does, owned, lent or copied at once.
///
/// # Safety
///
/// Every range that `stage` writes into `sges` stays valid until the piece that it gives is taken back, or, with the flag
/// `IBV_SEND_INLINE`, during the post. `unstage` takes back exactly what `stage` gave.
pub(super) unsafe trait Stage: Memory + Sized {
    /// What the completion is.
    const KIND: Kind;
    /// Flags for the request.
    const FLAGS: u32 = 0;

    /// How many elements of memory.
    fn pieces(&self) -> usize;

    /// How many bytes, all together: a send's.
    fn bytes(&self) -> u64;

    /// Where the bytes are, if they are in one buffer.
    fn address(&self) -> u64 {
        0
    }

    /// Sets how many bytes are in use, if they are in one buffer that holds as many.
    fn set_length(&mut self, _: u32) {}

    /// Moves the buffers into `held` and `further`, and describes them in `sges`: their content, or for a receive the whole of
    /// them.
    ///
    /// # Safety
    ///
    /// `further` belongs to the caller and has a cell for every piece but the first; `sges` is valid for writing
    /// [`pieces`](Self::pieces) elements.
    unsafe fn stage<'r>(
        self,
        whole: bool,
        held: &mut Held,
        further: impl FnOnce() -> Further<'r>,
        sges: *mut ibv_sge,
    );

    /// The way back, for a request that was not posted.
    ///
    /// # Safety
    ///
    /// `held` and `further` are what `stage` has filled, and the device does not have the request.
    unsafe fn unstage(held: Held, further: Further<'_>) -> Self::Back;

    /// What is given back of a payload that was never staged.
    fn back(self) -> Self::Back;
}

/// What a request sends: a [`Buf`], an array of several, or bytes that are copied at once ([`Inline`]).
#[expect(private_bounds, reason = "only the types here can be payloads")]
pub trait Payload: Memory + Stage {}

impl Payload for Buf {}
impl<const K: usize> Payload for [Buf; K] {}
impl Payload for Inline<'_> {}

/// What one request of a [`Batch`](super::Batch) takes: a [`Buf`], or [`Inline`] bytes.
pub trait Single: Payload {}

impl Single for Buf {}
impl Single for Inline<'_> {}

/// Where a receive or a read puts what arrives: a [`Buf`], or an array of several that are filled one after the other.
pub trait Sink: Payload + Memory<Back = Self> {}

impl Sink for Buf {}
impl<const K: usize> Sink for [Buf; K] {}

/// Bytes that are copied into the request when it is posted: they need not be registered, and are free at once.
///
/// At most as many as the queue pair's [`max_inline_data`](super::QueuePairInit::max_inline_data).
#[doc(alias = "IBV_SEND_INLINE")]
#[doc(alias = "ibv_wr_set_inline_data")]
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a>(pub &'a [u8]);

impl Memory for Buf {
    type Back = Self;
}

impl<const K: usize> Memory for [Buf; K] {
    type Back = Self;
}

impl Memory for Inline<'_> {
    type Back = ();
}

/// Memory in one piece, owned or lent: it is staged in one way.
///
/// # Safety
///
/// The ranges of the piece stay valid until `from_piece` takes back what `into_piece` gave.
pub(super) unsafe trait OnePiece: Memory<Back = Self> + Sized {
    /// As [`Stage::KIND`].
    const KIND: Kind;

    fn piece(&self) -> &Piece;

    /// As [`Stage::set_length`].
    fn set_length(&mut self, _: u32) {}

    /// Gives up the memory for a pointer, which owns it from now on.
    fn into_piece(self) -> NonNull<Piece>;

    /// The way back.
    ///
    /// # Safety
    ///
    /// `piece` came from `into_piece` of this type, is taken back once, and the device does not have it.
    unsafe fn from_piece(piece: NonNull<Piece>) -> Self;
}

// SAFETY: the ranges are the buffer's (the invariant of `Buf`).
unsafe impl OnePiece for Buf {
    const KIND: Kind = Kind::Sent;

    #[inline]
    fn piece(&self) -> &Piece {
        Buf::piece(self)
    }

    #[inline]
    fn set_length(&mut self, length: u32) {
        Buf::set_length(self, length);
    }

    #[inline]
    fn into_piece(self) -> NonNull<Piece> {
        Buf::into_piece(self)
    }

    unsafe fn from_piece(piece: NonNull<Piece>) -> Self {
        // SAFETY: the caller's own obligation.
        unsafe { Buf::from_piece(piece) }
    }
}

// SAFETY: the one range is the piece's, in use or whole, and the piece is in `held`.
unsafe impl<P: OnePiece> Stage for P {
    const KIND: Kind = <P as OnePiece>::KIND;

    #[inline]
    fn pieces(&self) -> usize {
        1
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.piece().filled.length.into()
    }

    #[inline]
    fn address(&self) -> u64 {
        self.piece().filled.addr
    }

    #[inline]
    fn set_length(&mut self, length: u32) {
        OnePiece::set_length(self, length);
    }

    #[inline]
    unsafe fn stage<'r>(
        self,
        whole: bool,
        held: &mut Held,
        _: impl FnOnce() -> Further<'r>,
        sges: *mut ibv_sge,
    ) {
        let piece = self.piece();
        let sge = if whole { piece.whole } else { piece.filled };
        // SAFETY: the caller gives room for one element.
        unsafe { sges.write(sge) };
        held.piece = Some(self.into_piece());
    }

    unsafe fn unstage(held: Held, _: Further<'_>) -> Self {
        let Some(piece) = held.piece else {
            unreachable!("a staged piece is in its slot")
        };
        // SAFETY: `stage` has put it there, and the caller says that the device does not have it.
        unsafe { Self::from_piece(piece) }
    }

    fn back(self) -> Self {
        self
    }
}

// SAFETY: each range is a buffer's content, or the whole of it; the first buffer is in `held`, the others are in `further`.
unsafe impl<const K: usize> Stage for [Buf; K] {
    const KIND: Kind = Kind::Pieces;

    #[inline]
    fn pieces(&self) -> usize {
        K
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.iter().map(|buf| u64::from(buf.filled().length)).sum()
    }

    fn address(&self) -> u64 {
        match self.as_slice() {
            [buf] => buf.filled().addr,
            _ => 0,
        }
    }

    fn set_length(&mut self, length: u32) {
        if let [buf] = self.as_mut_slice() {
            buf.set_length(length);
        }
    }

    #[inline]
    unsafe fn stage<'r>(
        self,
        whole: bool,
        held: &mut Held,
        further: impl FnOnce() -> Further<'r>,
        sges: *mut ibv_sge,
    ) {
        let further = if K > 1 { further() } else { &[] };
        for (place, buf) in self.into_iter().enumerate() {
            let sge = if whole { buf.whole() } else { buf.filled() };
            // SAFETY: the caller gives room for `K` elements.
            let to = unsafe { sges.add(place) };
            // SAFETY: as above.
            unsafe { to.write(sge) };
            let piece = Some(buf.into_piece());
            match place.checked_sub(1) {
                None => held.piece = piece,
                // SAFETY: the cell belongs to the caller.
                Some(cell) => unsafe { *further[cell].get() = piece },
            }
        }
        // CAST: a request's pieces were compared with the queue's `max_sge`, which fits.
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_PIECES")]
        let pieces = K as u8;
        held.pieces = pieces;
    }

    unsafe fn unstage(held: Held, further: Further<'_>) -> Self {
        std::array::from_fn(|place| {
            let piece = match place.checked_sub(1) {
                None => held.piece,
                // SAFETY: the cell belongs to the caller, since the device does not have the request.
                Some(cell) => unsafe { (*further[cell].get()).take() },
            };
            let Some(piece) = piece else {
                unreachable!("a staged buffer is in its slot")
            };
            // SAFETY: `stage` has put it there, and the caller says that the device does not have it.
            unsafe { Buf::from_piece(piece) }
        })
    }

    fn back(self) -> Self {
        self
    }
}

// SAFETY: the one range is read during the post only, as the flag says, and the bytes are borrowed for as long.
unsafe impl Stage for Inline<'_> {
    const KIND: Kind = Kind::Bare;
    const FLAGS: u32 = rdma_sys::IBV_SEND_INLINE;

    #[inline]
    fn pieces(&self) -> usize {
        1
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    #[inline]
    unsafe fn stage<'r>(
        self,
        _: bool,
        _: &mut Held,
        _: impl FnOnce() -> Further<'r>,
        sges: *mut ibv_sge,
    ) {
        // CAST: the length was compared with `max_inline_data`.
        #[expect(clippy::cast_possible_truncation, reason = "at most max_inline_data")]
        let length = self.0.len() as u32;
        let sge = ibv_sge {
            addr: self.0.as_ptr().expose_provenance() as u64,
            length,
            lkey: 0,
        };
        // SAFETY: the caller gives room for one element.
        unsafe { sges.write(sge) };
    }

    unsafe fn unstage(_: Held, _: Further<'_>) {}

    fn back(self) {}
}

impl Held {
    /// For `payload`, before it is staged.
    #[inline]
    pub(super) fn of<S: Stage>(op: Op, user: u64) -> Self {
        Self::new(S::KIND, op, user)
    }
}

/// A request has at most as many buffers.
pub(super) const MAX_PIECES: u32 = 255;

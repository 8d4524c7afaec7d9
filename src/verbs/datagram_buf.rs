#![expect(unsafe_code, reason = "moves a buffer into the slots of a ring")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use rdma_sys::ibv_sge;

use super::buf::Buf;
use super::grh::Grh;
use super::op::Op;
use super::slot::{Held, Kind};
use super::stage::{Further, Memory, Payload, Stage};

/// The bytes that a header takes in front of every datagram in its receive buffer.
pub(super) const FRONT: u32 = 40;
const _: () = assert!(FRONT as usize == Grh::LEN);

/// A buffer with a datagram in it: the message, and out of sight in front of it the room for the header.
///
/// It can be sent as it is: the message goes out, without the header. As a [`Buf`] it is the whole, and may be posted again.
///
/// # Invariants
///
/// The buffer holds at least the header, and its length is at least the header's.
pub struct DatagramBuf(Buf);

impl DatagramBuf {
    /// Of a buffer whose length is at least the header's.
    pub(super) fn of_receive(buf: Buf) -> Self {
        debug_assert!(buf.filled().length >= FRONT);
        Self(buf)
    }

    /// How many bytes of message fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity() - Grh::LEN
    }

    /// Sets how many bytes the message has.
    ///
    /// # Panics
    ///
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "length {len} of a datagram with a capacity of {}",
            self.capacity()
        );
        self.0.set_len(len + Grh::LEN);
    }

    /// Copies `data` in and makes that the message.
    ///
    /// # Panics
    ///
    /// When `data` is longer than the capacity.
    pub fn fill_from(&mut self, data: &[u8]) {
        self.set_len(data.len());
        self.copy_from_slice(data);
    }

    /// The whole buffer, header and message, to be posted again.
    #[must_use]
    pub fn into_buf(self) -> Buf {
        self.0
    }
}

impl Deref for DatagramBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[Grh::LEN..]
    }
}

impl DerefMut for DatagramBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0[Grh::LEN..]
    }
}

impl fmt::Debug for DatagramBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramBuf")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl Memory for DatagramBuf {
    type Back = Self;
}

impl Payload for DatagramBuf {}

// SAFETY: the one range is the part of the buffer's content behind the header, and the buffer is in `held`.
unsafe impl Stage for DatagramBuf {
    const KIND: Kind = Kind::Sent;

    fn pieces(&self) -> usize {
        1
    }

    fn bytes(&self) -> u64 {
        (self.0.filled().length - FRONT).into()
    }

    unsafe fn stage<'r>(
        self,
        _: bool,
        held: &mut Held,
        _: impl FnOnce() -> Further<'r>,
        sges: *mut ibv_sge,
    ) {
        let mut sge = self.0.filled();
        sge.addr += u64::from(FRONT);
        sge.length -= FRONT;
        // SAFETY: the caller gives room for one element.
        unsafe { sges.write(sge) };
        held.piece = Some(self.0.into_piece());
    }

    unsafe fn unstage(held: Held, further: Further<'_>) -> Self {
        // SAFETY: the caller's own obligation: the buffer was staged as one alone is.
        Self(unsafe { <Buf as Stage>::unstage(held, further) })
    }

    fn back(self) -> Self {
        self
    }
}

/// A buffer on its way into a receive of a datagram queue pair.
pub(super) struct Arriving(pub(super) Buf);

impl Memory for Arriving {
    type Back = Buf;
}

// SAFETY: as for the buffer itself.
unsafe impl Stage for Arriving {
    const KIND: Kind = Kind::Datagram;

    fn pieces(&self) -> usize {
        1
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    unsafe fn stage<'r>(
        self,
        whole: bool,
        held: &mut Held,
        further: impl FnOnce() -> Further<'r>,
        sges: *mut ibv_sge,
    ) {
        debug_assert!(matches!(held.op(), Op::Receive));
        // SAFETY: the caller's own obligations.
        unsafe { self.0.stage(whole, held, further, sges) };
    }

    unsafe fn unstage(held: Held, further: Further<'_>) -> Buf {
        // SAFETY: the caller's own obligations.
        unsafe { <Buf as Stage>::unstage(held, further) }
    }

    fn back(self) -> Buf {
        self.0
    }
}

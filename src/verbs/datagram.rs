#![expect(
    unsafe_code,
    reason = "looks into the buffer of a receive that has ended"
)]

use std::fmt;
use std::mem::{self, ManuallyDrop};

use rdma_sys::{ibv_ah_attr, ibv_grh};

use super::address::AddressVector;
use super::buf::Buf;
use super::completion::{Done, finished};
use super::datagram_buf::{DatagramBuf, FRONT};
use super::grh::Grh;
use super::op::Op;
use super::pieces::Spread;
use crate::error::{Error, ErrorKind, Result, last_errno};
use crate::status::Status;

/// A finished receive of a [`DatagramPair`](super::DatagramPair): a message, and who has sent it. Its buffer goes back to its
/// pool unless it is taken out.
pub struct Datagram<'c> {
    /// Of a slot with one buffer. Beside the queue, so that a completion is two words.
    spread: &'c mut Spread,
}

finished!(Datagram);

impl<'c> Datagram<'c> {
    /// # Safety
    ///
    /// `spread` was just made, of a slot that has one buffer of a pool, which was posted to a datagram queue pair, and is this
    /// value's.
    pub(super) unsafe fn new(spread: &'c mut Spread) -> Self {
        Self { spread }
    }

    fn done(&self) -> Done<'_> {
        // SAFETY: the completion queue is borrowed.
        unsafe { self.spread.done() }
    }

    /// The queue pair that the message came on.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.done().wc.qp_num
    }

    /// The number of the queue pair that has sent it; 0 for a receive that failed.
    #[must_use]
    pub fn src_qp(&self) -> u32 {
        if self.done().is_success() {
            self.done().wc.src_qp
        } else {
            0
        }
    }

    /// The immediate value that came with the message, if one did. In host order; C's `imm_data` is in network order.
    #[doc(alias = "IBV_WC_WITH_IMM")]
    #[doc(alias = "imm_data")]
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        self.done().imm()
    }

    /// The header that was in front of the message. Within an InfiniBand subnet there may be none; over RoCE there always is.
    #[doc(alias = "IBV_WC_GRH")]
    #[must_use]
    pub fn grh(&self) -> Option<Grh> {
        if !self.done().is_success() || self.done().wc.wc_flags & rdma_sys::IBV_WC_GRH == 0 {
            return None;
        }
        Some(Grh::new(*self.bytes().first_chunk()?))
    }

    /// The message: what came behind the header. Empty for a receive that failed.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes().get(Grh::LEN..).unwrap_or(&[])
    }

    /// What arrived, with the forty bytes in front.
    fn bytes(&self) -> &[u8] {
        // SAFETY: this value is the consumer, and the slot has an id.
        let piece = unsafe { self.done().slot.held() }.piece;
        // SAFETY: `new` was told that there is one buffer.
        let piece = unsafe { piece.unwrap_unchecked() };
        // SAFETY: the request has completed, so no device uses the bytes; the slot keeps the buffer, which is not dropped here.
        let buf = ManuallyDrop::new(unsafe { Buf::from_piece(piece) });
        let whole = buf.whole();
        // SAFETY: the bytes of the buffer are initialised, and belong to the slot, which is this value's while it is borrowed.
        unsafe {
            std::slice::from_raw_parts(buf.address(), self.done().received(whole.length) as usize)
        }
    }

    /// The way back to the sender: what an address handle for an answer is made of.
    ///
    /// It looks for this side's address in the port's table, entry by entry, which takes system calls: keep the
    /// [`Peer`](super::Peer) of a sender that is known, by [`Grh::source`] and [`src_qp`](Self::src_qp).
    ///
    /// Calls `ibv_init_ah_from_wc`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_init_ah_from_wc.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`WorkFailed`](ErrorKind::WorkFailed) for a receive that failed. [`InvalidInput`](ErrorKind::InvalidInput) for a message to
    /// a multicast group, which does not say which of this side's addresses to answer from: [`grh`](Self::grh) has the
    /// sender's address for an [`AddressVector::global`]. [`AddrNotAvailable`](ErrorKind::AddrNotAvailable) when this side has lost
    /// the address that it was sent to.
    #[doc(alias = "ibv_init_ah_from_wc")]
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn sender(&self) -> Result<AddressVector> {
        const OP: &str = "ibv_init_ah_from_wc";
        self.done().check()?;
        // SAFETY: the completion queue is borrowed.
        let ring = unsafe { self.spread.ring() };
        let Some(arrivals) = ring.arrivals() else {
            return Err(Error::state(
                OP,
                "a receive of a datagram queue pair",
                "the pair was not made by this crate",
            ));
        };
        let header = self.grh();
        if header.is_some_and(|header| header.is_multicast()) {
            return Err(Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "the message was sent to a multicast group; make the sender's address from its header and an address of this side",
            ));
        }
        let mut wc = *self.done().wc;
        let mut grh = ibv_grh::default();
        if let Some(header) = &header {
            // SAFETY: the C structure is forty plain bytes.
            grh = unsafe { mem::transmute::<[u8; Grh::LEN], ibv_grh>(*header.as_bytes()) };
        }
        let mut attr = ibv_ah_attr::default();
        // SAFETY: `ibv_init_ah_from_wc` wants an open device, a completion and the header that came with it, and room for the
        // answer. All are this call's own copies.
        let returned = unsafe {
            rdma_sys::ibv_init_ah_from_wc(
                arrivals.context.as_raw(),
                arrivals.port_num,
                &raw mut wc,
                &raw mut grh,
                &raw mut attr,
            )
        };
        if returned != 0 {
            // The end of the table is all that the call reports when the address is not in it.
            return Err(Error::os_as(OP, last_errno(), ErrorKind::AddrNotAvailable));
        }
        Ok(AddressVector::from_raw(attr))
    }

    /// The message, in the buffer that it came in.
    #[must_use]
    pub fn into_buf(self) -> DatagramBuf {
        let this = ManuallyDrop::new(self);
        // SAFETY: one buffer, as `new` was told, and taken once, since this value is gone.
        let mut buf = unsafe { this.done().take() };
        let received = this.done().received(buf.whole().length);
        // A buffer that was posted has room for the header, whether there is one or not.
        buf.set_length(received.max(FRONT));
        DatagramBuf::of_receive(buf)
    }
}

impl Drop for Datagram<'_> {
    #[inline]
    fn drop(&mut self) {
        end(self.spread);
    }
}

/// Gives the buffer back. By reference to what is elsewhere, so that a completion can stay in registers.
#[inline(never)]
fn end(spread: &Spread) {
    // SAFETY: the completion queue is borrowed.
    let done = unsafe { spread.done() };
    // SAFETY: one buffer, as `new` was told, and not taken, since `into_buf` forgets the value that ends here.
    drop(unsafe { done.take() });
}

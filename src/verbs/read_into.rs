#![expect(unsafe_code, reason = "posts work requests")]

use std::ops::Range;
use std::sync::Arc;

use rdma_sys::ibv_sge;

use super::exposed::Exposed;
use super::op::Op;
use super::refused::Refused;
use super::remote::RemoteMemory;
use super::send_limits::OP;
use super::send_queue::SendQueue;
use super::wire::MAX_MESSAGE;
use super::work::Fetch;
use crate::error::{Error, ErrorKind, Result};

impl SendQueue {
    /// Reads as many bytes as `range` has from the start of `from`, in the peer's memory, into the bytes `range` of `memory`.
    ///
    /// This works over iWARP, too, where a read goes only into memory that the peer may write
    /// ([`Access::WRITE`](super::Access::WRITE)); elsewhere it need not be open to the peer for that, but to the device: not for
    /// [`READ`](super::Access::READ) alone. The completion, a [`Bare`](super::Bare), says that the bytes are there:
    /// [`Exposed::read_at`] copies them out. Until then they may be old, new or in between.
    ///
    /// The memory is not moved into the request. It stays registered until the completion was taken, or the queue pair is
    /// destroyed, even when `memory` is dropped before; [`Exposed::revoke`] is refused for as long.
    ///
    /// Calls `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// As for every request of the queue; [`TooLarge`](ErrorKind::TooLarge) for a range that ends behind the memory, or is longer
    /// than the peer's memory or than 2 GiB; [`InvalidInput`](ErrorKind::InvalidInput) for an empty range, and for memory of
    /// another domain; [`State`](ErrorKind::State) for memory that is not open to the peer's writes (over iWARP) or the
    /// device's, and when the connection was made with an `initiator_depth` of 0; [`Unsupported`](ErrorKind::Unsupported) for an
    /// unreliable queue pair.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    #[doc(alias = "ibv_post_send")]
    pub fn read_into(
        &mut self,
        memory: &Exposed,
        range: Range<usize>,
        from: RemoteMemory,
        user: u64,
    ) -> Result<(), Refused<()>> {
        let sink = self.check_read_into(memory, range, from);
        let mut sink = sink.map_err(|error| Refused::with(error, ()))?;
        let reads = Arc::clone(self.qp.reads());
        memory.readers().add(&reads);
        // SAFETY: a read, of one element that is readable during the call and lies in a region which the device may write: it is
        // kept for as long as the request is in its slot, or until the queue pair is destroyed. There are no references to
        // the bytes.
        let posted = unsafe {
            self.post_bare(Op::Read, user, |wr| {
                reads.keep(wr.wr_id, Arc::clone(memory.region()));
                Fetch::read(from).fill(wr);
                wr.sg_list = &raw mut sink;
                wr.num_sge = 1;
            })
        };
        if matches!(&posted, Err(refused) if !refused.is_kept()) {
            // Now: the next request gets the same id.
            reads.forget_ended();
        }
        posted
    }

    /// Where a read goes to, if this queue can read into it.
    fn check_read_into(
        &self,
        memory: &Exposed,
        range: Range<usize>,
        from: RemoteMemory,
    ) -> Result<ibv_sge> {
        if memory.protection_domain() != &self.qp.pd {
            return Err(invalid(
                "the memory is exposed in another protection domain than the queue pair's",
            ));
        }
        let too_large = |field, value: usize, limit, hint| {
            Error::too_large(OP, field, value as u64, limit, hint)
        };
        if range.end > memory.len() {
            let (field, limit) = ("end of the range", memory.len() as u64);
            let hint = "the memory ends there";
            return Err(too_large(field, range.end, limit, hint));
        }
        if range.is_empty() {
            return Err(invalid(
                "a read brings at least one byte; the range is empty",
            ));
        }
        let field = "length of the range";
        if range.len() as u64 > from.len().into() {
            let hint = "the peer's memory is shorter";
            return Err(too_large(field, range.len(), from.len().into(), hint));
        }
        let length = u32::try_from(range.len()).ok();
        let Some(length) = length.filter(|&length| length <= MAX_MESSAGE) else {
            let hint = "read in several pieces";
            return Err(too_large(field, range.len(), MAX_MESSAGE.into(), hint));
        };
        self.check_sink(memory)?;
        self.check_has_reads()?;
        let region = memory.region();
        Ok(ibv_sge {
            addr: region.start().as_ptr().addr() as u64 + range.start as u64,
            length,
            lkey: region.lkey(),
        })
    }

    /// That a read may go into `memory`.
    fn check_sink(&self, memory: &Exposed) -> Result<()> {
        let (wanted, found) = if self.limits().iwarp {
            if memory.is_open_to_writes() {
                return Ok(());
            }
            (
                "memory that the peer may write, as every read over iWARP",
                "this was exposed without Access::WRITE",
            )
        } else {
            if memory.is_writable() {
                return Ok(());
            }
            (
                "memory that the device may write",
                "this was exposed to be read only; add Access::WRITE",
            )
        };
        Err(Error::state(OP, wanted, found))
    }

    /// That the queue pair and its connection have reads.
    fn check_has_reads(&self) -> Result<()> {
        if !self.limits().reads {
            let by = "an unreliable queue pair";
            return Err(Error::unsupported(OP, "reads", by));
        }
        self.check_reads()
    }
}

fn invalid(what: &'static str) -> Error {
    Error::plain(OP, ErrorKind::InvalidInput, what)
}

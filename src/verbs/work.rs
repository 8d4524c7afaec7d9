use std::fmt;

use rdma_sys::{
    ibv_send_wr, ibv_send_wr__bindgen_ty_1 as Extra, ibv_send_wr__bindgen_ty_2 as Target,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_1 as Rdma,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_2 as Atomic, ibv_wr_opcode,
};

use super::op::Op;
use super::remote::RemoteMemory;

/// What a request of a send queue does with the memory that goes with it: sends it, or writes it to the peer's memory.
///
/// ```
/// use rdmacm::{RemoteMemory, Work};
///
/// let to = RemoteMemory::new(0x1000, 7, 4096);
/// let work = Work::write_with_imm(to, 3).unsignaled();
/// # let _ = work;
/// ```
#[doc(alias = "ibv_send_wr")]
#[doc(alias = "ibv_wr_opcode")]
#[doc(alias = "ibv_send_flags")]
#[must_use = "it does nothing until it is posted"]
#[derive(Clone, Copy)]
pub struct Work {
    opcode: ibv_wr_opcode,
    flags: u32,
    /// The immediate value in network order, or a key.
    extra: u32,
    remote: RemoteMemory,
}

/// What a request of a send queue brings from the peer's memory into the buffer that goes with it.
#[doc(alias = "ibv_send_wr")]
#[must_use = "it does nothing until it is posted"]
#[derive(Clone, Copy)]
pub struct Fetch {
    op: Op,
    flags: u32,
    remote: RemoteMemory,
    compare_add: u64,
    swap: u64,
}

const NOWHERE: RemoteMemory = RemoteMemory::new(0, 0, 0);

impl Work {
    const fn new(opcode: ibv_wr_opcode, extra: u32, remote: RemoteMemory) -> Self {
        Self {
            opcode,
            flags: rdma_sys::IBV_SEND_SIGNALED,
            extra,
            remote,
        }
    }

    /// Sends a message into a receive that the peer has posted.
    #[doc(alias = "IBV_WR_SEND")]
    #[doc(alias = "ibv_wr_send")]
    #[inline]
    pub const fn send() -> Self {
        Self::new(ibv_wr_opcode::IBV_WR_SEND, 0, NOWHERE)
    }

    /// Sends a message, and `imm` with it: the peer's [`Received::imm`](super::Received::imm). Not over iWARP.
    ///
    /// `imm` is in host order; C's `imm_data` is in network order, and is turned here.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[doc(alias = "ibv_wr_send_imm")]
    #[inline]
    pub const fn send_with_imm(imm: u32) -> Self {
        Self::new(ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, imm.to_be(), NOWHERE)
    }

    /// Sends a message, and takes the memory window of the peer's that has the key `rkey` away from this side: the peer's
    /// [`Received::invalidated`](super::Received::invalidated).
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    #[doc(alias = "ibv_wr_send_inv")]
    #[inline]
    pub const fn send_with_invalidate(rkey: u32) -> Self {
        Self::new(ibv_wr_opcode::IBV_WR_SEND_WITH_INV, rkey, NOWHERE)
    }

    /// Writes to the start of `to`, in the peer's memory. The peer is not told.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    #[doc(alias = "ibv_wr_rdma_write")]
    #[inline]
    pub const fn write(to: RemoteMemory) -> Self {
        Self::new(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0, to)
    }

    /// Writes to the start of `to`, and completes a receive that the peer has posted with `imm`: the way to tell it. Not over
    /// iWARP.
    ///
    /// `imm` is in host order; C's `imm_data` is in network order, and is turned here.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    #[doc(alias = "ibv_wr_rdma_write_imm")]
    #[inline]
    pub const fn write_with_imm(to: RemoteMemory, imm: u32) -> Self {
        Self::new(ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, imm.to_be(), to)
    }

    /// Without a completion of its own: it comes back with that of the next signalled request.
    ///
    /// After a run of half the queue's depth a request is signalled all the same, since its slot could not be used again.
    #[doc(alias = "IBV_SEND_SIGNALED")]
    #[inline]
    pub const fn unsignaled(mut self) -> Self {
        self.flags &= !rdma_sys::IBV_SEND_SIGNALED;
        self
    }

    /// Wakes a peer that has asked for solicited events only.
    #[doc(alias = "IBV_SEND_SOLICITED")]
    #[inline]
    pub const fn solicited(mut self) -> Self {
        self.flags |= rdma_sys::IBV_SEND_SOLICITED;
        self
    }

    /// Starts after the reads and atomics before it have ended.
    #[doc(alias = "IBV_SEND_FENCE")]
    #[inline]
    pub const fn fenced(mut self) -> Self {
        self.flags |= rdma_sys::IBV_SEND_FENCE;
        self
    }

    #[inline]
    pub(super) const fn is_signaled(&self) -> bool {
        self.flags & rdma_sys::IBV_SEND_SIGNALED != 0
    }

    /// Whether it is a send and nothing else, signalled or not.
    #[inline]
    pub(super) const fn is_plain_send(&self) -> bool {
        matches!(self.opcode, ibv_wr_opcode::IBV_WR_SEND)
            && self.flags & !rdma_sys::IBV_SEND_SIGNALED == 0
    }

    #[inline]
    pub(super) const fn signaled(mut self) -> Self {
        self.flags |= rdma_sys::IBV_SEND_SIGNALED;
        self
    }

    #[inline]
    pub(super) const fn has_imm(&self) -> bool {
        matches!(
            self.opcode,
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
        )
    }

    #[inline]
    const fn is_write(&self) -> bool {
        matches!(
            self.opcode,
            ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
        )
    }

    /// How many bytes it can take at the peer; `None` when only the peer knows.
    #[inline]
    pub(super) const fn room(&self) -> Option<u32> {
        if self.is_write() {
            Some(self.remote.len())
        } else {
            None
        }
    }

    #[inline]
    pub(super) const fn op(&self) -> Op {
        if self.is_write() { Op::Write } else { Op::Send }
    }

    /// Writes what the request says into `wr`, beside its memory and its id.
    #[inline]
    pub(super) fn fill(&self, wr: &mut ibv_send_wr, more_flags: u32) {
        wr.opcode = self.opcode;
        wr.send_flags = self.flags | more_flags;
        if self.has_imm() || matches!(self.opcode, ibv_wr_opcode::IBV_WR_SEND_WITH_INV) {
            // The two members are four bytes at one place.
            wr.__bindgen_anon_1 = Extra {
                imm_data: self.extra,
            };
        }
        if self.is_write() {
            wr.wr = Target {
                rdma: Rdma {
                    remote_addr: self.remote.addr(),
                    rkey: self.remote.rkey(),
                },
            };
        }
    }
}

/// How many bytes an atomic operation works on.
pub(super) const ATOMIC: u32 = 8;

impl Fetch {
    const fn new(op: Op, remote: RemoteMemory, compare_add: u64, swap: u64) -> Self {
        Self {
            op,
            flags: rdma_sys::IBV_SEND_SIGNALED,
            remote,
            compare_add,
            swap,
        }
    }

    /// Reads as many bytes as the buffer has in use from the start of `from`, in the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    #[doc(alias = "ibv_wr_rdma_read")]
    #[inline]
    pub const fn read(from: RemoteMemory) -> Self {
        Self::new(Op::Read, from, 0, 0)
    }

    /// Adds `add` to the eight bytes at the start of `at`, in the peer's memory, at once; the buffer comes back with what was
    /// there before, in this machine's byte order. `at` must be aligned to eight bytes.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    #[doc(alias = "ibv_wr_atomic_fetch_add")]
    #[inline]
    pub const fn fetch_add(at: RemoteMemory, add: u64) -> Self {
        Self::new(Op::FetchAdd, at, add, 0)
    }

    /// Puts `swap` into the eight bytes at the start of `at`, in the peer's memory, if `compare` is there, at once; the buffer
    /// comes back with what was there before, in this machine's byte order. `at` must be aligned to eight bytes.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    #[doc(alias = "ibv_wr_atomic_cmp_swp")]
    #[inline]
    pub const fn compare_swap(at: RemoteMemory, compare: u64, swap: u64) -> Self {
        Self::new(Op::CompareSwap, at, compare, swap)
    }

    /// Without a completion of its own: see [`Work::unsignaled`].
    #[inline]
    pub const fn unsignaled(mut self) -> Self {
        self.flags &= !rdma_sys::IBV_SEND_SIGNALED;
        self
    }

    /// Starts after the reads and atomics before it have ended.
    #[inline]
    pub const fn fenced(mut self) -> Self {
        self.flags |= rdma_sys::IBV_SEND_FENCE;
        self
    }

    #[inline]
    pub(super) const fn is_signaled(&self) -> bool {
        self.flags & rdma_sys::IBV_SEND_SIGNALED != 0
    }

    #[inline]
    pub(super) const fn signaled(mut self) -> Self {
        self.flags |= rdma_sys::IBV_SEND_SIGNALED;
        self
    }

    #[inline]
    pub(super) const fn op(&self) -> Op {
        self.op
    }

    #[inline]
    pub(super) const fn is_atomic(&self) -> bool {
        !matches!(self.op, Op::Read)
    }

    #[inline]
    pub(super) const fn remote(&self) -> RemoteMemory {
        self.remote
    }

    /// Writes what the request says into `wr`, beside its memory and its id.
    #[inline]
    pub(super) fn fill(&self, wr: &mut ibv_send_wr) {
        wr.opcode = match self.op {
            Op::FetchAdd => ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
            Op::CompareSwap => ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
            _ => ibv_wr_opcode::IBV_WR_RDMA_READ,
        };
        wr.send_flags = self.flags;
        wr.wr = if self.is_atomic() {
            Target {
                atomic: Atomic {
                    remote_addr: self.remote.addr(),
                    compare_add: self.compare_add,
                    swap: self.swap,
                    rkey: self.remote.rkey(),
                },
            }
        } else {
            Target {
                rdma: Rdma {
                    remote_addr: self.remote.addr(),
                    rkey: self.remote.rkey(),
                },
            }
        };
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Work");
        shown.field("op", &self.op());
        if self.has_imm() {
            shown.field("imm", &u32::from_be(self.extra));
        }
        if self.is_write() {
            shown.field("to", &self.remote);
        }
        shown.field("signaled", &self.is_signaled()).finish()
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch")
            .field("op", &self.op)
            .field("from", &self.remote)
            .field("signaled", &self.is_signaled())
            .finish_non_exhaustive()
    }
}

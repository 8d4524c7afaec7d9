#![expect(unsafe_code, reason = "posts work requests")]

use std::ptr;
use std::sync::Arc;

use rdma_sys::{
    ibv_send_wr, ibv_send_wr__bindgen_ty_1 as Extra, ibv_send_wr__bindgen_ty_2 as Target,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_1 as Rdma,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_2 as Atomic, ibv_wr_opcode,
};

use super::completion::Op;
use super::pool::Buf;
use super::qp_inner::QpInner;
use super::recv_queue::ReceiveQueue;
use super::refused::{Refused, refused};
use super::remote::RemoteMemory;
use super::ring::Producer;
use super::standing::Standing;
use crate::error::{Error, ErrorKind, errno_of_verbs};

const OP: &str = "ibv_post_send";

/// How many bytes an atomic operation works on.
const ATOMIC: usize = 8;

/// The sending half of a queue pair. It may live on another thread than the receiving half.
///
/// Every request takes a buffer with it, and its completion, a [`Sent`](super::Sent), brings it back with the number `user`.
/// Requests are for a connected queue pair: on the accepting side once accept has returned, on the connecting side after
/// [`Established`](crate::EventKind::Established).
///
/// All of them call `ibv_post_send` ([man 3](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)), do not block, and fail
/// with
///
/// - [`QueueFull`](ErrorKind::QueueFull) when as many requests as the queue holds have not completed: poll the completion queue;
/// - [`State`](ErrorKind::State) before the queue pair is connected. After its end a request completes as
///   [`FLUSHED`](crate::Status::FLUSHED).
#[derive(Debug)]
pub struct SendQueue {
    producer: Producer,
    standing: Arc<Standing>,
    qp: Arc<QpInner>,
}

impl SendQueue {
    pub(super) fn new(producer: Producer, standing: Arc<Standing>, qp: Arc<QpInner>) -> Self {
        Self {
            producer,
            standing,
            qp,
        }
    }

    /// Sends what is in `buf` as one message, into a receive that the peer has posted.
    ///
    /// # Errors
    ///
    /// As for every request of the queue.
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "IBV_WR_SEND")]
    pub fn send(&mut self, buf: Buf, user: u64) -> Result<(), Refused> {
        self.post(Op::Send, buf, user, |_| {})
    }

    /// Sends what is in `buf`, and `imm` with it: the peer's [`Received::imm`](super::Received::imm). Not over iWARP.
    ///
    /// # Errors
    ///
    /// As for every request of the queue, and [`Unsupported`](ErrorKind::Unsupported) over iWARP.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    pub fn send_with_imm(&mut self, buf: Buf, imm: u32, user: u64) -> Result<(), Refused> {
        let buf = self.not_over_iwarp(buf, "immediate data")?;
        self.post(Op::Send, buf, user, |wr| {
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.__bindgen_anon_1 = Extra {
                imm_data: imm.to_be(),
            };
        })
    }

    /// Writes what is in `buf` to the start of `to`, in the peer's memory. The peer is not told.
    ///
    /// # Errors
    ///
    /// As for every request of the queue, and [`TooLarge`](ErrorKind::TooLarge) for more bytes than `to` has. Memory that is
    /// not open to it completes as [`REMOTE_ACCESS`](crate::Status::REMOTE_ACCESS).
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    pub fn write(&mut self, buf: Buf, to: RemoteMemory, user: u64) -> Result<(), Refused> {
        let buf = fits(buf, to)?;
        self.post(Op::Write, buf, user, |wr| wr.wr = rdma(to))
    }

    /// Writes what is in `buf` to the start of `to`, and completes a receive that the peer has posted with `imm`: the way to
    /// tell it. Not over iWARP.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write), and [`Unsupported`](ErrorKind::Unsupported) over iWARP.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    pub fn write_with_imm(
        &mut self,
        buf: Buf,
        to: RemoteMemory,
        imm: u32,
        user: u64,
    ) -> Result<(), Refused> {
        let buf = self.not_over_iwarp(fits(buf, to)?, "immediate data")?;
        self.post(Op::Write, buf, user, |wr| {
            wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
            wr.__bindgen_anon_1 = Extra {
                imm_data: imm.to_be(),
            };
            wr.wr = rdma(to);
        })
    }

    /// Reads as many bytes as `buf` has in use from the start of `from`, in the peer's memory.
    ///
    /// # Errors
    ///
    /// As for every request of the queue, and [`TooLarge`](ErrorKind::TooLarge) for more bytes than `from` has;
    /// [`State`](ErrorKind::State) when the connection was made with an `initiator_depth` of 0;
    /// [`Unsupported`](ErrorKind::Unsupported) over iWARP, where the buffer would have to be open to the peer.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    pub fn read(&mut self, buf: Buf, from: RemoteMemory, user: u64) -> Result<(), Refused> {
        let buf = self.not_over_iwarp(fits(buf, from)?, "reads into a buffer of a pool")?;
        self.post(Op::Read, buf, user, |wr| wr.wr = rdma(from))
    }

    /// Adds `add` to the eight bytes at the start of `at`, in the peer's memory, at once; `buf` comes back with what was there
    /// before, in this machine's byte order. `at` must be aligned to eight bytes.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read), and [`InvalidInput`](ErrorKind::InvalidInput) when `at` or `buf` is not aligned to eight
    /// bytes, or `buf` is shorter than that.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub fn fetch_add(
        &mut self,
        buf: Buf,
        at: RemoteMemory,
        add: u64,
        user: u64,
    ) -> Result<(), Refused> {
        self.atomic(Op::FetchAdd, buf, at, add, 0, user)
    }

    /// Puts `swap` into the eight bytes at the start of `at`, in the peer's memory, if `compare` is there, at once; `buf` comes
    /// back with what was there before, in this machine's byte order. `at` must be aligned to eight bytes.
    ///
    /// # Errors
    ///
    /// As for [`fetch_add`](Self::fetch_add).
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub fn compare_swap(
        &mut self,
        buf: Buf,
        at: RemoteMemory,
        compare: u64,
        swap: u64,
        user: u64,
    ) -> Result<(), Refused> {
        self.atomic(Op::CompareSwap, buf, at, compare, swap, user)
    }

    fn atomic(
        &mut self,
        op: Op,
        buf: Buf,
        at: RemoteMemory,
        compare_add: u64,
        swap: u64,
        user: u64,
    ) -> Result<(), Refused> {
        let mut buf = self.not_over_iwarp(buf, "atomic operations")?;
        let here = buf.whole().addr;
        if buf.len() < ATOMIC || here % 8 != 0 || at.addr() % 8 != 0 {
            let error = Error::plain(
                OP,
                ErrorKind::InvalidInput,
                "an atomic operation needs eight bytes, aligned to eight, here and there",
            );
            return Err(Refused::with(error, buf));
        }
        if (at.len() as usize) < ATOMIC {
            return Err(too_short(ATOMIC, at, buf));
        }
        let len = buf.len();
        buf.set_len(ATOMIC);
        let posted = self.post(op, buf, user, |wr| {
            wr.wr = Target {
                atomic: Atomic {
                    remote_addr: at.addr(),
                    compare_add,
                    swap,
                    rkey: at.rkey(),
                },
            };
        });
        posted.map_err(|refused| refused.with_len(len))
    }

    /// Posts one signalled request on what is in `buf`.
    fn post(
        &mut self,
        op: Op,
        buf: Buf,
        user: u64,
        fill: impl FnOnce(&mut ibv_send_wr),
    ) -> Result<(), Refused> {
        if !self.standing.is_connected() {
            return Err(Refused::early(buf));
        }
        let reads = matches!(op, Op::Read | Op::FetchAdd | Op::CompareSwap);
        if reads && self.standing.reads() == 0 {
            return Err(no_reads(buf));
        }
        let mut sge = buf.filled();
        let wr_id = self
            .producer
            .put(buf, user, op)
            .map_err(|buf| Refused::full(OP, buf))?;
        let mut wr = ibv_send_wr {
            wr_id,
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: opcode(op),
            send_flags: rdma_sys::IBV_SEND_SIGNALED,
            ..ibv_send_wr::default()
        };
        fill(&mut wr);
        let mut bad = ptr::null_mut();
        // SAFETY: `ibv_post_send` wants
        // - a queue pair, of a type that the request suits: `qp` keeps it, and every one is reliable and connected;
        // - a list of requests that is readable during the call: `wr`, and `sge` behind it;
        // - memory that stays valid, and for a read or an atomic that nobody else touches, until the completion: the buffer was
        //   moved into the ring, which outlives the queue pair;
        // - no more requests than the queue holds: `put` has counted.
        let returned =
            unsafe { rdma_sys::ibv_post_send(self.qp.as_raw(), &raw mut wr, &raw mut bad) };
        let Err(errno) = errno_of_verbs(returned) else {
            return Ok(());
        };
        let named = ptr::eq(bad, &raw const wr);
        Err(refused(OP, errno, named, &mut self.producer, wr_id))
    }

    fn not_over_iwarp(&self, buf: Buf, what: &'static str) -> Result<Buf, Refused> {
        if self.qp.pd.context().is_iwarp() {
            return Err(Refused::with(Error::unsupported(OP, what, "iWARP"), buf));
        }
        Ok(buf)
    }

    pub(super) fn is_of_the_pair_of(&self, other: &ReceiveQueue) -> bool {
        ptr::eq(&*self.qp, other.inner())
    }

    /// How many requests may be outstanding.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.producer.ring().depth()
    }

    /// Whether nothing is posted: every request has completed and was polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.producer.ring().is_empty()
    }
}

/// The plain form of each operation.
fn opcode(op: Op) -> ibv_wr_opcode {
    match op {
        Op::Send | Op::Receive => ibv_wr_opcode::IBV_WR_SEND,
        Op::Write => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        Op::Read => ibv_wr_opcode::IBV_WR_RDMA_READ,
        Op::FetchAdd => ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
        Op::CompareSwap => ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
    }
}

fn rdma(memory: RemoteMemory) -> Target {
    Target {
        rdma: Rdma {
            remote_addr: memory.addr(),
            rkey: memory.rkey(),
        },
    }
}

/// That what is in `buf` fits into `memory`.
fn fits(buf: Buf, memory: RemoteMemory) -> Result<Buf, Refused> {
    if buf.filled().length <= memory.len() {
        return Ok(buf);
    }
    Err(too_short(buf.len(), memory, buf))
}

#[cold]
fn too_short(len: usize, memory: RemoteMemory, buf: Buf) -> Refused {
    let error = Error::too_large(
        OP,
        "length of the buffer",
        len as u64,
        memory.len().into(),
        "the peer's memory is shorter; set the buffer's length",
    );
    Refused::with(error, buf)
}

#[cold]
fn no_reads(buf: Buf) -> Refused {
    let error = Error::state(
        OP,
        "a connection with an initiator_depth of at least 1 for reads and atomics",
        "this one was made with 0: the queue pair would never carry them out",
    );
    Refused::with(error, buf)
}

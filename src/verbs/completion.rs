use std::fmt;
use std::marker::PhantomData;

use rdma_sys::{ibv_wc, ibv_wc_opcode};

use super::pool::Buf;
use super::ring::Taken;
use crate::error::{Cause, Error, Result};
use crate::status::Status;

/// What a work request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Op {
    /// Sent a message.
    Send,
    /// Took a message from the peer.
    Receive,
    /// Wrote to the peer's memory.
    Write,
    /// Read from the peer's memory.
    Read,
    /// Added to eight bytes of the peer's memory.
    FetchAdd,
    /// Compared eight bytes of the peer's memory, and swapped them.
    CompareSwap,
}

/// A finished work request (`ibv_wc`), with what belongs to it.
#[doc(alias = "ibv_wc")]
#[derive(Debug)]
#[non_exhaustive]
pub enum Completion<'c> {
    /// A request of a send queue.
    Sent(Sent<'c>),
    /// A request of a receive queue.
    Received(Received<'c>),
    /// An entry that belongs to no request of this crate: of a queue pair that is gone, or posted by hand.
    Foreign(Foreign),
}

impl Completion<'_> {
    pub(super) fn new(wc: &ibv_wc, taken: Option<Taken>) -> Self {
        let status = Status::from_raw(wc.status.0);
        let Some(Taken { buf, user, op }) = taken else {
            return Self::Foreign(Foreign {
                wr_id: wc.wr_id,
                qp_num: wc.qp_num,
                status,
            });
        };
        let done = Done {
            buf,
            user,
            op,
            status,
        };
        match op {
            Op::Receive => Self::Received(Received::new(wc, done)),
            _ => Self::Sent(Sent {
                done,
                _queue: PhantomData,
            }),
        }
    }

    /// How the request ended.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Sent(sent) => sent.status(),
            Self::Received(received) => received.status(),
            Self::Foreign(foreign) => foreign.status,
        }
    }
}

struct Done {
    buf: Buf,
    user: u64,
    op: Op,
    status: Status,
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done")
            .field("op", &self.op)
            .field("user", &self.user)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Done {
    fn check(&self, call: &'static str) -> Result<()> {
        if self.status.is_success() {
            Ok(())
        } else {
            Err(Error::new(
                call,
                Cause::Completion {
                    status: self.status,
                },
            ))
        }
    }
}

/// A finished request of a send queue. Its buffer goes back to its pool unless it is taken out.
#[derive(Debug)]
pub struct Sent<'c> {
    done: Done,
    _queue: PhantomData<&'c mut ()>,
}

impl Sent<'_> {
    /// How the request ended.
    #[must_use]
    pub fn status(&self) -> Status {
        self.done.status
    }

    /// What the request did.
    #[must_use]
    pub fn op(&self) -> Op {
        self.done.op
    }

    /// The number that was given with the request.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.done.user
    }

    /// The buffer, for the program to use again.
    #[must_use]
    pub fn into_buf(self) -> Buf {
        self.done.buf
    }

    /// An error unless the request was carried out.
    ///
    /// # Errors
    ///
    /// [`WorkFailed`](crate::ErrorKind::WorkFailed) with the [`Status`].
    pub fn check(&self) -> Result<()> {
        self.done.check("ibv_post_send")
    }
}

/// A finished request of a receive queue. Its buffer goes back to its pool unless it is taken out.
#[derive(Debug)]
pub struct Received<'c> {
    done: Done,
    qp_num: u32,
    imm: Option<u32>,
    _queue: PhantomData<&'c mut ()>,
}

impl Received<'_> {
    fn new(wc: &ibv_wc, mut done: Done) -> Self {
        let mut imm = None;
        let mut len = 0;
        // On an errored completion only wr_id, status, qp_num and vendor_err are defined.
        if done.status.is_success() {
            if wc.wc_flags & rdma_sys::IBV_WC_WITH_IMM != 0 {
                imm = Some(u32::from_be(imm_data(wc)));
            }
            // The byte_len of a write with immediate counts what was written elsewhere.
            if wc.opcode != ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM {
                len = (wc.byte_len as usize).min(done.buf.capacity());
            }
        }
        done.buf.set_len(len);
        Self {
            done,
            qp_num: wc.qp_num,
            imm,
            _queue: PhantomData,
        }
    }

    /// How the request ended.
    #[must_use]
    pub fn status(&self) -> Status {
        self.done.status
    }

    /// The number that was given with the request.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.done.user
    }

    /// The queue pair that the message came on.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// The immediate value that came with the message, if one did.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        self.imm
    }

    /// The message: the buffer, as long as what arrived, and empty unless the request was carried out.
    #[must_use]
    pub fn into_buf(self) -> Buf {
        self.done.buf
    }

    /// An error unless the request was carried out.
    ///
    /// # Errors
    ///
    /// [`WorkFailed`](crate::ErrorKind::WorkFailed) with the [`Status`].
    pub fn check(&self) -> Result<()> {
        self.done.check("ibv_post_recv")
    }
}

#[expect(unsafe_code, reason = "reads a union of two integers")]
fn imm_data(wc: &ibv_wc) -> u32 {
    // SAFETY: both members of the union are four plain bytes, and the queue's array was zeroed before it was polled into.
    unsafe { wc.__bindgen_anon_1.imm_data }
}

/// A completion that belongs to no request of this crate.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    wr_id: u64,
    qp_num: u32,
    status: Status,
}

impl Foreign {
    /// The `wr_id` of the entry.
    #[must_use]
    pub fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// The queue pair that the entry is about.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// How the request ended.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }
}

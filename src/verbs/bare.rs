#![expect(unsafe_code, reason = "posts work requests")]

use std::ptr;

use rdma_sys::ibv_send_wr;

use super::op::Op;
use super::refused::Refused;
use super::send_limits::{OP, post_error};
use super::send_queue::SendQueue;
use super::slot::{Held, Kind};

impl SendQueue {
    /// Puts a signalled request without a buffer into the next slot, and gives its `wr_id`.
    pub(super) fn put_bare(&mut self, op: Op, user: u64) -> Result<u64, Refused<()>> {
        let ready = match self.producer.ready() {
            Some(ready) => ready,
            None => self
                .make_ready()
                .map_err(|error| Refused::with(error, ()))?,
        };
        // SAFETY: the slot is the next one, and was seen free.
        Ok(unsafe { self.producer.put(ready, Held::new(Kind::Bare, op, user)) })
    }

    /// Posts a signalled request without a buffer. `fill` is called with its `wr_id`, once the request is in its slot.
    ///
    /// # Safety
    ///
    /// What `fill` writes is a request that the queue pair can carry out: windows and regions that are alive, and memory that
    /// stays valid until the completion; its list of memory is readable during the call.
    pub(super) unsafe fn post_bare(
        &mut self,
        op: Op,
        user: u64,
        fill: impl FnOnce(&mut ibv_send_wr),
    ) -> Result<(), Refused<()>> {
        let wr_id = self.put_bare(op, user)?;
        let mut wr = ibv_send_wr {
            wr_id,
            send_flags: rdma_sys::IBV_SEND_SIGNALED,
            ..ibv_send_wr::default()
        };
        fill(&mut wr);
        let mut bad = ptr::null_mut();
        // SAFETY: `ibv_post_send` wants a queue pair, which `qp` keeps and which is not destroyed, since a shut producer has no
        // free slot; a list of requests that is readable during the call: `wr`, for whose content the caller vouches; no more
        // requests than the queue holds: the slot was free.
        let returned = unsafe { rdma_sys::ibv_post_send(self.raw(), &raw mut wr, &raw mut bad) };
        if returned == 0 {
            return Ok(());
        }
        let error = post_error(OP, returned);
        if !ptr::eq(bad, &raw const wr) {
            return Err(Refused::kept(error));
        }
        // SAFETY: the request was put last, and the provider names it as the first that it did not take, so the device does
        // not have it. It holds no buffers.
        unsafe { self.producer.take_back(wr_id, true) };
        Err(Refused::with(error, ()))
    }
}

//! The loop with the raw twins of post and poll, which keeps one request as the C loop does.
#![expect(unsafe_code, reason = "posts a request of its own")]

use std::error::Error;

use rdma_sys::{ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_status, ibv_wr_opcode};

use crate::ends::Ends;
use crate::polls::empty_poll;
use crate::sizes::BUFFER_SIZE;

#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn loop_rust_send_raw(ends: &mut Ends, count: u64) -> Result<(), Box<dyn Error>> {
    let memory = [1_u8; BUFFER_SIZE];
    let (qp, cq) = (&mut ends.qps[0], &mut ends.cq);
    let mut sge = ibv_sge {
        length: u32::try_from(BUFFER_SIZE)?,
        // What a registration would have given.
        lkey: 1,
        ..ibv_sge::default()
    };
    let list = &raw mut sge;
    let mut wr = ibv_send_wr {
        sg_list: list,
        num_sge: 1,
        opcode: ibv_wr_opcode::IBV_WR_SEND,
        send_flags: rdma_sys::IBV_SEND_SIGNALED,
        ..ibv_send_wr::default()
    };
    let mut entries = [ibv_wc::default(); 1];
    let mut buffer = memory.as_ptr().expose_provenance() as u64;
    for _ in 0..count {
        wr.wr_id = buffer;
        // SAFETY: the element above, which outlives the loop.
        unsafe { (*list).addr = buffer };
        // SAFETY: the list is one initialised request with one element; the memory outlives the loop, and the provider does not
        // touch it; there is one request at a time; every completion of the queue is polled raw.
        unsafe { qp.send.post_raw(&raw mut wr) }?;
        while cq.poll_raw(&mut entries)? == 0 {
            empty_poll();
        }
        if entries[0].status != ibv_wc_status::IBV_WC_SUCCESS {
            return Err("a request failed".into());
        }
        buffer = entries[0].wr_id;
    }
    Ok(())
}

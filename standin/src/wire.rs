//! What a device does with posted requests, as the state of their queue pair asks.

use crate::abi::SIDES;
use crate::c::{
    IBV_SEND_SIGNALED, ibv_event_type, ibv_qp_state, ibv_wc, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode,
};
use crate::doom::doom;
use crate::orders::{Hold, RECV, SEND};
use crate::poison::zeroed;
use crate::qp::Send;
use crate::world::World;

/// What became of the request at the head of a send queue.
pub(crate) enum Outcome {
    /// Nothing yet.
    Waits,
    Done(ibv_wc_status, u32),
}

impl World {
    /// Puts a queue pair into a state, with what follows from it.
    pub(crate) fn set_state(&mut self, qp: usize, state: ibv_qp_state) {
        let found = self.qp_mut(qp);
        let before = found.attr.qp_state;
        found.attr.qp_state = state;
        found.c.edit(|c| c.qp_base.state = state);
        match state {
            ibv_qp_state::IBV_QPS_ERR => {
                let last = before != state && found.srq.is_some();
                self.flush(qp, before == state);
                if last {
                    let code = ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED;
                    self.happens(0, code, qp);
                }
            }
            ibv_qp_state::IBV_QPS_RESET => {
                found.sends.clear();
                found.receives.clear();
                found.used = [0; SIDES];
                found.silent = 0;
                let (number, cqs) = (found.number, [found.send_cq, found.recv_cq]);
                for cq in cqs {
                    self.cq_mut(cq).free_nothing(number);
                }
            }
            ibv_qp_state::IBV_QPS_RTR | ibv_qp_state::IBV_QPS_RTS if before != state => {
                self.work(qp);
                self.received_more(qp);
            }
            _ => {}
        }
    }

    /// Flushes what a test lets the error state flush; `late`: it was posted in that state.
    fn flush(&mut self, qp: usize, late: bool) {
        let orders = &self.qp(qp).orders;
        let (sends, receives) = (orders.flushes(SEND, late), orders.flushes(RECV, late));
        self.flush_sides(qp, sends, receives);
    }

    /// Flushes everything.
    pub(crate) fn flush_all(&mut self, qp: usize) {
        if self.qp(qp).state() != ibv_qp_state::IBV_QPS_ERR {
            doom!("only the error state flushes");
        }
        self.flush_sides(qp, true, true);
    }

    fn flush_sides(&mut self, qp: usize, sends: bool, receives: bool) {
        let found = self.qp_mut(qp);
        let mut flushed: Vec<(usize, u64)> = Vec::new();
        if sends {
            flushed.extend(found.sends.drain(..).map(|send| (SEND, send.wr.wr_id)));
        }
        if receives {
            let drained = found.receives.drain(..);
            flushed.extend(drained.map(|receive| (RECV, receive.wr_id)));
        }
        for (side, wr_id) in flushed {
            let entry = self.entry(qp, wr_id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
            if side == SEND {
                self.report_send(qp, entry);
            } else {
                self.report_receive(qp, entry, true);
            }
        }
    }

    pub(crate) fn entry(&self, qp: usize, wr_id: u64, status: ibv_wc_status) -> ibv_wc {
        let mut entry: ibv_wc = zeroed();
        entry.wr_id = wr_id;
        entry.status = status;
        entry.qp_num = self.qp(qp).number;
        if status != ibv_wc_status::IBV_WC_SUCCESS {
            // Undefined then, so nobody may look at it.
            entry.opcode = ibv_wc_opcode(0xdead_beef);
            entry.byte_len = u32::MAX;
            entry.wc_flags = u32::MAX;
        }
        entry
    }

    /// Receives were posted: whoever sends to this queue pair goes on.
    pub(crate) fn received_more(&mut self, qp: usize) {
        if self.qp(qp).state() == ibv_qp_state::IBV_QPS_ERR {
            self.flush(qp, true);
            return;
        }
        let number = self.qp(qp).number;
        let waiting: Vec<usize> = match self.numbers.get(&self.qp(qp).remote) {
            Some(other) if self.qp(*other).remote == number => vec![*other],
            _ => Vec::new(),
        };
        for other in waiting {
            self.work(other);
        }
    }

    /// Carries out what is posted on a send queue.
    pub(crate) fn work(&mut self, qp: usize) {
        loop {
            let found = self.qp_mut(qp);
            match found.state() {
                ibv_qp_state::IBV_QPS_RTS => {}
                ibv_qp_state::IBV_QPS_ERR => return self.flush(qp, true),
                _ => return,
            }
            // What is held is passed over: a test lets go in any order.
            let first = found.sends.iter().position(|send| send.hold == Hold::No);
            let Some((place, send)) =
                first.and_then(|first| Some((first, found.sends.remove(first)?)))
            else {
                return;
            };
            match self.carry_out(qp, &send) {
                Outcome::Waits => {
                    self.qp_mut(qp).sends.insert(place, send);
                    return;
                }
                Outcome::Done(status, length) => self.finish(qp, &send, status, length),
            }
        }
    }

    pub(crate) fn finish(&mut self, qp: usize, send: &Send, status: ibv_wc_status, length: u32) {
        let good = status == ibv_wc_status::IBV_WC_SUCCESS;
        let found = self.qp(qp);
        let signaled = found.all_signaled || send.wr.send_flags & IBV_SEND_SIGNALED != 0;
        if !good || signaled {
            let mut entry = self.entry(qp, send.wr.wr_id, status);
            if good {
                entry.byte_len = length;
                entry.opcode = match send.wr.opcode {
                    ibv_wr_opcode::IBV_WR_RDMA_WRITE
                    | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
                    ibv_wr_opcode::IBV_WR_BIND_MW => ibv_wc_opcode::IBV_WC_BIND_MW,
                    ibv_wr_opcode::IBV_WR_LOCAL_INV => ibv_wc_opcode::IBV_WC_LOCAL_INV,
                    ibv_wr_opcode::IBV_WR_RDMA_READ => ibv_wc_opcode::IBV_WC_RDMA_READ,
                    ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => ibv_wc_opcode::IBV_WC_COMP_SWAP,
                    ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => ibv_wc_opcode::IBV_WC_FETCH_ADD,
                    _ => ibv_wc_opcode::IBV_WC_SEND,
                };
            }
            self.report_send(qp, entry);
        } else {
            self.qp_mut(qp).silent += 1;
        }
        if !good && status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
            self.set_state(qp, ibv_qp_state::IBV_QPS_ERR);
        }
    }
}

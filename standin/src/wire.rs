//! What a device does with posted requests: messages between queue pairs of this process.

use std::collections::VecDeque;

use crate::arg;
use crate::c::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_SEND_SIGNALED, IBV_WC_GRH, IBV_WC_WITH_IMM, ibv_qp_state,
    ibv_qp_type, ibv_wc, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};
use crate::doom::doom;
use crate::orders::{Hold, RECV, SEND};
use crate::poison::zeroed;
use crate::qp::{Receive, Send};
use crate::world::World;

/// What became of the request at the head of a send queue.
enum Outcome {
    /// Nothing yet.
    Waits,
    Done(ibv_wc_status, u32),
}

const RNR_FOR_EVER: u8 = 7;

impl World {
    /// Puts a queue pair into a state, with what follows from it.
    pub(crate) fn set_state(&mut self, qp: usize, state: ibv_qp_state) {
        let found = self.qp_mut(qp);
        let before = found.attr.qp_state;
        found.attr.qp_state = state;
        found.c.edit(|c| c.state = state);
        match state {
            ibv_qp_state::IBV_QPS_ERR => self.flush(qp, before == state),
            ibv_qp_state::IBV_QPS_RESET => {
                found.sends.clear();
                found.receives.clear();
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
        let (send_cq, recv_cq) = (found.send_cq, found.recv_cq);
        let mut flushed = Vec::new();
        if sends {
            flushed.extend(found.sends.drain(..).map(|send| (send_cq, send.wr.wr_id)));
        }
        if receives {
            let drained = found.receives.drain(..);
            flushed.extend(drained.map(|receive| (recv_cq, receive.wr_id)));
        }
        for (cq, wr_id) in flushed {
            let entry = self.entry(qp, wr_id, ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
            self.report(cq, entry);
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
        let cq = found.send_cq;
        if !good || signaled {
            let mut entry = self.entry(qp, send.wr.wr_id, status);
            if good {
                entry.byte_len = length;
                entry.opcode = match send.wr.opcode {
                    ibv_wr_opcode::IBV_WR_RDMA_WRITE
                    | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
                    ibv_wr_opcode::IBV_WR_RDMA_READ => ibv_wc_opcode::IBV_WC_RDMA_READ,
                    ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => ibv_wc_opcode::IBV_WC_COMP_SWAP,
                    ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => ibv_wc_opcode::IBV_WC_FETCH_ADD,
                    _ => ibv_wc_opcode::IBV_WC_SEND,
                };
            }
            self.report(cq, entry);
        }
        if !good && status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
            self.set_state(qp, ibv_qp_state::IBV_QPS_ERR);
        }
    }

    fn carry_out(&mut self, qp: usize, send: &Send) -> Outcome {
        let found = self.qp(qp);
        let (pd, datagram) = (found.pd, found.kind == ibv_qp_type::IBV_QPT_UD);
        let remote = if datagram {
            crate::wr::remote_of(&send.wr)
        } else {
            found.remote
        };
        let other = self.numbers.get(&remote).copied();
        let reads = matches!(
            send.wr.opcode,
            ibv_wr_opcode::IBV_WR_RDMA_READ
                | ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
                | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
        );
        // With a depth of 0 the device never sends the request.
        if reads && found.attr.max_rd_atomic == 0 {
            return Outcome::Waits;
        }
        let access = if reads { IBV_ACCESS_LOCAL_WRITE } else { 0 };
        let local = match &send.inline {
            Some(_) => Vec::new(),
            None => match self.reach_all(&send.pieces, pd, access) {
                Some(local) => local,
                None => return Outcome::Done(ibv_wc_status::IBV_WC_LOC_PROT_ERR, 0),
            },
        };
        let ready = other.filter(|other| {
            matches!(
                self.qp(*other).state(),
                ibv_qp_state::IBV_QPS_RTR | ibv_qp_state::IBV_QPS_RTS | ibv_qp_state::IBV_QPS_SQD
            )
        });
        let data = match (&send.inline, reads) {
            (Some(data), _) => data.clone(),
            (None, true) => Vec::new(),
            (None, false) => local
                .iter()
                .flat_map(|(at, len)| arg::take(*at, *len))
                .collect(),
        };
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let Some(other) = ready else {
            // A datagram is lost. A message is repeated until this side hears that the connection is down.
            return if datagram {
                Outcome::Done(ibv_wc_status::IBV_WC_SUCCESS, length)
            } else {
                Outcome::Waits
            };
        };
        match send.wr.opcode {
            ibv_wr_opcode::IBV_WR_SEND
            | ibv_wr_opcode::IBV_WR_SEND_WITH_IMM
            | ibv_wr_opcode::IBV_WR_SEND_WITH_INV => self.deliver(qp, other, send, &data, datagram),
            _ if datagram => Outcome::Done(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR, 0),
            _ => self.remote_memory(qp, other, send, &data, &local),
        }
    }

    /// The first receive that is not held.
    fn take_receive(&mut self, qp: usize) -> Option<Receive> {
        let queue = self.receives_of(qp);
        let first = queue.iter().position(|receive| receive.hold == Hold::No)?;
        queue.remove(first)
    }

    /// The queue that a pair's receives are on.
    pub(crate) fn receives_of(&mut self, qp: usize) -> &mut VecDeque<Receive> {
        match self.qp(qp).srq {
            Some(srq) => &mut self.srq_mut(srq).queue,
            None => &mut self.qp_mut(qp).receives,
        }
    }

    /// What becomes of a message without a receive.
    fn not_ready(&mut self, qp: usize, other: usize) -> Outcome {
        // There is one, which a test holds back.
        let held = !self.receives_of(other).is_empty();
        match self.qp(qp).attr.rnr_retry {
            _ if held => Outcome::Waits,
            RNR_FOR_EVER => Outcome::Waits,
            _ => Outcome::Done(ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR, 0),
        }
    }

    /// A message reaches a posted receive.
    fn deliver(
        &mut self,
        qp: usize,
        other: usize,
        send: &Send,
        data: &[u8],
        datagram: bool,
    ) -> Outcome {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let Some(receive) = self.take_receive(other) else {
            return if datagram {
                Outcome::Done(ibv_wc_status::IBV_WC_SUCCESS, length)
            } else {
                self.not_ready(qp, other)
            };
        };
        let room: u64 = receive.pieces.iter().map(|sge| u64::from(sge.length)).sum();
        let header: &[u8] = if datagram { &[0; 40] } else { &[] };
        let arriving = [header, data].concat();
        let (pd, cq) = (self.qp(other).pd, self.qp(other).recv_cq);
        let places = self.reach_all(&receive.pieces, pd, IBV_ACCESS_LOCAL_WRITE);
        let problem = match &places {
            None => Some((
                ibv_wc_status::IBV_WC_LOC_PROT_ERR,
                ibv_wc_status::IBV_WC_REM_OP_ERR,
            )),
            Some(_) if arriving.len() as u64 > room => Some((
                ibv_wc_status::IBV_WC_LOC_LEN_ERR,
                ibv_wc_status::IBV_WC_REM_INV_REQ_ERR,
            )),
            Some(_) => None,
        };
        if let Some((here, there)) = problem {
            let entry = self.entry(other, receive.wr_id, here);
            self.report(cq, entry);
            self.set_state(other, ibv_qp_state::IBV_QPS_ERR);
            return Outcome::Done(there, 0);
        }
        let mut left: &[u8] = &arriving;
        for (address, length) in places.into_iter().flatten() {
            let (now, later) = left.split_at(left.len().min(length as usize));
            arg::put(address, now);
            left = later;
        }
        let mut entry = self.entry(other, receive.wr_id, ibv_wc_status::IBV_WC_SUCCESS);
        entry.opcode = ibv_wc_opcode::IBV_WC_RECV;
        entry.byte_len = u32::try_from(arriving.len()).unwrap_or(u32::MAX);
        entry.src_qp = self.qp(qp).number;
        if datagram {
            entry.wc_flags |= IBV_WC_GRH;
        }
        if send.wr.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
            entry.wc_flags |= IBV_WC_WITH_IMM;
            entry.__bindgen_anon_1.imm_data = crate::wr::imm_of(&send.wr);
        }
        self.report(cq, entry);
        Outcome::Done(ibv_wc_status::IBV_WC_SUCCESS, length)
    }

    /// Reads, writes and atomics on the memory of the other end.
    fn remote_memory(
        &mut self,
        qp: usize,
        other: usize,
        send: &Send,
        data: &[u8],
        local: &[(u64, u32)],
    ) -> Outcome {
        const REFUSED: Outcome = Outcome::Done(ibv_wc_status::IBV_WC_REM_ACCESS_ERR, 0);
        let pd = self.qp(other).pd;
        let (address, key) = crate::wr::memory_of(&send.wr);
        match send.wr.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
                let length = data.len() as u64;
                if length > 0 {
                    match self.reach(key, pd, address, length, IBV_ACCESS_REMOTE_WRITE) {
                        Some(place) => arg::put(place, data),
                        None => return REFUSED,
                    }
                }
                if send.wr.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM {
                    return self.write_reported(qp, other, send, data);
                }
                Outcome::Done(
                    ibv_wc_status::IBV_WC_SUCCESS,
                    u32::try_from(length).unwrap_or(0),
                )
            }
            ibv_wr_opcode::IBV_WR_RDMA_READ => {
                let length: u32 = local.iter().map(|(_, length)| length).sum();
                let from = self.reach(key, pd, address, length.into(), IBV_ACCESS_REMOTE_READ);
                let Some(mut from) = from else { return REFUSED };
                for (to, length) in local {
                    arg::put(*to, &arg::take(from, *length));
                    from += u64::from(*length);
                }
                Outcome::Done(ibv_wc_status::IBV_WC_SUCCESS, length)
            }
            ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
            | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                let (address, key, compare_add, swap) = crate::wr::atomic_of(&send.wr);
                let Some(place) = self.reach(key, pd, address, 8, IBV_ACCESS_REMOTE_ATOMIC) else {
                    return REFUSED;
                };
                let before = arg::take(place, 8);
                let Ok(bytes) = <[u8; 8]>::try_from(&before[..]) else {
                    return REFUSED;
                };
                let value = u64::from_ne_bytes(bytes);
                let after = if send.wr.opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
                    value.wrapping_add(compare_add)
                } else if value == compare_add {
                    swap
                } else {
                    value
                };
                arg::put(place, &after.to_ne_bytes());
                if let Some((to, 8)) = local.first() {
                    arg::put(*to, &before);
                }
                Outcome::Done(ibv_wc_status::IBV_WC_SUCCESS, 8)
            }
            _ => Outcome::Done(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR, 0),
        }
    }

    fn write_reported(&mut self, qp: usize, other: usize, send: &Send, data: &[u8]) -> Outcome {
        let Some(receive) = self.take_receive(other) else {
            return self.not_ready(qp, other);
        };
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let mut entry = self.entry(other, receive.wr_id, ibv_wc_status::IBV_WC_SUCCESS);
        entry.opcode = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
        entry.byte_len = length;
        entry.wc_flags |= IBV_WC_WITH_IMM;
        entry.__bindgen_anon_1.imm_data = crate::wr::imm_of(&send.wr);
        let cq = self.qp(other).recv_cq;
        self.report(cq, entry);
        Outcome::Done(ibv_wc_status::IBV_WC_SUCCESS, length)
    }
}

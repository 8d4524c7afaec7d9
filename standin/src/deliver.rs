//! Messages between the queue pairs of this process.

use std::collections::VecDeque;

use crate::arg;
use crate::c::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_WC_GRH, IBV_WC_WITH_IMM, IBV_WC_WITH_INV,
    ibv_qp_state, ibv_qp_type, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};
use crate::datagram::Header;
use crate::orders::Hold;
use crate::qp::{Receive, Send};
use crate::wire::Outcome;
use crate::world::World;
use crate::wr;

const RNR_FOR_EVER: u8 = 7;
const GOOD: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;

impl World {
    /// Carries out a request that nothing holds.
    pub(crate) fn carry_out(&mut self, qp: usize, send: &Send) -> Outcome {
        let found = self.qp(qp);
        let (pd, kind, remote) = (found.pd, found.kind, found.remote);
        let reads = matches!(
            send.wr.opcode,
            ibv_wr_opcode::IBV_WR_RDMA_READ
                | ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
                | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
        );
        if !is_known(kind, send.wr.opcode) {
            return Outcome::Done(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR, 0);
        }
        match send.wr.opcode {
            ibv_wr_opcode::IBV_WR_BIND_MW => {
                return match self.bind_window(qp, &send.wr) {
                    true => Outcome::Done(GOOD, 0),
                    false => Outcome::Done(ibv_wc_status::IBV_WC_MW_BIND_ERR, 0),
                };
            }
            ibv_wr_opcode::IBV_WR_LOCAL_INV => {
                return match self.invalidate(qp, wr::invalidated_by(&send.wr)) {
                    true => Outcome::Done(GOOD, 0),
                    false => Outcome::Done(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR, 0),
                };
            }
            _ => {}
        }
        // With a depth of 0 the device never sends the request.
        if reads && found.attr.max_rd_atomic == 0 {
            return Outcome::Waits;
        }
        let access = match reads {
            // There the answer is a write of the peer's.
            true if self.devices[self.pd(pd).device].is_iwarp() => {
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
            }
            true => IBV_ACCESS_LOCAL_WRITE,
            false => 0,
        };
        let local = match &send.inline {
            Some(_) => Vec::new(),
            None => match self.reach_all(&send.pieces, pd, access) {
                Some(local) => local,
                None => return Outcome::Done(ibv_wc_status::IBV_WC_LOC_PROT_ERR, 0),
            },
        };
        let data = match (&send.inline, reads) {
            (Some(data), _) => data.clone(),
            (None, true) => Vec::new(),
            (None, false) => local
                .iter()
                .flat_map(|(at, len)| arg::take(*at, *len))
                .collect(),
        };
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if kind == ibv_qp_type::IBV_QPT_UD {
            self.datagram(qp, send, &data);
            return Outcome::Done(GOOD, length);
        }
        let other = self.numbers.get(&remote).copied();
        let Some(other) = other.filter(|other| self.is_ready(*other)) else {
            // A message is repeated until this side hears that the connection is down.
            return if kind == ibv_qp_type::IBV_QPT_UC {
                Outcome::Done(GOOD, length)
            } else {
                Outcome::Waits
            };
        };
        let outcome = match send.wr.opcode {
            ibv_wr_opcode::IBV_WR_SEND
            | ibv_wr_opcode::IBV_WR_SEND_WITH_IMM
            | ibv_wr_opcode::IBV_WR_SEND_WITH_INV => self.deliver(qp, other, send, &data, None),
            _ => self.remote_memory(qp, other, send, &data, &local),
        };
        match outcome {
            // Nobody answers over an unreliable connection.
            _ if kind == ibv_qp_type::IBV_QPT_UC => Outcome::Done(GOOD, length),
            other => other,
        }
    }

    /// Whether a queue pair takes what comes in.
    pub(crate) fn is_ready(&self, qp: usize) -> bool {
        matches!(
            self.qp(qp).state(),
            ibv_qp_state::IBV_QPS_RTR | ibv_qp_state::IBV_QPS_RTS | ibv_qp_state::IBV_QPS_SQD
        )
    }

    /// The first receive that is not held.
    pub(crate) fn take_receive(&mut self, qp: usize) -> Option<Receive> {
        let queue = self.receives_of(qp);
        let first = queue.iter().position(|receive| receive.hold == Hold::No)?;
        let taken = queue.remove(first);
        if let Some(srq) = self.qp(qp).srq {
            self.took_shared(srq);
        }
        taken
    }

    /// The queue that a pair's receives are on.
    pub(crate) fn receives_of(&mut self, qp: usize) -> &mut VecDeque<Receive> {
        match self.qp(qp).srq {
            Some(srq) => &mut self.srq_mut(srq).queue,
            None => &mut self.qp_mut(qp).receives,
        }
    }

    /// What becomes of a message without a receive.
    pub(crate) fn not_ready(&mut self, qp: usize, other: usize) -> Outcome {
        // There is one, which a test holds back.
        let held = !self.receives_of(other).is_empty();
        match self.qp(qp).attr.rnr_retry {
            _ if held => Outcome::Waits,
            RNR_FOR_EVER => Outcome::Waits,
            _ => Outcome::Done(ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR, 0),
        }
    }

    /// A message reaches a posted receive, behind a header if it is a datagram.
    pub(crate) fn deliver(
        &mut self,
        qp: usize,
        other: usize,
        send: &Send,
        data: &[u8],
        header: Option<&Header>,
    ) -> Outcome {
        let Some(receive) = self.take_receive(other) else {
            return self.not_ready(qp, other);
        };
        let room: u64 = receive.pieces.iter().map(|sge| u64::from(sge.length)).sum();
        let arriving = match header {
            Some(header) => [&header[..], data].concat(),
            None => data.to_vec(),
        };
        let pd = match self.qp(other).srq {
            Some(srq) => self.srq(srq).pd,
            None => self.qp(other).pd,
        };
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
            return self.fail_receive(other, &receive, here, there);
        }
        let revokes = send.wr.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
        let key = wr::invalidated_by(&send.wr);
        if revokes && !self.invalidate(other, key) {
            return self.fail_receive(
                other,
                &receive,
                ibv_wc_status::IBV_WC_REM_INV_REQ_ERR,
                ibv_wc_status::IBV_WC_REM_OP_ERR,
            );
        }
        let mut left: &[u8] = &arriving;
        for (address, length) in places.into_iter().flatten() {
            let (now, later) = left.split_at(left.len().min(length as usize));
            arg::put(address, now);
            left = later;
        }
        let mut entry = self.entry(other, receive.wr_id, GOOD);
        entry.opcode = ibv_wc_opcode::IBV_WC_RECV;
        entry.byte_len = u32::try_from(arriving.len()).unwrap_or(u32::MAX);
        entry.src_qp = self.qp(qp).number;
        if header.is_some() {
            entry.wc_flags |= IBV_WC_GRH;
        }
        if send.wr.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_IMM {
            entry.wc_flags |= IBV_WC_WITH_IMM;
            entry.__bindgen_anon_1.imm_data = wr::imm_of(&send.wr);
        }
        if revokes {
            entry.wc_flags |= IBV_WC_WITH_INV;
            entry.__bindgen_anon_1.invalidated_rkey = key;
        }
        self.report_receive(other, entry, wr::is_solicited(&send.wr));
        Outcome::Done(GOOD, u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// A message that the receiver cannot take: what it sees, and what the sender does.
    fn fail_receive(
        &mut self,
        other: usize,
        receive: &Receive,
        here: ibv_wc_status,
        there: ibv_wc_status,
    ) -> Outcome {
        let entry = self.entry(other, receive.wr_id, here);
        self.report_receive(other, entry, true);
        self.set_state(other, ibv_qp_state::IBV_QPS_ERR);
        Outcome::Done(there, 0)
    }
}

/// Whether a kind of queue pair has an operation.
fn is_known(kind: ibv_qp_type, opcode: ibv_wr_opcode) -> bool {
    match opcode {
        ibv_wr_opcode::IBV_WR_SEND | ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => true,
        ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
            kind != ibv_qp_type::IBV_QPT_UD
        }
        ibv_wr_opcode::IBV_WR_RDMA_READ
        | ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
        | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
        | ibv_wr_opcode::IBV_WR_SEND_WITH_INV
        | ibv_wr_opcode::IBV_WR_BIND_MW
        | ibv_wr_opcode::IBV_WR_LOCAL_INV => kind == ibv_qp_type::IBV_QPT_RC,
        _ => false,
    }
}

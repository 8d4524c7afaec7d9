//! What a request does to the memory of the other end.

use crate::arg;
use crate::c::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_WC_WITH_IMM,
    ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};
use crate::qp::Send;
use crate::wire::Outcome;
use crate::world::World;

impl World {
    /// Reads, writes and atomics on the memory of the other end.
    pub(crate) fn remote_memory(
        &mut self,
        qp: usize,
        other: usize,
        send: &Send,
        data: &[u8],
        local: &[(u64, u32)],
    ) -> Outcome {
        const REFUSED: Outcome = Outcome::Done(ibv_wc_status::IBV_WC_REM_ACCESS_ERR, 0);
        let (address, key) = crate::wr::memory_of(&send.wr);
        match send.wr.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
                let length = data.len() as u64;
                if length > 0 {
                    match self.reach_from_afar(other, key, address, length, IBV_ACCESS_REMOTE_WRITE)
                    {
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
                let from = self.reach_from_afar(
                    other,
                    key,
                    address,
                    length.into(),
                    IBV_ACCESS_REMOTE_READ,
                );
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
                let Some(place) =
                    self.reach_from_afar(other, key, address, 8, IBV_ACCESS_REMOTE_ATOMIC)
                else {
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
        self.report_receive(other, entry, crate::wr::is_solicited(&send.wr));
        Outcome::Done(ibv_wc_status::IBV_WC_SUCCESS, length)
    }
}

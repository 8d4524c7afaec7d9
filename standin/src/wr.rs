#![expect(unsafe_code, reason = "reads the unions of a work request")]

use crate::c::{IBV_SEND_SOLICITED, ibv_ah, ibv_mw, ibv_mw_bind_info, ibv_send_wr};

/// Whom a datagram is for: address handle, number of a queue pair, key.
pub(crate) fn datagram_of(wr: &ibv_send_wr) -> (*mut ibv_ah, u32, u32) {
    // SAFETY: every member is plain data; the request's opcode and queue pair say which was written.
    let ud = unsafe { wr.wr.ud };
    (ud.ah, ud.remote_qpn, ud.remote_qkey)
}

/// The window to be bound, its new key, and what to.
pub(crate) fn binding_of(wr: &ibv_send_wr) -> (*mut ibv_mw, u32, ibv_mw_bind_info) {
    // SAFETY: as above.
    let bind = unsafe { wr.__bindgen_anon_2.bind_mw };
    (bind.mw, bind.rkey, bind.bind_info)
}

/// Makes a request one that binds a window.
pub(crate) fn set_binding(wr: &mut ibv_send_wr, mw: *mut ibv_mw, key: u32, info: ibv_mw_bind_info) {
    wr.__bindgen_anon_2.bind_mw.mw = mw;
    wr.__bindgen_anon_2.bind_mw.rkey = key;
    wr.__bindgen_anon_2.bind_mw.bind_info = info;
}

/// The key to be taken back.
pub(crate) fn invalidated_by(wr: &ibv_send_wr) -> u32 {
    // SAFETY: as above.
    unsafe { wr.__bindgen_anon_1.invalidate_rkey }
}

/// Whether the sender asks that the receiver hears of the message.
pub(crate) fn is_solicited(wr: &ibv_send_wr) -> bool {
    wr.send_flags & IBV_SEND_SOLICITED != 0
}

/// Sets the immediate value, or the key to be taken back: four bytes at one place.
pub(crate) fn set_imm(wr: &mut ibv_send_wr, imm: u32) {
    wr.__bindgen_anon_1.imm_data = imm;
}

/// Sets address and key of a read or write.
pub(crate) fn set_memory(wr: &mut ibv_send_wr, address: u64, key: u32) {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = key;
}

/// Sets address, key and the two values of an atomic.
pub(crate) fn set_atomic(
    wr: &mut ibv_send_wr,
    address: u64,
    key: u32,
    compare_add: u64,
    swap: u64,
) {
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = key;
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
}

/// The immediate value.
pub(crate) fn imm_of(wr: &ibv_send_wr) -> u32 {
    // SAFETY: as above.
    unsafe { wr.__bindgen_anon_1.imm_data }
}

/// Address and key of a read or write.
pub(crate) fn memory_of(wr: &ibv_send_wr) -> (u64, u32) {
    // SAFETY: as above.
    let rdma = unsafe { wr.wr.rdma };
    (rdma.remote_addr, rdma.rkey)
}

/// Address, key and the two values of an atomic.
pub(crate) fn atomic_of(wr: &ibv_send_wr) -> (u64, u32, u64, u64) {
    // SAFETY: as above.
    let atomic = unsafe { wr.wr.atomic };
    (
        atomic.remote_addr,
        atomic.rkey,
        atomic.compare_add,
        atomic.swap,
    )
}

//! The extended queue pair: work requests are built by calls instead of structures.
//!
//! Its order is [`ibv_wr_start`]; then, for each request, the member `wr_id` and `wr_flags` of the queue pair are set,
//! one of the operations is called and what sets its data or address after it; then [`ibv_wr_complete`] posts them all, or
//! [`ibv_wr_abort`] none. A driver sets the entry of an operation when the queue pair is made with that operation's bit
//! in `send_ops_flags`, and leaves the others null. The two newest lie behind the end of the structure in a library that
//! is older than they are, which is one more reason to call them only where their flag was accepted.

use core::ffi::{c_int, c_void};

use crate::{__be32, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};

/// Declares functions that call an entry of the queue pair.
macro_rules! through_queue_pair {
    ($(
        $(#[$doc:meta])*
        fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $entry:ident;
    )*) => {$(
        $(#[$doc])*
        #[inline]
        pub unsafe fn $name(qp: *mut ibv_qp_ex, $($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the caller passes a live extended queue pair, made with the flag of this operation: then the
            // library's structure has the entry, and the driver has set it.
            let entry = unsafe { (*qp).$entry };
            // SAFETY: as above.
            let entry = unsafe { entry.unwrap_unchecked() };
            // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
            unsafe { entry(qp, $($arg),*) }
        }
    )*};
}

through_queue_pair! {
    /// Begins a list of work requests, and locks the send queue.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair. The same thread ends the list by [`ibv_wr_complete`] or [`ibv_wr_abort`].
    fn ibv_wr_start() = wr_start;

    /// Posts the list. Returns 0 or an errno; then nothing was posted, as the manual says. (Soft-RoCE leaves the requests in
    /// its queue when the call fails that wakes the device, and sends them when it is woken again.)
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair with a list begun. The memory that the requests name stays valid, and unused
    /// where the device writes, until they have completed.
    fn ibv_wr_complete() -> c_int = wr_complete;

    /// Forgets the list.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair with a list begun.
    fn ibv_wr_abort() = wr_abort;

    /// Adds a send.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair with a list begun, made with `IBV_QP_EX_WITH_SEND`.
    fn ibv_wr_send() = wr_send;

    /// Adds a send with immediate data, which is in network byte order.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_SEND_WITH_IMM`.
    fn ibv_wr_send_imm(imm_data: __be32) = wr_send_imm;

    /// Adds a send that makes a key of the peer invalid.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_SEND_WITH_INV`.
    fn ibv_wr_send_inv(invalidate_rkey: u32) = wr_send_inv;

    /// Adds a send that the device cuts into packets.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_TSO`; `hdr` is valid for reading `hdr_sz` bytes.
    fn ibv_wr_send_tso(hdr: *mut c_void, hdr_sz: u16, mss: u16) = wr_send_tso;

    /// Adds a read of the peer's memory.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_RDMA_READ`.
    fn ibv_wr_rdma_read(rkey: u32, remote_addr: u64) = wr_rdma_read;

    /// Adds a write to the peer's memory.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_RDMA_WRITE`.
    fn ibv_wr_rdma_write(rkey: u32, remote_addr: u64) = wr_rdma_write;

    /// Adds a write to the peer's memory with immediate data, which is in network byte order.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM`.
    fn ibv_wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: __be32) = wr_rdma_write_imm;

    /// Adds a flush of writes to the peer's memory; the last two are of `ibv_placement_type` and
    /// `ibv_selectivity_level`.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_FLUSH`, which rdma-core before 45 refuses.
    fn ibv_wr_flush(rkey: u32, remote_addr: u64, len: usize, kind: u8, level: u8) = wr_flush;

    /// Adds an atomic write of 8 bytes to the peer's memory.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_ATOMIC_WRITE`, which rdma-core before 44 refuses; `atomic_wr` is
    /// valid for reading 8 bytes.
    fn ibv_wr_atomic_write(rkey: u32, remote_addr: u64, atomic_wr: *const c_void) = wr_atomic_write;

    /// Adds an atomic compare-and-swap of 8 bytes of the peer's memory.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP`.
    fn ibv_wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64) = wr_atomic_cmp_swp;

    /// Adds an atomic addition to 8 bytes of the peer's memory.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD`.
    fn ibv_wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64) = wr_atomic_fetch_add;

    /// Adds the binding of a memory window of type 2.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_BIND_MW`; `mw` is live, and `bind_info` points to an initialised
    /// description.
    fn ibv_wr_bind_mw(mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info) = wr_bind_mw;

    /// Adds making a key of our own invalid.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_send`], with `IBV_QP_EX_WITH_LOCAL_INV`.
    fn ibv_wr_local_inv(invalidate_rkey: u32) = wr_local_inv;

    /// Sets the destination of the request just added, on an unreliable datagram queue pair.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair of that type with a request added; `ah` is live until it has completed.
    fn ibv_wr_set_ud_addr(ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) = wr_set_ud_addr;

    /// Sets the peer's shared receive queue for the request just added, on an XRC queue pair.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair of that type with a request added.
    fn ibv_wr_set_xrc_srqn(remote_srqn: u32) = wr_set_xrc_srqn;

    /// Copies the data of the request just added.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair with a request added; `addr` is valid for reading `length` bytes.
    fn ibv_wr_set_inline_data(addr: *mut c_void, length: usize) = wr_set_inline_data;

    /// Copies the data of the request just added from several places.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair with a request added; `buf_list` has `num_buf` elements, each valid for
    /// reading its length.
    fn ibv_wr_set_inline_data_list(num_buf: usize, buf_list: *const ibv_data_buf) = wr_set_inline_data_list;

    /// Sets the memory of the request just added.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair with a request added. The memory stays valid, and unused where the device
    /// writes, until it has completed.
    fn ibv_wr_set_sge(lkey: u32, addr: u64, length: u32) = wr_set_sge;

    /// Sets the memory of the request just added, in several places.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wr_set_sge`]; `sg_list` has `num_sge` elements.
    fn ibv_wr_set_sge_list(num_sge: usize, sg_list: *const ibv_sge) = wr_set_sge_list;
}

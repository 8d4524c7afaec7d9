//! The extended completion queue: completions are read field by field, without a copy.
//!
//! Its order is `ibv_start_poll`, then for each completion reads and `ibv_next_poll`, then `ibv_end_poll`. A driver sets
//! the reader of a field when the queue is made with that field's bit in `wc_flags`, and leaves the others null.

use core::ffi::{c_int, c_uint};

use super::context::through_context;
use crate::{
    __be32, ibv_cq, ibv_cq_ex, ibv_modify_cq_attr, ibv_poll_cq_attr, ibv_wc_opcode, ibv_wc_tm_info,
};

/// The ordinary queue that an extended one begins with.
#[inline]
#[must_use]
pub const fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Declares functions that call an entry of the queue.
macro_rules! through_queue {
    ($(
        $(#[$doc:meta])*
        fn $name:ident ($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $entry:ident;
    )*) => {$(
        $(#[$doc])*
        #[inline]
        pub unsafe fn $name(cq: *mut ibv_cq_ex, $($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the caller passes a live extended queue; the driver sets the entry when it makes the queue.
            let entry = unsafe { (*cq).$entry };
            // SAFETY: the caller promises that the queue has what the entry reads, and for that the driver sets it.
            let entry = unsafe { entry.unwrap_unchecked() };
            // SAFETY: the caller's promises are what the driver asks for: the arguments are passed on unchanged.
            unsafe { entry(cq, $($arg),*) }
        }
    )*};
}

through_queue! {
    /// Begins to read completions: the first is there when this returns 0, none when it returns `ENOENT`.
    ///
    /// # Safety
    ///
    /// - `cq` is a live extended completion queue that is not being polled.
    /// - `attr` points to initialised attributes.
    fn ibv_start_poll(attr: *mut ibv_poll_cq_attr) -> c_int = start_poll;

    /// Goes to the next completion: it is there when this returns 0, none is when it returns `ENOENT`.
    ///
    /// # Safety
    ///
    /// `cq` is a live extended completion queue, between an [`ibv_start_poll`] that returned 0 and its end.
    fn ibv_next_poll() -> c_int = next_poll;

    /// Ends reading. Not to be called when [`ibv_start_poll`] failed.
    ///
    /// # Safety
    ///
    /// As for [`ibv_next_poll`].
    fn ibv_end_poll() = end_poll;

    /// The operation that has completed. Defined for a successful completion only.
    ///
    /// # Safety
    ///
    /// `cq` is a live extended completion queue that stands on a completion.
    fn ibv_wc_read_opcode() -> ibv_wc_opcode = read_opcode;

    /// The driver's own number for an error.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`].
    fn ibv_wc_read_vendor_err() -> u32 = read_vendor_err;

    /// How many bytes were moved.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_BYTE_LEN`.
    fn ibv_wc_read_byte_len() -> u32 = read_byte_len;

    /// The immediate data, in network byte order, of a completion that has `IBV_WC_WITH_IMM`.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_IMM`.
    fn ibv_wc_read_imm_data() -> __be32 = read_imm_data;

    /// The key that was made invalid, of a completion that has `IBV_WC_WITH_INV`. The host's byte order.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_IMM`.
    fn ibv_wc_read_invalidated_rkey() -> u32 = read_imm_data;

    /// The number of the queue pair.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_QP_NUM`.
    fn ibv_wc_read_qp_num() -> u32 = read_qp_num;

    /// The number of the sender's queue pair.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_SRC_QP`.
    fn ibv_wc_read_src_qp() -> u32 = read_src_qp;

    /// `ibv_wc_flags` of the completion.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`].
    fn ibv_wc_read_wc_flags() -> c_uint = read_wc_flags;

    /// The sender's LID.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_SLID`.
    fn ibv_wc_read_slid() -> u32 = read_slid;

    /// The service level.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_SL`.
    fn ibv_wc_read_sl() -> u8 = read_sl;

    /// The low bits of the LID that the message was sent to.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_DLID_PATH_BITS`.
    fn ibv_wc_read_dlid_path_bits() -> u8 = read_dlid_path_bits;

    /// When it completed, in ticks of the device's clock.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`.
    fn ibv_wc_read_completion_ts() -> u64 = read_completion_ts;

    /// When it completed, in nanoseconds of the wall clock.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`.
    fn ibv_wc_read_completion_wallclock_ns() -> u64 = read_completion_wallclock_ns;

    /// The VLAN tag that was taken off.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_CVLAN`.
    fn ibv_wc_read_cvlan() -> u16 = read_cvlan;

    /// The tag of the steering rule that matched.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_FLOW_TAG`.
    fn ibv_wc_read_flow_tag() -> u32 = read_flow_tag;

    /// What tag matching found.
    ///
    /// # Safety
    ///
    /// As for [`ibv_wc_read_opcode`], of a queue made with `IBV_WC_EX_WITH_TM_INFO`; `tm_info` is valid for writing.
    fn ibv_wc_read_tm_info(tm_info: *mut ibv_wc_tm_info) = read_tm_info;
}

through_context! {
    /// Changes when a completion queue raises its event. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `cq` is a live completion queue, and `attr` points to initialised attributes.
    fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int = modify_cq of cq;
}

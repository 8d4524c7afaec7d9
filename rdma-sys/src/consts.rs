//! Constants and names that the headers define by macros bindgen cannot read.

use core::ffi::{c_int, c_uint, c_void};

use crate::{
    IB_UVERBS_ACCESS_OPTIONAL_RANGE, IB_UVERBS_ADVISE_MR_FLAG_FLUSH, ib_uverbs_advise_mr_advice,
};

/// The part of a 64-bit IB service id that names the port space.
pub const RDMA_IB_IP_PS_MASK: u64 = 0xFFFF_FFFF_FFFF_0000;
/// The part of a 64-bit IB service id that holds the port.
pub const RDMA_IB_IP_PORT_MASK: u64 = 0x0000_0000_0000_FFFF;
/// The IB service id prefix of `RDMA_PS_TCP`.
pub const RDMA_IB_IP_PS_TCP: u64 = 0x0000_0000_0106_0000;
/// The IB service id prefix of `RDMA_PS_UDP`.
pub const RDMA_IB_IP_PS_UDP: u64 = 0x0000_0000_0111_0000;
/// The IB service id prefix of `RDMA_PS_IB`.
pub const RDMA_IB_PS_IB: u64 = 0x0000_0000_013F_0000;

/// The address family of native InfiniBand addresses, in `rdma_getaddrinfo` and [`sockaddr_ib`].
///
/// It is Linux's number on every system: the `libc` crate has it for glibc only.
pub const AF_IB: c_int = 27;
/// The same as a protocol family.
pub const PF_IB: c_int = AF_IB;

/// An InfiniBand address: family [`AF_IB`].
///
/// It is declared in a header that is not installed everywhere; the layout is part of the kernel's interface. All
/// numbers but the family are in network byte order.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct sockaddr_ib {
    /// [`AF_IB`].
    pub sib_family: u16,
    /// The partition key.
    pub sib_pkey: u16,
    /// The flow label.
    pub sib_flowinfo: u32,
    /// The GID.
    pub sib_addr: [u8; 16],
    /// The service id.
    pub sib_sid: u64,
    /// Which bits of the service id count.
    pub sib_sid_mask: u64,
    /// Which of several equal addresses is meant.
    pub sib_scope_id: u64,
}

/// What an allocator of a parent domain returns to leave an allocation to the library.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

/// The access flags that a kernel may ignore when it does not know them.
pub const IBV_ACCESS_OPTIONAL_RANGE: c_uint = IB_UVERBS_ACCESS_OPTIONAL_RANGE;

/// A bit of `ibv_port_attr.flags`: packets on this port need a global routing header.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1;

/// What to do with memory: the name that `ibv_advise_mr` uses.
pub type ibv_advise_mr_advice = ib_uverbs_advise_mr_advice;
/// Advises that memory will be read.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH: ibv_advise_mr_advice =
    ib_uverbs_advise_mr_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
/// Advises that memory will be written.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: ibv_advise_mr_advice =
    ib_uverbs_advise_mr_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
/// Advises that memory will be used, but only as far as it is mapped already.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: ibv_advise_mr_advice =
    ib_uverbs_advise_mr_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
/// Asks `ibv_advise_mr` to return when the work is done.
pub const IBV_ADVISE_MR_FLAG_FLUSH: c_uint = IB_UVERBS_ADVISE_MR_FLAG_FLUSH;

//! What a device can do beside the ordinary.

use bitflags::bitflags;
use rdma_sys::{ibv_atomic_cap, ibv_device_attr_ex};

bitflags! {
    /// What a device can do beside the ordinary (`ibv_device_cap_flags`). Bits without a name here are kept.
    #[doc(alias = "ibv_device_cap_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct DeviceFlags: u64 {
        /// The depths of a queue pair can be changed.
        #[doc(alias = "IBV_DEVICE_RESIZE_MAX_WR")]
        const RESIZE_MAX_WR = rdma_sys::IBV_DEVICE_RESIZE_MAX_WR as u64;
        /// Packets with a wrong partition key are counted.
        #[doc(alias = "IBV_DEVICE_BAD_PKEY_CNTR")]
        const BAD_PKEY_CNTR = rdma_sys::IBV_DEVICE_BAD_PKEY_CNTR as u64;
        /// Packets with a wrong queue key are counted.
        #[doc(alias = "IBV_DEVICE_BAD_QKEY_CNTR")]
        const BAD_QKEY_CNTR = rdma_sys::IBV_DEVICE_BAD_QKEY_CNTR as u64;
        /// Raw packets can be multicast.
        #[doc(alias = "IBV_DEVICE_RAW_MULTI")]
        const RAW_MULTI = rdma_sys::IBV_DEVICE_RAW_MULTI as u64;
        /// A connection can move to another path by itself.
        #[doc(alias = "IBV_DEVICE_AUTO_PATH_MIG")]
        const AUTO_PATH_MIG = rdma_sys::IBV_DEVICE_AUTO_PATH_MIG as u64;
        /// A queue pair can change its port.
        #[doc(alias = "IBV_DEVICE_CHANGE_PHY_PORT")]
        const CHANGE_PHY_PORT = rdma_sys::IBV_DEVICE_CHANGE_PHY_PORT as u64;
        /// The port of an address handle is checked.
        #[doc(alias = "IBV_DEVICE_UD_AV_PORT_ENFORCE")]
        const UD_AV_PORT_ENFORCE = rdma_sys::IBV_DEVICE_UD_AV_PORT_ENFORCE as u64;
        /// A change of state may say which state it starts from.
        #[doc(alias = "IBV_DEVICE_CURR_QP_STATE_MOD")]
        const CURR_QP_STATE_MOD = rdma_sys::IBV_DEVICE_CURR_QP_STATE_MOD as u64;
        /// A port can be shut down.
        #[doc(alias = "IBV_DEVICE_SHUTDOWN_PORT")]
        const SHUTDOWN_PORT = rdma_sys::IBV_DEVICE_SHUTDOWN_PORT as u64;
        /// A port can be initialized in several ways.
        #[doc(alias = "IBV_DEVICE_INIT_TYPE")]
        const INIT_TYPE = rdma_sys::IBV_DEVICE_INIT_TYPE as u64;
        /// The device tells when a port has become active.
        #[doc(alias = "IBV_DEVICE_PORT_ACTIVE_EVENT")]
        const PORT_ACTIVE_EVENT = rdma_sys::IBV_DEVICE_PORT_ACTIVE_EVENT as u64;
        /// The system has a number of its own.
        #[doc(alias = "IBV_DEVICE_SYS_IMAGE_GUID")]
        const SYS_IMAGE_GUID = rdma_sys::IBV_DEVICE_SYS_IMAGE_GUID as u64;
        /// A reliable connection tells the sender when there is no receive.
        #[doc(alias = "IBV_DEVICE_RC_RNR_NAK_GEN")]
        const RC_RNR_NAK_GEN = rdma_sys::IBV_DEVICE_RC_RNR_NAK_GEN as u64;
        /// The depth of a shared receive queue can be changed.
        #[doc(alias = "IBV_DEVICE_SRQ_RESIZE")]
        const SRQ_RESIZE = rdma_sys::IBV_DEVICE_SRQ_RESIZE as u64;
        /// A completion queue can tell after several completions.
        #[doc(alias = "IBV_DEVICE_N_NOTIFY_CQ")]
        const N_NOTIFY_CQ = rdma_sys::IBV_DEVICE_N_NOTIFY_CQ as u64;
        /// There are memory windows of type 1.
        #[doc(alias = "IBV_DEVICE_MEM_WINDOW")]
        const MEM_WINDOW = rdma_sys::IBV_DEVICE_MEM_WINDOW as u64;
        /// Checksums of IP packets are computed for datagrams.
        #[doc(alias = "IBV_DEVICE_UD_IP_CSUM")]
        const UD_IP_CSUM = rdma_sys::IBV_DEVICE_UD_IP_CSUM as u64;
        /// There are extended reliable connections.
        #[doc(alias = "IBV_DEVICE_XRC")]
        const XRC = rdma_sys::IBV_DEVICE_XRC as u64;
        /// Memory can be invalidated by work requests and by the peer.
        #[doc(alias = "IBV_DEVICE_MEM_MGT_EXTENSIONS")]
        const MEM_MGT_EXTENSIONS = rdma_sys::IBV_DEVICE_MEM_MGT_EXTENSIONS as u64;
        /// There are memory windows of type 2A.
        #[doc(alias = "IBV_DEVICE_MEM_WINDOW_TYPE_2A")]
        const MEM_WINDOW_TYPE_2A = rdma_sys::IBV_DEVICE_MEM_WINDOW_TYPE_2A as u64;
        /// There are memory windows of type 2B.
        #[doc(alias = "IBV_DEVICE_MEM_WINDOW_TYPE_2B")]
        const MEM_WINDOW_TYPE_2B = rdma_sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B as u64;
        /// Checksums of IP packets are computed for reliable connections.
        #[doc(alias = "IBV_DEVICE_RC_IP_CSUM")]
        const RC_IP_CSUM = rdma_sys::IBV_DEVICE_RC_IP_CSUM as u64;
        /// Checksums of IP packets are computed for raw packets.
        #[doc(alias = "IBV_DEVICE_RAW_IP_CSUM")]
        const RAW_IP_CSUM = rdma_sys::IBV_DEVICE_RAW_IP_CSUM as u64;
        /// The kernel steers flows to queue pairs.
        #[doc(alias = "IBV_DEVICE_MANAGED_FLOW_STEERING")]
        const MANAGED_FLOW_STEERING = rdma_sys::IBV_DEVICE_MANAGED_FLOW_STEERING as u64;
        /// The checksum of an Ethernet frame can be written to memory with it.
        #[doc(alias = "IBV_DEVICE_RAW_SCATTER_FCS")]
        const RAW_SCATTER_FCS = rdma_sys::IBV_DEVICE_RAW_SCATTER_FCS;
        /// Writes to memory can be filled up to whole cache lines.
        #[doc(alias = "IBV_DEVICE_PCI_WRITE_END_PADDING")]
        const PCI_WRITE_END_PADDING = rdma_sys::IBV_DEVICE_PCI_WRITE_END_PADDING;
        const _ = !0;
    }
}

/// Against whom a device's atomic operations are atomic (`ibv_atomic_cap`).
#[doc(alias = "ibv_atomic_cap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicCapability {
    /// It has none.
    #[doc(alias = "IBV_ATOMIC_NONE")]
    None,
    /// Against those of the same device.
    #[doc(alias = "IBV_ATOMIC_HCA")]
    Device,
    /// Against everybody who touches the memory, the processor too.
    #[doc(alias = "IBV_ATOMIC_GLOB")]
    Global,
    /// A number that this crate has no name for.
    Unknown(u32),
}

impl AtomicCapability {
    pub(super) fn new(raw: ibv_atomic_cap) -> Self {
        match raw {
            ibv_atomic_cap::IBV_ATOMIC_NONE => Self::None,
            ibv_atomic_cap::IBV_ATOMIC_HCA => Self::Device,
            ibv_atomic_cap::IBV_ATOMIC_GLOB => Self::Global,
            ibv_atomic_cap(number) => Self::Unknown(number),
        }
    }

    /// Whether there are atomic operations at all.
    #[must_use]
    pub fn is_supported(self) -> bool {
        self != Self::None
    }
}

bitflags! {
    /// The operations that may touch memory which is paged in on demand (`ibv_odp_transport_cap_bits`). Bits without a name
    /// here are kept.
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct OnDemandOperations: u32 {
        /// Sends.
        #[doc(alias = "IBV_ODP_SUPPORT_SEND")]
        const SEND = rdma_sys::IBV_ODP_SUPPORT_SEND;
        /// Receives.
        #[doc(alias = "IBV_ODP_SUPPORT_RECV")]
        const RECV = rdma_sys::IBV_ODP_SUPPORT_RECV;
        /// RDMA writes.
        #[doc(alias = "IBV_ODP_SUPPORT_WRITE")]
        const WRITE = rdma_sys::IBV_ODP_SUPPORT_WRITE;
        /// RDMA reads.
        #[doc(alias = "IBV_ODP_SUPPORT_READ")]
        const READ = rdma_sys::IBV_ODP_SUPPORT_READ;
        /// Atomic operations.
        #[doc(alias = "IBV_ODP_SUPPORT_ATOMIC")]
        const ATOMIC = rdma_sys::IBV_ODP_SUPPORT_ATOMIC;
        /// Receives on a shared receive queue.
        #[doc(alias = "IBV_ODP_SUPPORT_SRQ_RECV")]
        const SRQ_RECV = rdma_sys::IBV_ODP_SUPPORT_SRQ_RECV;
        /// Flushes of remote memory.
        #[doc(alias = "IBV_ODP_SUPPORT_FLUSH")]
        const FLUSH = rdma_sys::IBV_ODP_SUPPORT_FLUSH;
        /// Atomic writes.
        #[doc(alias = "IBV_ODP_SUPPORT_ATOMIC_WRITE")]
        const ATOMIC_WRITE = rdma_sys::IBV_ODP_SUPPORT_ATOMIC_WRITE;
        const _ = !0;
    }
}

/// What a device can do with memory that is registered without being locked, and paged in on demand (`ibv_odp_caps`).
#[doc(alias = "ibv_odp_caps")]
#[doc(alias = "ibv_odp_general_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OnDemandPaging {
    general: u64,
    rc: OnDemandOperations,
    uc: OnDemandOperations,
    ud: OnDemandOperations,
    xrc: OnDemandOperations,
}

impl OnDemandPaging {
    pub(super) fn new(attr: &ibv_device_attr_ex) -> Self {
        let per_transport = &attr.odp_caps.per_transport_caps;
        Self {
            general: attr.odp_caps.general_caps,
            rc: OnDemandOperations::from_bits_retain(per_transport.rc_odp_caps),
            uc: OnDemandOperations::from_bits_retain(per_transport.uc_odp_caps),
            ud: OnDemandOperations::from_bits_retain(per_transport.ud_odp_caps),
            xrc: OnDemandOperations::from_bits_retain(attr.xrc_odp_caps),
        }
    }

    /// Whether memory can be registered so.
    #[doc(alias = "IBV_ODP_SUPPORT")]
    #[must_use]
    pub fn is_supported(self) -> bool {
        self.general & u64::from(rdma_sys::IBV_ODP_SUPPORT) != 0
    }

    /// Whether the whole address space of the process can be registered at once.
    #[doc(alias = "IBV_ODP_SUPPORT_IMPLICIT")]
    #[must_use]
    pub fn is_implicit_supported(self) -> bool {
        self.general & u64::from(rdma_sys::IBV_ODP_SUPPORT_IMPLICIT) != 0
    }

    /// What reliable connections may do with it.
    #[must_use]
    pub fn rc(self) -> OnDemandOperations {
        self.rc
    }

    /// What unreliable connections may do with it.
    #[must_use]
    pub fn uc(self) -> OnDemandOperations {
        self.uc
    }

    /// What datagrams may do with it.
    #[must_use]
    pub fn ud(self) -> OnDemandOperations {
        self.ud
    }

    /// What extended reliable connections may do with it.
    #[must_use]
    pub fn xrc(self) -> OnDemandOperations {
        self.xrc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_of_tomorrow_is_kept_as_a_number() {
        let new = |number| AtomicCapability::new(ibv_atomic_cap(number));
        assert_eq!(new(0), AtomicCapability::None);
        assert_eq!(new(1), AtomicCapability::Device);
        assert_eq!(new(2), AtomicCapability::Global);
        assert_eq!(new(9), AtomicCapability::Unknown(9));
        assert!(new(9).is_supported() && !new(0).is_supported());
    }

    #[test]
    fn paging_on_demand_is_per_transport() {
        let mut attr = ibv_device_attr_ex::default();
        let none = OnDemandPaging::new(&attr);
        assert!(!none.is_supported() && !none.is_implicit_supported());
        attr.odp_caps.general_caps = 3;
        attr.odp_caps.per_transport_caps.rc_odp_caps = 0b1_0001;
        attr.odp_caps.per_transport_caps.ud_odp_caps = 1 << 20;
        attr.xrc_odp_caps = 32;
        let some = OnDemandPaging::new(&attr);
        assert!(some.is_supported() && some.is_implicit_supported());
        assert_eq!(
            some.rc(),
            OnDemandOperations::SEND | OnDemandOperations::ATOMIC
        );
        assert!(some.uc().is_empty());
        assert_eq!(some.ud().bits(), 1 << 20);
        assert_eq!(some.xrc(), OnDemandOperations::SRQ_RECV);
    }
}

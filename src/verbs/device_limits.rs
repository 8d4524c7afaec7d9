use std::ffi::c_char;
use std::fmt;

use rdma_sys::ibv_device_attr_ex;

use super::device_flags::{AtomicCapability, DeviceFlags, OnDemandPaging};

/// What a device is, what it can do, and what it can hold at most (`ibv_device_attr`, `ibv_device_attr_ex`).
///
/// A limit is what the device reports: others on the machine share it, so reaching it may fail earlier.
#[doc(alias = "ibv_device_attr")]
#[doc(alias = "ibv_device_attr_ex")]
#[derive(Clone, Copy)]
pub struct DeviceLimits(ibv_device_attr_ex);

/// Defines a getter for each limit, and a list of them for `Debug`.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        impl DeviceLimits {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(&self) -> u32 {
                positive(self.0.orig_attr.$name)
            }
        )*}

        /// The getters above with their names.
        const LIMITS: &[(&str, fn(&DeviceLimits) -> u32)] = &[
            $((stringify!($name), DeviceLimits::$name)),*
        ];
    };
}

limits! {
    /// Queue pairs (`max_qp`).
    max_qp,
    /// Outstanding work requests on a queue of a queue pair (`max_qp_wr`).
    max_qp_wr,
    /// Pieces of memory, or scatter/gather elements (SGEs), in a work request (`max_sge`).
    max_sge,
    /// Pieces of memory in an RDMA read (`max_sge_rd`).
    max_sge_rd,
    /// RDMA reads and atomics that a queue pair answers at a time (`max_qp_rd_atom`): the limit of `responder_resources`.
    max_qp_rd_atom,
    /// RDMA reads and atomics that a queue pair asks at a time (`max_qp_init_rd_atom`): the limit of `initiator_depth`.
    max_qp_init_rd_atom,
    /// RDMA reads and atomics that the device answers at a time, for all queue pairs together (`max_res_rd_atom`).
    max_res_rd_atom,
    /// Completion queues (`max_cq`).
    max_cq,
    /// Entries of a completion queue (`max_cqe`).
    max_cqe,
    /// Memory regions (`max_mr`).
    max_mr,
    /// Memory windows (`max_mw`).
    max_mw,
    /// Protection domains (`max_pd`).
    max_pd,
    /// Address handles (`max_ah`).
    max_ah,
    /// Shared receive queues (`max_srq`).
    max_srq,
    /// Outstanding receives on a shared receive queue (`max_srq_wr`).
    max_srq_wr,
    /// Pieces of memory in a receive on a shared receive queue (`max_srq_sge`).
    max_srq_sge,
    /// Multicast groups (`max_mcast_grp`).
    max_mcast_grp,
    /// Queue pairs in a multicast group (`max_mcast_qp_attach`).
    max_mcast_qp_attach,
    /// Queue pairs in multicast groups, all groups together (`max_total_mcast_qp_attach`).
    max_total_mcast_qp_attach,
}

impl DeviceLimits {
    pub(super) fn new(attr: ibv_device_attr_ex) -> Self {
        Self(attr)
    }

    /// Bytes of a memory region (`max_mr_size`).
    #[must_use]
    pub fn max_mr_size(&self) -> u64 {
        self.0.orig_attr.max_mr_size
    }

    /// Bytes of the device's own memory that a program may have (`max_dm_size`); 0 where there is none.
    #[must_use]
    pub fn max_dm_size(&self) -> u64 {
        self.0.max_dm_size
    }

    /// Partition keys of a port (`max_pkeys`).
    #[must_use]
    pub fn max_pkeys(&self) -> u16 {
        self.0.orig_attr.max_pkeys
    }

    /// How many ports the device has (`phys_port_cnt`): they are numbered from 1.
    #[doc(alias = "phys_port_cnt")]
    #[must_use]
    pub fn port_count(&self) -> u8 {
        self.0.orig_attr.phys_port_cnt
    }

    /// The page sizes that the device knows: bit `n` is for pages of 2^`n` bytes (`page_size_cap`).
    #[must_use]
    pub fn page_size_cap(&self) -> u64 {
        self.0.orig_attr.page_size_cap
    }

    /// How long the device may take to answer a request, as the exponent `n` of 4.096 µs times 2^`n` (`local_ca_ack_delay`).
    #[must_use]
    pub fn local_ca_ack_delay(&self) -> u8 {
        self.0.orig_attr.local_ca_ack_delay
    }

    /// Which bits of a completion's time stamp count (`completion_timestamp_mask`); 0 where there are no time stamps.
    #[must_use]
    pub fn completion_timestamp_mask(&self) -> u64 {
        self.0.completion_timestamp_mask
    }

    /// The rate of the device's clock in kHz (`hca_core_clock`); 0 where it is not known.
    #[doc(alias = "hca_core_clock")]
    #[must_use]
    pub fn core_clock_khz(&self) -> u64 {
        self.0.hca_core_clock
    }

    /// What the device can do beside the ordinary (`device_cap_flags`, and `device_cap_flags_ex` where there is one).
    #[doc(alias = "device_cap_flags")]
    #[doc(alias = "device_cap_flags_ex")]
    #[must_use]
    pub fn flags(&self) -> DeviceFlags {
        let low = self.0.orig_attr.device_cap_flags;
        DeviceFlags::from_bits_retain(u64::from(low) | self.0.device_cap_flags_ex)
    }

    /// Against whom the device's atomic operations are atomic (`atomic_cap`).
    #[doc(alias = "atomic_cap")]
    #[must_use]
    pub fn atomics(&self) -> AtomicCapability {
        AtomicCapability::new(self.0.orig_attr.atomic_cap)
    }

    /// What the device can do with memory that is registered without being locked (`odp_caps`).
    #[doc(alias = "odp_caps")]
    #[must_use]
    pub fn on_demand_paging(&self) -> OnDemandPaging {
        OnDemandPaging::new(&self.0)
    }

    /// The version of the device's firmware, as its maker writes it (`fw_ver`).
    #[doc(alias = "fw_ver")]
    #[must_use]
    pub fn firmware(&self) -> String {
        let text = until_nul(&self.0.orig_attr.fw_ver);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The number of the device's maker (`vendor_id`): an IEEE OUI.
    #[must_use]
    pub fn vendor_id(&self) -> u32 {
        self.0.orig_attr.vendor_id
    }

    /// The maker's number for this model (`vendor_part_id`).
    #[must_use]
    pub fn vendor_part_id(&self) -> u32 {
        self.0.orig_attr.vendor_part_id
    }

    /// The maker's number for the state of the hardware (`hw_ver`).
    #[must_use]
    pub fn hw_ver(&self) -> u32 {
        self.0.orig_attr.hw_ver
    }

    /// The device's own number in the world (`node_guid`).
    #[doc(alias = "ibv_get_device_guid")]
    #[must_use]
    pub fn node_guid(&self) -> u64 {
        u64::from_be(self.0.orig_attr.node_guid)
    }

    /// The number of the system that the device is a part of (`sys_image_guid`): several devices of one card share it.
    #[must_use]
    pub fn sys_image_guid(&self) -> u64 {
        u64::from_be(self.0.orig_attr.sys_image_guid)
    }

    /// The C structure. What a device or an older library does not know is 0.
    #[must_use]
    pub fn as_raw(&self) -> &ibv_device_attr_ex {
        &self.0
    }
}

/// A limit is an `int` in C and never below zero; if it were, nothing would fit.
fn positive(limit: i32) -> u32 {
    u32::try_from(limit).unwrap_or(0)
}

/// The bytes of a text that ends with a zero, or with its field.
fn until_nul(text: &[c_char]) -> Vec<u8> {
    let bytes = text.iter().map(|byte| byte.to_ne_bytes()[0]);
    bytes.take_while(|byte| *byte != 0).collect()
}

impl fmt::Debug for DeviceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("DeviceLimits");
        debug
            .field("firmware", &self.firmware())
            .field("node_guid", &format_args!("{:#018x}", self.node_guid()))
            .field("port_count", &self.port_count())
            .field("flags", &self.flags())
            .field("atomics", &self.atomics())
            .field("on_demand_paging", &self.on_demand_paging())
            .field("max_mr_size", &self.max_mr_size());
        for (name, limit) in LIMITS {
            debug.field(name, &limit(self));
        }
        debug.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_zero_is_none_and_a_guid_is_in_network_order() {
        let mut attr = ibv_device_attr_ex::default();
        attr.orig_attr.max_qp = -1;
        attr.orig_attr.max_srq_wr = 7;
        attr.orig_attr.node_guid = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        let limits = DeviceLimits::new(attr);
        assert_eq!(limits.max_qp(), 0);
        assert_eq!(limits.max_srq_wr(), 7);
        assert_eq!(limits.node_guid(), 0x0102_0304_0506_0708);
        assert!(format!("{limits:?}").contains("max_srq_wr: 7"));
    }

    #[test]
    fn a_firmware_version_may_fill_its_field() {
        let mut attr = ibv_device_attr_ex::default();
        assert_eq!(DeviceLimits::new(attr).firmware(), "");
        let digit = c_char::try_from(b'7').unwrap();
        attr.orig_attr.fw_ver[0] = digit;
        assert_eq!(DeviceLimits::new(attr).firmware(), "7");
        attr.orig_attr.fw_ver = [digit; 64];
        assert_eq!(DeviceLimits::new(attr).firmware(), "7".repeat(64));
    }

    #[test]
    fn flags_of_both_words_are_kept_with_those_that_have_no_name() {
        let mut attr = ibv_device_attr_ex::default();
        attr.orig_attr.device_cap_flags = rdma_sys::IBV_DEVICE_MEM_WINDOW | 1 << 31;
        attr.device_cap_flags_ex = 1 << 36 | 1 << 60;
        let flags = DeviceLimits::new(attr).flags();
        assert!(flags.contains(DeviceFlags::MEM_WINDOW | DeviceFlags::PCI_WRITE_END_PADDING));
        assert_eq!(flags.bits(), 1 << 17 | 1 << 31 | 1 << 36 | 1 << 60);
    }
}

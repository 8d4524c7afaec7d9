//! What a device, a port and a table of addresses are like.

use core::ffi::c_int;
use core::mem::size_of;

use super::context::{Unsupported as _, entry, through_context};
#[cfg(not(target_os = "freebsd"))]
use crate::{_ibv_query_gid_ex, _ibv_query_gid_table, ibv_gid_entry};
use crate::{
    IB_ROCE_UDP_ENCAP_VALID_PORT_MIN, ibv_comp_cntr_caps, ibv_context, ibv_device_attr_ex,
    ibv_port_attr, ibv_qp_type, ibv_query_device, ibv_query_device_ex_input, ibv_values_ex,
};

unsafe extern "C" {
    /// The function behind the macro: it fills an older, shorter structure.
    #[link_name = "ibv_query_port"]
    fn legacy_query_port(
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut ibv_port_attr,
    ) -> c_int;
}

/// Reads the attributes of a port. Returns 0 or an errno.
///
/// The structure has grown over time. The size of this crate's own is passed on: an older library zeroes what it does
/// not know. The plain symbol of this name would leave it uninitialised.
///
/// # Safety
///
/// `context` is an open device context, and `port_attr` is valid for writing.
#[inline]
pub unsafe fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller passes an open context; the macro pairs the entry's distance with its type.
    match unsafe { entry!(context, query_port) } {
        // SAFETY: the caller's promises, and the size is that of the structure they are about.
        Some(call) => unsafe { call(context, port_num, port_attr, size_of::<ibv_port_attr>()) },
        None => {
            // SAFETY: valid for writing, by the caller's promise.
            unsafe { port_attr.write_bytes(0, 1) };
            // SAFETY: as above; the function writes the front of the structure only.
            unsafe { legacy_query_port(context, port_num, port_attr) }
        }
    }
}

/// Reads the attributes of a device, with those that not every device has. Returns 0 or an errno.
///
/// # Safety
///
/// `context` is an open device context, `input` is null or points to an initialised input, and `attr` is valid for
/// writing.
#[inline]
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    if !input.is_null() {
        // SAFETY: not null, so initialised by the caller's promise.
        let comp_mask = unsafe { (*input).comp_mask };
        if comp_mask != 0 {
            return libc::EINVAL;
        }
    }
    // SAFETY: the caller passes an open context; the macro pairs the entry's distance with its type.
    if let Some(call) = unsafe { entry!(context, query_device_ex) } {
        // SAFETY: the caller's promises, and the size is that of the structure they are about.
        let result = unsafe { call(context, input, attr, size_of::<ibv_device_attr_ex>()) };
        if result != libc::EOPNOTSUPP && result != libc::ENOSYS {
            return result;
        }
    }
    // SAFETY: valid for writing, by the caller's promise.
    unsafe { attr.write_bytes(0, 1) };
    // SAFETY: as above; no reference is formed.
    let original = unsafe { &raw mut (*attr).orig_attr };
    // SAFETY: the caller passes an open context, and the attributes are valid for writing.
    unsafe { ibv_query_device(context, original) }
}

through_context! {
    /// Reads values that change as the device runs, such as its clock. Returns 0 or an errno.
    ///
    /// # Safety
    ///
    /// `context` is an open device context, and `values` points to an initialised structure: its mask says what to read.
    fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int
        = query_rt_values on context;
}

/// Reads an entry of a port's GID table. Returns 0 or an errno.
///
/// # Safety
///
/// `context` is an open device context, and `entry` is valid for writing.
#[cfg(not(target_os = "freebsd"))]
#[inline]
pub unsafe fn ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's promises, and the size is that of the structure they are about.
    unsafe {
        _ibv_query_gid_ex(
            context,
            port_num,
            gid_index,
            entry,
            flags,
            size_of::<ibv_gid_entry>(),
        )
    }
}

/// Reads all valid entries of a device's GID tables. Returns how many, or a negative errno.
///
/// # Safety
///
/// `context` is an open device context, and `entries` is valid for writing `max_entries` elements.
#[cfg(not(target_os = "freebsd"))]
#[inline]
pub unsafe fn ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> isize {
    // SAFETY: the caller's promises, and the size is that of the structure they are about.
    unsafe {
        _ibv_query_gid_table(
            context,
            entries,
            max_entries,
            flags,
            size_of::<ibv_gid_entry>(),
        )
    }
}

/// Reads what completion counters a device has. Returns 0 or an errno: `EOPNOTSUPP` before rdma-core 65.
///
/// # Safety
///
/// `context` is an open device context, and `caps` is valid for writing.
#[inline]
pub unsafe fn ibv_query_comp_cntr_caps(
    context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
) -> c_int {
    match crate::probe::_ibv_query_comp_cntr_caps() {
        // SAFETY: the caller's promises, and the size is that of the structure they are about.
        Some(call) => unsafe { call(context, caps, size_of::<ibv_comp_cntr_caps>()) },
        None => c_int::unsupported(),
    }
}

/// Whether a set of queue pair types, as devices report them, has a type in it. Not 0 means yes.
#[inline]
#[must_use]
pub const fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type) -> c_int {
    // A type that has no bit, such as the driver's own (255), is in no set. In C the shift is undefined.
    match 1u32.checked_shl(qpt.0) {
        Some(bit) if caps & bit != 0 => 1,
        _ => 0,
    }
}

/// The UDP source port that RoCE derives from a flow label.
#[inline]
#[must_use]
pub const fn ibv_flow_label_to_udp_sport(fl: u32) -> u16 {
    let low = (fl & 0x03fff) ^ ((fl & 0xfc000) >> 14) | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "14 bits, and the two above them"
    )]
    {
        low as u16
    }
}

#[cfg(test)]
mod tests {
    use super::{ibv_flow_label_to_udp_sport, ibv_is_qpt_supported};
    use crate::ibv_qp_type;

    #[test]
    fn a_flow_label_gives_a_port_of_the_roce_range() {
        assert_eq!(ibv_flow_label_to_udp_sport(0), 0xc000);
        assert_eq!(ibv_flow_label_to_udp_sport(0x3fff), 0xffff);
        // The high six bits are folded into the low ones.
        assert_eq!(ibv_flow_label_to_udp_sport(0xfc000), 0xc03f);
        assert_eq!(ibv_flow_label_to_udp_sport(0xfffff), 0xffc0);
    }

    #[test]
    fn a_type_without_a_bit_is_not_supported() {
        let caps = 1 << ibv_qp_type::IBV_QPT_RC.0;
        assert_eq!(ibv_is_qpt_supported(caps, ibv_qp_type::IBV_QPT_RC), 1);
        assert_eq!(ibv_is_qpt_supported(caps, ibv_qp_type::IBV_QPT_UD), 0);
        assert_eq!(
            ibv_is_qpt_supported(u32::MAX, ibv_qp_type::IBV_QPT_DRIVER),
            0
        );
    }
}

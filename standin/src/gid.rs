#![expect(unsafe_code, reason = "exports C symbols")]
//! Ports, and their tables of addresses and keys.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};

use crate::arg;
use crate::c::{ibv_context, ibv_gid, ibv_gid_entry, ibv_mtu, ibv_port_attr, ibv_port_state};
use crate::device::{Device, present};
use crate::world::world;

/// The address of RoCE v2 that an IP address stands for.
pub(crate) fn gid_of(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    ibv_gid { raw }
}

/// The bytes of an address.
pub(crate) fn bytes_of(gid: &ibv_gid) -> [u8; 16] {
    // SAFETY: both members of the union are plain bytes.
    unsafe { gid.raw }
}

/// Whether an address is a group's, also one of IPv4.
pub(crate) fn is_multicast(gid: [u8; 16]) -> bool {
    let ip = Ipv6Addr::from(gid);
    ip.is_multicast() || ip.to_ipv4_mapped().is_some_and(|v4| v4.is_multicast())
}

fn entry(device: &Device, index: usize, ifindex: usize) -> Option<ibv_gid_entry> {
    let address = device.addresses.get(index)?;
    Some(ibv_gid_entry {
        gid: gid_of(*address),
        gid_index: u32::try_from(index).ok()?,
        port_num: 1,
        // RoCE v2.
        gid_type: 2,
        ndev_ifindex: u32::try_from(ifindex + 2).ok()?,
    })
}

export_extra! { verbs:
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
        let world = world();
        let device = world.device_of(context.addr());
        present(&world, device)?;
        if port_num != 1 {
            return Err(libc::EINVAL);
        }
        let mut attr = arg::read("the attributes", port_attr.cast_const());
        attr.state = if world.devices[device].port_down {
            ibv_port_state::IBV_PORT_DOWN
        } else {
            ibv_port_state::IBV_PORT_ACTIVE
        };
        attr.max_mtu = ibv_mtu::IBV_MTU_4096;
        attr.active_mtu = ibv_mtu::IBV_MTU_1024;
        attr.gid_tbl_len = 1024;
        attr.pkey_tbl_len = 1;
        // Ethernet.
        attr.link_layer = 2;
        arg::write("the attributes", port_attr, attr);
        Ok(())
    }
}

export! { count:
    fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
        let world = world();
        let device = &world.devices[world.device_of(context.addr())];
        let found = usize::try_from(index).ok().and_then(|index| entry(device, index, 0));
        match found {
            Some(entry) if port_num == 1 => {
                arg::write("the address", gid, entry.gid);
                0
            }
            _ => -1,
        }
    }

    fn ibv_query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut u16) -> c_int {
        let _ = world().device_of(context.addr());
        if port_num != 1 || index != 0 {
            return -1;
        }
        arg::write("the key", pkey, 0xffff);
        0
    }

    fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: u16) -> c_int {
        let _ = world().device_of(context.addr());
        if port_num == 1 && pkey == 0xffff { 0 } else { -1 }
    }
}

export! { verbs:
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        gid_entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int {
        let world = world();
        let number = world.device_of(context.addr());
        if port_num != 1 || flags != 0 || entry_size != size_of::<ibv_gid_entry>() {
            return Err(libc::EINVAL);
        }
        match entry(&world.devices[number], gid_index as usize, number) {
            Some(found) => {
                arg::write("the entry", gid_entry, found);
                Ok(())
            }
            None => Err(libc::ENODATA),
        }
    }
}

export! { plain:
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize {
        let _ = (flags, entry_size);
        let world = world();
        let number = world.device_of(context.addr());
        let device = &world.devices[number];
        let count = device.addresses.len().min(max_entries);
        for index in 0..count {
            if let Some(found) = entry(device, index, number) {
                arg::write("the table", entries.wrapping_add(index), found);
            }
        }
        isize::try_from(count).unwrap_or(0)
    }
}

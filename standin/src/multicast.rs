#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::time::Instant;

use crate::arg;
use crate::c::{
    ibv_gid, ibv_qp, ibv_qp_type, rdma_cm_event_type, rdma_cm_id, rdma_cm_join_mc_attr_ex,
};
use crate::call::Errno;
use crate::doom::doom;
use crate::gid::{self, bytes_of};
use crate::kernel::State;
use crate::message::{Datagram, Queued, UDP_QKEY};
use crate::poison::zeroed;
use crate::world::{World, changed, wait, window, world};
use libc::sockaddr;

/// A multicast group that an id has joined.
pub(crate) struct Group {
    number: u64,
    address: SocketAddr,
    context: usize,
    send_only: bool,
    /// Whether the library has read that the id has joined, and so knows the group's address.
    known: bool,
    reported: u32,
    acknowledged: u32,
}

impl World {
    fn group_mut(&mut self, id: usize, number: u64) -> Option<&mut Group> {
        let groups = &mut self.ids.find_mut(id)?.groups;
        groups.iter_mut().find(|group| group.number == number)
    }

    pub(crate) fn report_group(&mut self, id: usize, number: u64) {
        if let Some(group) = self.group_mut(id, number) {
            group.reported += 1;
        }
    }

    pub(crate) fn complete_group(&mut self, id: usize, number: u64) {
        if let Some(group) = self.group_mut(id, number) {
            group.acknowledged += 1;
        }
        changed();
    }

    /// What the program gave with the join.
    pub(crate) fn group_context(&self, id: usize, number: u64) -> Option<*const c_void> {
        let groups = &self.ids.find(id)?.groups;
        let group = groups.iter().find(|group| group.number == number)?;
        Some(std::ptr::with_exposed_provenance(group.context))
    }

    /// The library attaches the queue pair when it reads that the id has joined.
    pub(crate) fn joined(&mut self, queued: &Queued) -> Result<(), Errno> {
        let (id, qp) = (queued.id, self.id(queued.id).qp());
        let Some(group) = queued.group.and_then(|number| self.group_mut(id, number)) else {
            return Ok(());
        };
        group.known = true;
        if qp == 0 || group.send_only {
            return Ok(());
        }
        let gid = bytes_of(&gid::gid_of(group.address.ip()));
        self.qp_mut(qp).attached.push(gid);
        Ok(())
    }

    fn join(
        &mut self,
        id: usize,
        address: SocketAddr,
        send_only: bool,
        context: *mut c_void,
    ) -> Result<(), Errno> {
        let iwarp = self.is_iwarp(id);
        let number = u64::from(self.number());
        let found = self.kernel_id(id)?;
        if !found.is_datagram() || found.device.is_none() || found.state == State::Idle {
            return Err(libc::EINVAL);
        }
        if iwarp {
            return Err(libc::ENOSYS);
        }
        if address.is_ipv6() {
            // The kernel's ENOTSUPP, which leaks out.
            return Err(524);
        }
        found.groups.push(Group {
            number,
            address,
            context: context.expose_provenance(),
            send_only,
            known: false,
            reported: 0,
            acknowledged: 0,
        });
        let mut ah_attr: crate::c::ibv_ah_attr = zeroed();
        ah_attr.is_global = 1;
        ah_attr.port_num = 1;
        ah_attr.grh.dgid = gid::gid_of(address.ip());
        let event = rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_JOIN;
        let mut queued = Queued::new(id, event, 0).datagram(Datagram {
            private_data: Vec::new(),
            ah_attr,
            qp_num: 0x00ff_ffff,
            qkey: UDP_QKEY,
        });
        queued.group = Some(number);
        self.push(queued);
        Ok(())
    }
}

const SEND_ONLY: u32 = 1;

export! { rdma:
    fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int {
        let address = arg::address(addr)?;
        world().join(id.addr(), address, false, context)
    }

    fn rdma_join_multicast_ex(
        id: *mut rdma_cm_id,
        mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
        context: *mut c_void,
    ) -> c_int {
        let attr = arg::read("the attributes", mc_join_attr.cast_const());
        if attr.comp_mask >= 4 {
            return Err(libc::EOPNOTSUPP);
        }
        if attr.comp_mask != 3 || attr.join_flags > SEND_ONLY {
            return Err(libc::EINVAL);
        }
        let address = arg::address(attr.addr)?;
        world().join(id.addr(), address, attr.join_flags == SEND_ONLY, context)
    }

    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
        let group_address = arg::address(addr)?;
        let address = id.addr();
        let world = world();
        world.id(address);
        let mut world = window(world, address, "rdma_leave_multicast", true, false);
        let found = world.kernel_id(address)?;
        let joined = |group: &Group| group.address == group_address;
        let Some(place) = found.groups.iter().position(joined) else {
            return Err(libc::EADDRNOTAVAIL);
        };
        let (number, file, qp) = (found.groups[place].number, found.file, found.qp());
        // Whatever queue pair the id has now, and whoever has attached it.
        let detaches = found.groups[place].known && !found.groups[place].send_only;
        if let Some(qp) = world.qps.find_mut(qp).filter(|_| detaches) {
            let gid = bytes_of(&gid::gid_of(group_address.ip()));
            qp.detach(gid);
        }
        let removed = world.id(address).device.is_some_and(|device| world.devices[device].removed);
        if removed {
            let queued = world.withdraw(file, |queued| queued.group == Some(number));
            if !queued.is_empty() {
                doom!(
                    "leaves a group of a removed device while an event of it is queued, which will point to freed memory"
                );
            }
            world.id_mut(address).groups.remove(place);
            return Err(libc::ENXIO);
        }
        world.withdraw(file, |queued| queued.group == Some(number));
        let since = Instant::now();
        while let Some(group) = world.group_mut(address, number) {
            let (reported, acknowledged) = (group.reported, group.acknowledged);
            if acknowledged >= reported {
                break;
            }
            world = wait(world, since, || {
                format!("{reported} events of the group were handed out and {acknowledged} acknowledged")
            });
        }
        world.id_mut(address).groups.retain(|group| group.number != number);
        Ok(())
    }
}

export! { verbs:
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
        let _ = lid;
        let gid = bytes_of(&arg::read("the address", gid));
        let mut world = world();
        let found = world.qp_mut(qp.addr());
        if found.kind != ibv_qp_type::IBV_QPT_UD || !gid::is_multicast(gid) {
            return Err(libc::EINVAL);
        }
        found.attached.push(gid);
        Ok(())
    }

    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
        let _ = lid;
        let gid = bytes_of(&arg::read("the address", gid));
        if world().qp_mut(qp.addr()).detach(gid) {
            Ok(())
        } else {
            Err(libc::EINVAL)
        }
    }
}

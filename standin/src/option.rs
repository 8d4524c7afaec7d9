#![expect(unsafe_code, reason = "exports C symbols")]
//! Options, ports, notifications and ECE of ids.

use std::ffi::{c_int, c_void};

use crate::arg;
use crate::c::{ibv_ece, ibv_event_type, rdma_cm_event_type, rdma_cm_id};
use crate::kernel::State;
use crate::message::Queued;
use crate::world::world;

/// The level of an id's own options, and the options: type of service, reuse, AF only, ACK time-out.
const LEVEL_ID: c_int = 0;
const TOS: c_int = 0;
const REUSE: c_int = 1;
const AF_ONLY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;

export! { rdma:
    fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        optname: c_int,
        optval: *mut c_void,
        optlen: usize,
    ) -> c_int {
        let mut world = world();
        let found = world.kernel_id(id.addr())?;
        if level != LEVEL_ID {
            return Err(libc::ENOSYS);
        }
        let value = arg::bytes(optval.cast_const().cast(), optlen);
        let on = value.iter().any(|byte| *byte != 0);
        match (optname, optlen) {
            (TOS, 1) => Ok(()),
            (REUSE, 4) => {
                if found.state != State::Idle {
                    return Err(libc::EINVAL);
                }
                found.reuse = on;
                Ok(())
            }
            (AF_ONLY, 4) => {
                if !matches!(found.state, State::Idle | State::Bound) {
                    return Err(libc::EINVAL);
                }
                Ok(())
            }
            (ACK_TIMEOUT, 1) => {
                if value[0] > 31 || found.is_datagram() {
                    return Err(libc::EINVAL);
                }
                Ok(())
            }
            (TOS | REUSE | AF_ONLY | ACK_TIMEOUT, _) => Err(libc::EINVAL),
            _ => Err(libc::ENOSYS),
        }
    }

    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
        let mut world = world();
        let found = world.kernel_id(id.addr())?;
        if found.device.is_none() || !found.state.is_connection() {
            return Err(libc::EINVAL);
        }
        // Communication established: the confirmation was lost and data has come.
        if event == ibv_event_type::IBV_EVENT_COMM_EST && found.state == State::Answered {
            found.state = State::Established;
            let established = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
            world.push(Queued::new(id.addr(), established, 0));
        }
        Ok(())
    }

    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        if id.is_null() || ece.is_null() {
            return Err(libc::EINVAL);
        }
        let ece = arg::read("the ECE", ece.cast_const());
        let mut world = world();
        let found = world.id_mut(id.addr());
        if found.qp() != 0 || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(libc::EINVAL);
        }
        found.local_ece = ece;
        Ok(())
    }

    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        if id.is_null() || ece.is_null() {
            return Err(libc::EINVAL);
        }
        let world = world();
        let found = world.id(id.addr());
        if found.qp() != 0 {
            return Err(libc::EINVAL);
        }
        arg::write("the ECE", ece, found.remote_ece);
        Ok(())
    }
}

export! { plain:
    fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
        let world = world();
        world.id(id.addr()).local.map_or(0, |local| local.port().to_be())
    }

    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
        let world = world();
        world.id(id.addr()).peer_address.map_or(0, |peer| peer.port().to_be())
    }
}

export_extra! { rdma:
    fn rdma_write_cm_event(id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64) -> c_int {
        let _ = arg;
        // RDMA_CM_EVENT_USER is the only one that programs may write.
        if event.0 != 18 {
            return Err(libc::EINVAL);
        }
        let mut world = world();
        world.kernel_id(id.addr())?;
        world.push(Queued::new(id.addr(), event, status));
        Ok(())
    }
}

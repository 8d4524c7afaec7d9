#![expect(unsafe_code, reason = "exports C symbols")]
//! Functions that programs link to and the stand-in does not carry out.

use std::ffi::{c_char, c_int, c_void};

use crate::c::{
    ibv_ah_attr, ibv_context, ibv_dm, ibv_ece, ibv_event_type, ibv_fork_status, ibv_mr,
    ibv_node_type, ibv_pd, ibv_port_state, ibv_qp, ibv_qp_init_attr, ibv_rate, ibv_wc_status,
    ibv_wr_opcode, rdma_addrinfo, rdma_cm_id,
};
use crate::doom::doom;

export! { rdma:
    fn rdma_create_ep(
        id: *mut *mut rdma_cm_id,
        res: *mut rdma_addrinfo,
        pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> c_int {
        let _ = (id, res, pd, qp_init_attr);
        doom!("makes a synchronous id, which waits inside the library");
    }

    fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
        let _ = (listen, id);
        // The id is not synchronous, since there are none.
        Err(libc::EINVAL)
    }
}

export! { plain:
    fn rdma_destroy_ep(id: *mut rdma_cm_id) {
        let _ = id;
        doom!("ends a synchronous id, and there are none");
    }

    fn ibv_unimport_pd(pd: *mut ibv_pd) {
        let _ = pd;
    }

    fn ibv_unimport_mr(mr: *mut ibv_mr) {
        let _ = mr;
    }

    fn ibv_unimport_dm(dm: *mut ibv_dm) {
        let _ = dm;
    }

    fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
        let _ = status;
        c"a status".as_ptr()
    }

    fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
        let _ = node_type;
        c"a node".as_ptr()
    }

    fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char {
        let _ = port_state;
        c"a state".as_ptr()
    }

    fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
        let _ = event;
        c"an event".as_ptr()
    }

    fn ibv_is_fork_initialized() -> ibv_fork_status {
        ibv_fork_status::IBV_FORK_UNNEEDED
    }

    fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
        let _ = mult;
        ibv_rate::IBV_RATE_MAX
    }

    fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
        let _ = mbps;
        ibv_rate::IBV_RATE_MAX
    }
}

export! { count:
    fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
        let _ = rate;
        -1
    }

    fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
        let _ = rate;
        -1
    }

    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int {
        let _ = (qp, op, flags);
        0
    }
}

export! { verbs:
    fn ibv_fork_init() -> c_int {
        Ok(())
    }

    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
        let _ = (qp, ece);
        Err(libc::EOPNOTSUPP)
    }

    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
        let _ = (qp, ece);
        Err(libc::EOPNOTSUPP)
    }

    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int {
        let _ = (mr, flags, pd, addr, length, access);
        Err(libc::EOPNOTSUPP)
    }

    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context,
        attr: *mut ibv_ah_attr,
        eth_mac: *mut u8,
        vid: *mut u16,
    ) -> c_int {
        let _ = (context, attr, eth_mac, vid);
        Err(libc::EOPNOTSUPP)
    }
}

export! { pointer:
    fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
        let _ = cmd_fd;
        Err(libc::EOPNOTSUPP)
    }

    fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
        let _ = (context, pd_handle);
        Err(libc::EOPNOTSUPP)
    }

    fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
        let _ = (pd, mr_handle);
        Err(libc::EOPNOTSUPP)
    }

    fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
        let _ = (context, dm_handle);
        Err(libc::EOPNOTSUPP)
    }
}

#![expect(unsafe_code, reason = "exports C symbols")]
//! Queue pairs of ids: what librdmacm does with them.

use std::ffi::c_int;

use crate::arg;
use crate::c::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_INIT_ATTR_PD, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QP_TIMEOUT, ibv_mtu, ibv_pd, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_state, ibv_qp_type, rdma_cm_id,
};
use crate::call::Errno;
use crate::doom::doom;
use crate::kernel::State;
use crate::message::UDP_QKEY;
use crate::poison::zeroed;
use crate::qp;
use crate::world::{World, world};

impl World {
    /// What the kernel says a queue pair of an id should be like in a state.
    pub(crate) fn attributes(
        &mut self,
        id: usize,
        state: ibv_qp_state,
    ) -> Result<(ibv_qp_attr, ibv_qp_attr_mask), Errno> {
        let iwarp = self.is_iwarp(id);
        let found = self.kernel_id(id)?;
        if found.device.is_none() {
            return Err(libc::EINVAL);
        }
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = state;
        attr.port_num = 1;
        attr.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        if found.is_datagram() {
            attr.qkey = UDP_QKEY;
            return Ok((attr, init | IBV_QP_QKEY));
        }
        if iwarp {
            let mask = if state == ibv_qp_state::IBV_QPS_RTS {
                0
            } else {
                IBV_QP_STATE | IBV_QP_ACCESS_FLAGS
            };
            return Ok((attr, mask));
        }
        let ended = found.state == State::Ended;
        if ended || (found.state == State::Requested && found.peer.is_none()) {
            return Err(libc::EINVAL);
        }
        if !found.state.is_connection() || state == ibv_qp_state::IBV_QPS_INIT {
            return Ok((attr, init | IBV_QP_ACCESS_FLAGS));
        }
        attr.path_mtu = ibv_mtu::IBV_MTU_1024;
        attr.dest_qp_num = found.heard.qp_num;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.min_rnr_timer = 0;
        attr.timeout = 14;
        attr.retry_cnt = found.heard.retry_count;
        attr.rnr_retry = found.heard.rnr_retry_count;
        attr.max_dest_rd_atomic = found.heard.responder_resources;
        attr.max_rd_atomic = found.heard.initiator_depth;
        if state == ibv_qp_state::IBV_QPS_RTR {
            let mask = IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER;
            return Ok((attr, mask));
        }
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        Ok((attr, mask))
    }

    /// Moves the queue pair on an id, if there is one, to INIT again and to RTR.
    pub(crate) fn qp_to_rtr(&mut self, id: usize, depth: Option<u8>) -> Result<(), Errno> {
        let qp = self.id(id).qp();
        if qp == 0 {
            return Ok(());
        }
        let (attr, mask) = self.attributes(id, ibv_qp_state::IBV_QPS_INIT)?;
        qp::modify(self, qp, &attr, mask)?;
        let (mut attr, mask) = self.attributes(id, ibv_qp_state::IBV_QPS_RTR)?;
        if let Some(depth) = depth {
            attr.max_dest_rd_atomic = depth;
        }
        qp::modify(self, qp, &attr, mask)
    }

    /// Moves the queue pair on an id, if there is one, to RTS.
    pub(crate) fn qp_to_rts(&mut self, id: usize, depth: Option<u8>) -> Result<(), Errno> {
        let qp = self.id(id).qp();
        if qp == 0 {
            return Ok(());
        }
        let (mut attr, mask) = self.attributes(id, ibv_qp_state::IBV_QPS_RTS)?;
        if let Some(depth) = depth {
            attr.max_rd_atomic = depth;
        }
        qp::modify(self, qp, &attr, mask)
    }

    /// Moves the queue pair on an id, if there is one, to a state that needs nothing else.
    pub(crate) fn modify_on(&mut self, id: usize, state: ibv_qp_state) -> Result<(), Errno> {
        let qp = self.id(id).qp();
        if qp == 0 {
            return Ok(());
        }
        let mut attr: ibv_qp_attr = zeroed();
        attr.qp_state = state;
        qp::modify(self, qp, &attr, IBV_QP_STATE)
    }

    pub(crate) fn qp_to_error(&mut self, id: usize) {
        let _ = self.modify_on(id, ibv_qp_state::IBV_QPS_ERR);
    }

    fn create_qp(&mut self, id: usize, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
        let found = self.id(id);
        if found.qp() != 0 {
            return Err(libc::EINVAL);
        }
        let (own, verbs, datagram) = found.c.look(|c| (c.pd, c.verbs, c.qp_type));
        let datagram = datagram == ibv_qp_type::IBV_QPT_UD;
        if verbs.is_null() {
            doom!("the id has no device: would make a queue pair on a null pointer");
        }
        if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
            attr.pd = own;
        } else if self.pd(attr.pd.addr()).c.look(|c| c.context) != verbs {
            return Err(libc::EINVAL);
        }
        if attr.send_cq.is_null() || attr.recv_cq.is_null() {
            doom!("leaves a completion queue to librdmacm, which makes one of its own");
        }
        let qp = qp::create(self, attr.pd.addr(), attr)?;
        let initialised = self.init_qp(id, qp, datagram);
        if let Err(errno) = initialised {
            qp::end(self, qp);
            return Err(errno);
        }
        let raw = self.qp(qp).c.raw().cast();
        self.qp_mut(qp).id = Some(id);
        let pd = attr.pd;
        self.id(id).c.edit(|c| {
            c.qp = raw;
            c.pd = pd;
        });
        Ok(())
    }

    fn init_qp(&mut self, id: usize, qp: usize, datagram: bool) -> Result<(), Errno> {
        let (mut attr, mask) = self.attributes(id, ibv_qp_state::IBV_QPS_INIT)?;
        qp::modify(self, qp, &attr, mask)?;
        if datagram {
            attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
            qp::modify(self, qp, &attr, IBV_QP_STATE)?;
            attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
            qp::modify(self, qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN)?;
        }
        Ok(())
    }
}

/// The extended attributes that begin with the plain ones.
fn extended(attr: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd,
        ..ibv_qp_init_attr_ex::default()
    }
}

export! { rdma:
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> c_int {
        let mut plain = arg::read("the attributes", qp_init_attr.cast_const());
        let mut attr = extended(&plain, pd);
        let created = world().create_qp(id.addr(), &mut attr);
        plain.cap = attr.cap;
        arg::write("the attributes", qp_init_attr, plain);
        created
    }

    fn rdma_create_qp_ex(id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex) -> c_int {
        let mut attr = arg::read("the attributes", qp_init_attr.cast_const());
        let created = world().create_qp(id.addr(), &mut attr);
        arg::write("the attributes", qp_init_attr, attr);
        created
    }

    fn rdma_init_qp_attr(id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int) -> c_int {
        let asked = arg::read("the attributes", qp_attr.cast_const());
        let (attr, mask) = world().attributes(id.addr(), asked.qp_state)?;
        arg::write("the attributes", qp_attr, attr);
        arg::write("the mask", qp_attr_mask, c_int::try_from(mask).unwrap_or(0));
        Ok(())
    }
}

export! { plain:
    fn rdma_destroy_qp(id: *mut rdma_cm_id) {
        let world = world();
        let qp = world.id(id.addr()).qp();
        if qp == 0 {
            doom!("there is no queue pair on the id: would follow the null pointer id->qp");
        }
        // The result is lost, as in C.
        let (world, _) = qp::destroy(world, qp);
        world.id(id.addr()).c.edit(|c| c.qp = std::ptr::null_mut());
    }
}

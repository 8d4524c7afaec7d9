#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::VecDeque;
use std::ffi::c_int;

use crate::abi::{Posts, SIDES};
use crate::arg;
use crate::c::{
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_INIT_ATTR_PD, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_STATE,
    IBV_QP_TIMEOUT, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_state, ibv_qp_type, ibv_send_wr, ibv_sge,
};
use crate::call::Errno;
use crate::device::present;
use crate::doom::doom;
use crate::inject;
use crate::orders::{Hold, Orders};
use crate::poison::{Obj, zeroed};
use crate::world::{World, world};

/// A receive that is posted.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) pieces: Vec<ibv_sge>,
    pub(crate) hold: Hold,
}

/// A send that is posted and has not completed.
pub(crate) struct Send {
    pub(crate) wr: ibv_send_wr,
    pub(crate) pieces: Vec<ibv_sge>,
    /// What was copied out of the pieces at once.
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) hold: Hold,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) c: Obj<ibv_qp>,
    pub(crate) number: u32,
    pub(crate) pd: usize,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: Option<usize>,
    /// The id that librdmacm has made it on.
    pub(crate) id: Option<usize>,
    pub(crate) kind: ibv_qp_type,
    pub(crate) all_signaled: bool,
    pub(crate) init: ibv_qp_init_attr,
    pub(crate) attr: ibv_qp_attr,
    /// The queue pair at the other end, by number.
    pub(crate) remote: u32,
    pub(crate) sends: VecDeque<Send>,
    pub(crate) receives: VecDeque<Receive>,
    /// To how many groups it is attached.
    pub(crate) attached: u32,
    /// What a test asks of it, and what was posted.
    pub(crate) orders: Orders,
    pub(crate) posts: [Posts; SIDES],
}

impl Qp {
    pub(crate) fn state(&self) -> ibv_qp_state {
        self.attr.qp_state
    }

    /// Whether a request that uses the memory of this key is posted.
    pub(crate) fn posts_with(&self, key: u32) -> bool {
        let uses = |pieces: &[ibv_sge]| pieces.iter().any(|sge| sge.lkey == key);
        self.sends
            .iter()
            .any(|send| send.inline.is_none() && uses(&send.pieces))
            || self.receives.iter().any(|receive| uses(&receive.pieces))
    }
}

/// Makes a queue pair in a domain.
pub(crate) fn create(
    world: &mut World,
    pd: usize,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<usize, Errno> {
    let (device, context) = {
        let pd = world.pd(pd);
        (pd.device, pd.c.look(|c| c.context))
    };
    present(world, device)?;
    for cq in [attr.send_cq, attr.recv_cq] {
        if world.cq(cq.addr()).device != device {
            return Err(libc::EINVAL);
        }
    }
    let limits = &world.devices[device].attr;
    let most = u32::try_from(limits.max_qp_wr).unwrap_or(0);
    let pieces = u32::try_from(limits.max_sge).unwrap_or(0);
    let cap = &attr.cap;
    if cap.max_send_wr > most
        || cap.max_recv_wr > most
        || cap.max_send_sge > pieces
        || cap.max_recv_sge > pieces
        || cap.max_inline_data > 512
    {
        return Err(libc::EINVAL);
    }
    let number = world.number();
    let mut c: ibv_qp = zeroed();
    c.context = context;
    c.qp_context = attr.qp_context;
    c.pd = world.pd(pd).c.raw();
    c.send_cq = attr.send_cq;
    c.recv_cq = attr.recv_cq;
    c.srq = attr.srq;
    c.handle = number;
    c.qp_num = number;
    c.qp_type = attr.qp_type;
    let srq = (!attr.srq.is_null()).then(|| attr.srq.addr());
    if let Some(srq) = srq {
        world.srq_mut(srq).users += 1;
    }
    world.pd_mut(pd).users += 1;
    world.cq_mut(attr.send_cq.addr()).users += 1;
    world.cq_mut(attr.recv_cq.addr()).users += 1;
    let c = Obj::new(c);
    let address = c.address();
    let qp = Qp {
        c,
        number,
        pd,
        send_cq: attr.send_cq.addr(),
        recv_cq: attr.recv_cq.addr(),
        srq,
        id: None,
        kind: attr.qp_type,
        all_signaled: attr.sq_sig_all != 0,
        init: ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        },
        attr: zeroed(),
        remote: 0,
        sends: VecDeque::new(),
        receives: VecDeque::new(),
        attached: 0,
        orders: world.orders.clone(),
        posts: [Posts::default(); SIDES],
    };
    world.qps.insert(address, qp);
    world.numbers.insert(number, address);
    Ok(address)
}

/// Destroys a queue pair, unless a thread is about to use it through its id.
pub(crate) fn destroy(world: &mut World, address: usize) -> Result<(), Errno> {
    let qp = world.qp(address);
    if qp.attached > 0 {
        return Err(libc::EBUSY);
    }
    if let Some(id) = qp.id.and_then(|id| world.ids.find(id)) {
        if let Some(window) = id.windows.iter().find(|window| window.reads_qp) {
            doom!(
                "the queue pair is destroyed while another thread uses it in {}",
                window.call
            );
        }
    }
    if let Some(errno) = world.qp_mut(address).orders.failure() {
        return Err(errno);
    }
    let Some(qp) = world.qps.remove(address) else {
        return Ok(());
    };
    if qp.orders.removes {
        for cq in [qp.send_cq, qp.recv_cq] {
            world.cq_mut(cq).remove(qp.number);
        }
    }
    world.numbers.remove(&qp.number);
    world.pd_mut(qp.pd).users -= 1;
    world.cq_mut(qp.send_cq).users -= 1;
    world.cq_mut(qp.recv_cq).users -= 1;
    if let Some(srq) = qp.srq {
        world.srq_mut(srq).users -= 1;
    }
    world.bury("queue pair", qp.c);
    Ok(())
}

/// What a change of state needs besides the state, for a connected queue pair.
fn needed(to: ibv_qp_state) -> ibv_qp_attr_mask {
    match to {
        ibv_qp_state::IBV_QPS_INIT => IBV_QP_PORT,
        ibv_qp_state::IBV_QPS_RTR => IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_MAX_DEST_RD_ATOMIC,
        ibv_qp_state::IBV_QPS_RTS => {
            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
        }
        _ => 0,
    }
}

fn leads(from: ibv_qp_state, to: ibv_qp_state) -> bool {
    const RESET: ibv_qp_state = ibv_qp_state::IBV_QPS_RESET;
    const INIT: ibv_qp_state = ibv_qp_state::IBV_QPS_INIT;
    const RTR: ibv_qp_state = ibv_qp_state::IBV_QPS_RTR;
    const RTS: ibv_qp_state = ibv_qp_state::IBV_QPS_RTS;
    const SQD: ibv_qp_state = ibv_qp_state::IBV_QPS_SQD;
    const ERR: ibv_qp_state = ibv_qp_state::IBV_QPS_ERR;
    matches!(
        (from, to),
        (_, RESET | ERR)
            | (RESET | INIT, INIT)
            | (INIT, RTR)
            | (RTR | RTS | SQD, RTS)
            | (RTS | SQD, SQD)
    )
}

/// Changes a queue pair, also on behalf of librdmacm.
pub(crate) fn modify(
    world: &mut World,
    address: usize,
    attr: &ibv_qp_attr,
    mask: ibv_qp_attr_mask,
) -> Result<(), Errno> {
    if let Some(failure) = inject::failure("ibv_modify_qp") {
        return Err(failure.errno);
    }
    let qp = world.qp(address);
    let device = world.pd(qp.pd).device;
    let iwarp = world.devices[device].is_iwarp();
    let to = if mask & IBV_QP_STATE != 0 {
        attr.qp_state
    } else {
        qp.state()
    };
    let plain = qp.kind == ibv_qp_type::IBV_QPT_UD || iwarp;
    let from = qp.state();
    if mask & IBV_QP_STATE != 0 {
        if !leads(from, to) {
            return Err(libc::EINVAL);
        }
        let settled = from == ibv_qp_state::IBV_QPS_RTS && to == from;
        if !plain && !settled && mask & needed(to) != needed(to) {
            return Err(libc::EINVAL);
        }
    } else if mask & IBV_QP_TIMEOUT != 0 {
        // A part of the way to RTS, and no more to be changed there.
        return Err(libc::EINVAL);
    }
    let qp = world.qp_mut(address);
    if mask & IBV_QP_DEST_QPN != 0 {
        qp.remote = attr.dest_qp_num;
        qp.attr.dest_qp_num = attr.dest_qp_num;
    }
    if mask & IBV_QP_MAX_DEST_RD_ATOMIC != 0 {
        qp.attr.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    }
    if mask & IBV_QP_MAX_QP_RD_ATOMIC != 0 {
        qp.attr.max_rd_atomic = attr.max_rd_atomic;
    }
    if mask & IBV_QP_RNR_RETRY != 0 {
        qp.attr.rnr_retry = attr.rnr_retry;
    }
    if mask & IBV_QP_RETRY_CNT != 0 {
        qp.attr.retry_cnt = attr.retry_cnt;
    }
    if mask & IBV_QP_TIMEOUT != 0 {
        qp.attr.timeout = attr.timeout;
    }
    if mask & IBV_QP_AV != 0 {
        qp.attr.ah_attr = attr.ah_attr;
    }
    if mask & crate::c::IBV_QP_MIN_RNR_TIMER != 0 {
        qp.attr.min_rnr_timer = attr.min_rnr_timer;
    }
    if mask & crate::c::IBV_QP_QKEY != 0 {
        qp.attr.qkey = attr.qkey;
    }
    world.set_state(address, to);
    Ok(())
}

export! { pointer:
    fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
        let init = arg::read("the attributes", qp_init_attr.cast_const());
        let mut attr = ibv_qp_init_attr_ex {
            qp_context: init.qp_context,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
            comp_mask: IBV_QP_INIT_ATTR_PD,
            pd,
            ..ibv_qp_init_attr_ex::default()
        };
        let mut world = world();
        let qp = create(&mut world, pd.addr(), &mut attr)?;
        Ok(world.qp(qp).c.raw())
    }
}

export! { verbs:
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
        let attr = arg::read("the attributes", attr.cast_const());
        let mask = ibv_qp_attr_mask::try_from(attr_mask).unwrap_or(0);
        modify(&mut world(), qp.addr(), &attr, mask)
    }

    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int {
        let _ = attr_mask;
        let world = world();
        let found = world.qp(qp.addr());
        let mut now = found.attr;
        now.cur_qp_state = now.qp_state;
        now.cap = found.init.cap;
        arg::write("the attributes", attr, now);
        arg::write("the first attributes", init_attr, found.init);
        Ok(())
    }

    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
        destroy(&mut world(), qp.addr())
    }
}

#![expect(unsafe_code, reason = "exports C symbols")]

use std::collections::VecDeque;
use std::ffi::c_int;

use crate::abi::{Posts, SIDES};
use crate::arg;
use crate::asynchronous::{Element, Told, acknowledged};
use crate::c::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_INIT_ATTR_PD,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, ibv_ah, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_state, ibv_qp_type,
    ibv_send_wr, ibv_sge,
};
use crate::call::Errno;
use crate::calls::Calls;
use crate::device::present;
use crate::doom::doom;
use crate::inject;
use crate::orders::{Hold, Orders};
use crate::poison::{Obj, zeroed};
use crate::qp_state;
use crate::world::{Guard, World, world};

/// How much inline data a queue pair can be made for.
const MOST_INLINE: u32 = 256;

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
    /// In every case with the entries for calls, which are null without [`calls`](Self::calls).
    pub(crate) c: Obj<ibv_qp_ex>,
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
    /// The groups that it is attached to.
    pub(crate) attached: Vec<[u8; 16]>,
    /// How many slots are taken: until a completion is polled that says that the request is done.
    pub(crate) used: [u32; SIDES],
    /// How many sends are done and were not to be reported, since the last that was.
    pub(crate) silent: u32,
    /// What is begun on one that was made for calls.
    pub(crate) calls: Option<Calls>,
    /// Its asynchronous events.
    pub(crate) told: Told,
    /// What a test asks of it, and what was posted.
    pub(crate) orders: Orders,
    pub(crate) posts: [Posts; SIDES],
}

impl Qp {
    pub(crate) fn state(&self) -> ibv_qp_state {
        self.attr.qp_state
    }

    /// Leaves a group; false when it was not attached to it.
    pub(crate) fn detach(&mut self, gid: [u8; 16]) -> bool {
        let place = self.attached.iter().position(|attached| *attached == gid);
        place.map(|place| self.attached.remove(place)).is_some()
    }

    /// Whether a datagram is posted that goes by this address handle.
    pub(crate) fn sends_to(&self, ah: *mut ibv_ah) -> bool {
        let uses = |send: &Send| crate::wr::datagram_of(&send.wr).0 == ah;
        self.sends.iter().any(uses)
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
    if !matches!(
        attr.qp_type,
        ibv_qp_type::IBV_QPT_RC | ibv_qp_type::IBV_QPT_UC | ibv_qp_type::IBV_QPT_UD
    ) {
        return Err(libc::EOPNOTSUPP);
    }
    let calls = world.devices[device].skill.grant(attr)?;
    let limits = &world.devices[device].attr;
    let most = u32::try_from(limits.max_qp_wr).unwrap_or(0);
    let pieces = u32::try_from(limits.max_sge).unwrap_or(0);
    let cap = &attr.cap;
    if cap.max_send_wr > most
        || cap.max_recv_wr > most
        || cap.max_send_sge > pieces
        || cap.max_recv_sge > pieces
        || cap.max_inline_data > MOST_INLINE
    {
        return Err(libc::EINVAL);
    }
    let number = world.number();
    let mut c: ibv_qp_ex = zeroed();
    let base = &mut c.qp_base;
    base.context = context;
    base.qp_context = attr.qp_context;
    base.pd = world.pd(pd).c.raw();
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.srq = attr.srq;
    base.handle = number;
    base.qp_num = number;
    base.qp_type = attr.qp_type;
    if calls.is_some() {
        world.devices[device].skill.fill(&mut c);
    }
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
        attached: Vec::new(),
        used: [0; SIDES],
        silent: 0,
        calls,
        told: Told::default(),
        orders: world.orders.clone(),
        posts: [Posts::default(); SIDES],
    };
    world.qps.insert(address, qp);
    world.numbers.insert(number, address);
    Ok(address)
}

/// Destroys a queue pair, once its events are acknowledged.
pub(crate) fn destroy(mut world: Guard, address: usize) -> (Guard, Result<(), Errno>) {
    if let Err(errno) = may_end(&mut world, address) {
        return (world, Err(errno));
    }
    let mut world = acknowledged(world, "queue pair", Element::Qp(address));
    end(&mut world, address);
    (world, Ok(()))
}

/// Whether a queue pair may be destroyed; a thread that is about to use it through its id may not be there.
fn may_end(world: &mut World, address: usize) -> Result<(), Errno> {
    let qp = world.qp(address);
    if !qp.attached.is_empty() {
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
    let number = qp.number;
    if world.has_window(number) {
        // What soft-RoCE of Linux 6.1 does.
        doom!(
            "would wait for ever: the queue pair {number:#x} is destroyed while a memory window is bound by it"
        );
    }
    if let Some(errno) = world.qp_mut(address).orders.failure() {
        return Err(errno);
    }
    Ok(())
}

/// Ends a queue pair of which nobody needs to hear.
pub(crate) fn end(world: &mut World, address: usize) {
    let Some(qp) = world.qps.remove(address) else {
        return;
    };
    world.numbers.remove(&qp.number);
    if qp.orders.removes {
        for cq in [qp.send_cq, qp.recv_cq] {
            for slots in world.cq_mut(cq).remove(qp.number) {
                world.free(slots);
            }
        }
    }
    world.pd_mut(qp.pd).users -= 1;
    world.cq_mut(qp.send_cq).users -= 1;
    world.cq_mut(qp.recv_cq).users -= 1;
    if let Some(srq) = qp.srq {
        world.srq_mut(srq).users -= 1;
    }
    world.bury("queue pair", qp.c);
}

/// Takes over the attributes that a mask names.
macro_rules! keep {
    ($kept:ident, $attr:ident, $mask:ident: $($bit:ident $field:ident,)*) => {$(
        if $mask & $bit != 0 {
            $kept.$field = $attr.$field;
        }
    )*};
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
    let from = qp.state();
    let allowed = if iwarp {
        let late = mask & IBV_QP_STATE == 0 && mask & IBV_QP_TIMEOUT != 0;
        !late && (from == to || qp_state::leads(from, to))
    } else {
        qp_state::is_ok(qp.kind, from, to, mask)
    };
    if !allowed {
        return Err(libc::EINVAL);
    }
    let attr_port = mask & IBV_QP_PORT != 0 && attr.port_num != 1;
    let attr_key = mask & IBV_QP_PKEY_INDEX != 0 && attr.pkey_index != 0;
    if attr_port || attr_key {
        return Err(libc::EINVAL);
    }
    let qp = world.qp_mut(address);
    if mask & IBV_QP_DEST_QPN != 0 {
        qp.remote = attr.dest_qp_num;
    }
    let kept = &mut qp.attr;
    keep!(kept, attr, mask:
        IBV_QP_DEST_QPN dest_qp_num,
        IBV_QP_MAX_DEST_RD_ATOMIC max_dest_rd_atomic,
        IBV_QP_MAX_QP_RD_ATOMIC max_rd_atomic,
        IBV_QP_RNR_RETRY rnr_retry,
        IBV_QP_RETRY_CNT retry_cnt,
        IBV_QP_TIMEOUT timeout,
        IBV_QP_AV ah_attr,
        IBV_QP_MIN_RNR_TIMER min_rnr_timer,
        IBV_QP_QKEY qkey,
        IBV_QP_ACCESS_FLAGS qp_access_flags,
        IBV_QP_PORT port_num,
        IBV_QP_PKEY_INDEX pkey_index,
        IBV_QP_PATH_MTU path_mtu,
        IBV_QP_RQ_PSN rq_psn,
        IBV_QP_SQ_PSN sq_psn,
    );
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
        Ok(world.qp(qp).c.raw().cast())
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
        destroy(world(), qp.addr()).1
    }
}

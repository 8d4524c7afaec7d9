#![expect(
    unsafe_code,
    reason = "exports the symbols by which tests steer and see what is posted by calls"
)]
//! Posting by calls: `ibv_wr_start`, an operation and its data for each request, `ibv_wr_complete`.
//!
//! Stricter than any provider: it ends the process where one of them would crash, wait for ever, or send something else.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use crate::abi::Request;
use crate::arg;
use crate::c::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_atomic_cap,
    ibv_context, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex, ibv_qp_type, ibv_send_wr, ibv_sge,
    ibv_wr_opcode,
};
use crate::call::{self, Errno};
use crate::doom::doom;
use crate::orders::{SEND, Target};
use crate::poison::zeroed;
use crate::post;
use crate::qp::{self, Qp};
use crate::world::{World, world};
use crate::wr;

/// What a device's provider can do with requests that are posted by calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Skill {
    pub(crate) has: bool,
    /// The operations with which no queue pair is made.
    pub(crate) refuses: u64,
    /// The operations whose entries are null, although they are granted.
    pub(crate) lacks: u64,
}

/// What is begun on a queue pair that was made for calls.
#[derive(Default)]
pub(crate) struct Calls {
    granted: u64,
    begun: bool,
    list: Vec<Building>,
}

struct Building {
    wr: ibv_send_wr,
    data: Option<Data>,
}

enum Data {
    Piece(ibv_sge),
    Inline(Vec<u8>),
}

const MESSAGES: u32 = IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_LOCAL_INV;
const RELIABLE: u32 = MESSAGES
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

thread_local! {
    /// Whether this thread is between the ends of a list, where a provider holds its locks.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Ends the process when `name` is called where a provider holds its locks.
pub(crate) fn expect_outside(name: &str) {
    if INSIDE.get() && !name.starts_with("ibv_wr_") {
        INSIDE.set(false);
        doom!(
            "would wait for ever: {name} is called between ibv_wr_start and ibv_wr_complete, where the provider holds its locks"
        );
    }
}

impl Skill {
    /// What is begun on a queue pair that is made with these attributes; none for one that is made in the classic way.
    pub(crate) fn grant(self, attr: &ibv_qp_init_attr_ex) -> Result<Option<Calls>, Errno> {
        if attr.comp_mask == IBV_QP_INIT_ATTR_PD {
            return Ok(None);
        }
        let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if !self.has || attr.comp_mask != known {
            return Err(libc::EOPNOTSUPP);
        }
        let can = match attr.qp_type {
            ibv_qp_type::IBV_QPT_RC => RELIABLE,
            ibv_qp_type::IBV_QPT_UC => MESSAGES,
            _ => return Err(libc::EOPNOTSUPP),
        };
        let granted = attr.send_ops_flags;
        if granted & !u64::from(can) != 0 || granted & self.refuses != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(Some(Calls {
            granted,
            ..Calls::default()
        }))
    }

    /// Fills the entries of a queue pair: all that the provider has, whatever was asked for.
    pub(crate) fn fill(self, c: &mut ibv_qp_ex) {
        let has = |operation: u32| self.lacks & u64::from(operation) == 0;
        c.wr_start = Some(wr_start);
        c.wr_complete = Some(wr_complete);
        c.wr_abort = Some(wr_abort);
        c.wr_set_sge = Some(wr_set_sge);
        c.wr_set_inline_data = Some(wr_set_inline_data);
        c.wr_send = has(IBV_QP_EX_WITH_SEND).then_some(wr_send);
        c.wr_send_imm = has(IBV_QP_EX_WITH_SEND_WITH_IMM).then_some(wr_send_imm);
        c.wr_send_inv = has(IBV_QP_EX_WITH_SEND_WITH_INV).then_some(wr_send_inv);
        c.wr_rdma_write = has(IBV_QP_EX_WITH_RDMA_WRITE).then_some(wr_rdma_write);
        c.wr_rdma_write_imm = has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).then_some(wr_rdma_write_imm);
        c.wr_rdma_read = has(IBV_QP_EX_WITH_RDMA_READ).then_some(wr_rdma_read);
        c.wr_atomic_cmp_swp = has(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP).then_some(wr_atomic_cmp_swp);
        c.wr_atomic_fetch_add =
            has(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD).then_some(wr_atomic_fetch_add);
    }
}

impl World {
    /// What is begun on a queue pair.
    fn calls(&mut self, qp: usize) -> &mut Calls {
        let Some(calls) = &mut self.qp_mut(qp).calls else {
            doom!("the queue pair was not made for calls: would follow a null pointer");
        };
        calls
    }
}

impl Calls {
    /// Ends the process unless a list is begun.
    fn expect_begun(&self) {
        if !self.begun {
            doom!("without ibv_wr_start: would write to a queue that is not locked");
        }
    }

    /// Ends the process when the last request has no data.
    fn expect_data(&self) {
        if self.list.last().is_some_and(|last| last.data.is_none()) {
            doom!("a request has no data: what was in the queue before would be sent");
        }
    }

    /// Sets the data of the last request.
    fn set(&mut self, data: Data) {
        self.expect_begun();
        let Some(last) = self.list.last_mut() else {
            doom!("sets the data of no request");
        };
        if last.data.is_some() {
            doom!("the request has its data already");
        }
        // rxe sends as inline data what has the flag, and nothing else.
        let flag = last.wr.send_flags & IBV_SEND_INLINE != 0;
        if flag != matches!(data, Data::Inline(_)) {
            doom!("the flag IBV_SEND_INLINE and the data of the request do not go together");
        }
        last.data = Some(data);
    }

    /// Gives what was begun, which ends.
    fn end(&mut self) -> Vec<Building> {
        self.expect_begun();
        self.begun = false;
        INSIDE.set(false);
        std::mem::take(&mut self.list)
    }
}

/// Ends the process when a list is begun on a queue pair, whose send queue is locked then.
pub(crate) fn expect_unlocked(qp: &Qp) {
    if qp.calls.as_ref().is_some_and(|calls| calls.begun) {
        doom!("would wait for ever: a list is begun on the queue pair, which holds its lock");
    }
}

/// `ibv_wr_start`.
extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    call::plain("ibv_wr_start", &[qp.addr()], || {
        let mut world = world();
        let calls = world.calls(qp.addr());
        if calls.begun {
            doom!("would wait for ever: a list is begun already");
        }
        calls.begun = true;
        INSIDE.set(true);
    });
}

/// `ibv_wr_abort`.
extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    call::plain("ibv_wr_abort", &[qp.addr()], || {
        world().calls(qp.addr()).end();
    });
}

/// Adds a request with the operation of `flag`.
fn add(
    name: &'static str,
    qp: *mut ibv_qp_ex,
    flag: u32,
    opcode: ibv_wr_opcode,
    fill: impl FnOnce(&mut ibv_send_wr),
) {
    call::plain(name, &[qp.addr()], || {
        let mut world = world();
        let (wr_id, flags) = {
            let found = world.qp(qp.addr());
            found.c.look(|c| (c.wr_id, c.wr_flags))
        };
        let calls = world.calls(qp.addr());
        calls.expect_begun();
        calls.expect_data();
        if calls.granted & u64::from(flag) == 0 {
            doom!("the operation was not asked for: would follow a null pointer");
        }
        let known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
        if flags & !known != 0 {
            doom!("flags that nobody knows: {flags:#x}");
        }
        let mut wr: ibv_send_wr = zeroed();
        wr.wr_id = wr_id;
        wr.send_flags = flags;
        wr.opcode = opcode;
        fill(&mut wr);
        calls.list.push(Building { wr, data: None });
    });
}

extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    let (flag, opcode) = (IBV_QP_EX_WITH_SEND, ibv_wr_opcode::IBV_WR_SEND);
    add("ibv_wr_send", qp, flag, opcode, |_| {});
}

extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    let flag = IBV_QP_EX_WITH_SEND_WITH_IMM;
    let opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
    add("ibv_wr_send_imm", qp, flag, opcode, |wr| {
        wr::set_imm(wr, imm)
    });
}

extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, key: u32) {
    let flag = IBV_QP_EX_WITH_SEND_WITH_INV;
    let opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
    add("ibv_wr_send_inv", qp, flag, opcode, |wr| {
        wr::set_imm(wr, key)
    });
}

extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    let flag = IBV_QP_EX_WITH_RDMA_WRITE;
    let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
    add("ibv_wr_rdma_write", qp, flag, opcode, |wr| {
        wr::set_memory(wr, address, key);
    });
}

extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, key: u32, address: u64, imm: u32) {
    let flag = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
    add("ibv_wr_rdma_write_imm", qp, flag, opcode, |wr| {
        wr::set_memory(wr, address, key);
        wr::set_imm(wr, imm);
    });
}

extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    let flag = IBV_QP_EX_WITH_RDMA_READ;
    let opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
    add("ibv_wr_rdma_read", qp, flag, opcode, |wr| {
        wr::set_memory(wr, address, key);
    });
}

extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    key: u32,
    address: u64,
    compare: u64,
    swap: u64,
) {
    let flag = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
    let opcode = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
    add("ibv_wr_atomic_cmp_swp", qp, flag, opcode, |wr| {
        wr::set_atomic(wr, address, key, compare, swap);
    });
}

extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, key: u32, address: u64, add_this: u64) {
    let flag = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    let opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
    add("ibv_wr_atomic_fetch_add", qp, flag, opcode, |wr| {
        wr::set_atomic(wr, address, key, add_this, 0);
    });
}

extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    call::plain("ibv_wr_set_sge", &[qp.addr()], || {
        let piece = ibv_sge { addr, length, lkey };
        world().calls(qp.addr()).set(Data::Piece(piece));
    });
}

extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, bytes: *mut c_void, length: usize) {
    call::plain("ibv_wr_set_inline_data", &[qp.addr()], || {
        let bytes = arg::bytes(bytes.cast_const().cast(), length);
        world().calls(qp.addr()).set(Data::Inline(bytes));
    });
}

/// `ibv_wr_complete`: all of the list, or nothing.
extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    call::verbs("ibv_wr_complete", &[qp.addr()], || {
        let mut world = world();
        world.tick();
        let calls = world.calls(qp.addr());
        calls.expect_data();
        let list = calls.end();
        let refusal = world.refusal(Target::Qp(qp.addr()), SEND);
        let found = world.qp_mut(qp.addr());
        let sends: Vec<_> = list
            .into_iter()
            .map(|Building { mut wr, data }| {
                wr.num_sge = 1;
                match data {
                    Some(Data::Piece(piece)) => (wr, vec![piece], None),
                    Some(Data::Inline(bytes)) => (wr, Vec::new(), Some(bytes)),
                    None => (wr, Vec::new(), None),
                }
            })
            .collect();
        found.posts[SEND].add(sends.len());
        let (taken, result) = match refusal {
            // As on rxe: what is in the queue stays there when the device cannot be woken.
            Some(refusal) => (sends.len().min(refusal.taken as usize), Err(refusal.errno)),
            None => {
                let wrong = sends
                    .iter()
                    .enumerate()
                    .find_map(|(ahead, (wr, pieces, inline))| {
                        post::check_send(found, ahead, wr, pieces, inline.as_ref().map(Vec::len))
                    });
                match wrong {
                    Some(errno) => (0, Err(errno)),
                    None => (sends.len(), Ok(())),
                }
            }
        };
        for (wr, pieces, inline) in sends.into_iter().take(taken) {
            post::push(found, wr, pieces, inline);
        }
        world.work(qp.addr());
        result
    })
}

/// `ibv_create_qp_ex`, for what `ibv_create_qp` cannot do.
pub(crate) extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    call::pointer("ibv_create_qp_ex", &[context.addr(), attr.addr()], || {
        let mut init = arg::read("the attributes", attr.cast_const());
        let mut world = world();
        if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || init.pd.is_null() {
            return Err(libc::EINVAL);
        }
        if world.pd(init.pd.addr()).c.look(|c| c.context) != context {
            doom!("the domain is of another device");
        }
        let qp = qp::create(&mut world, init.pd.addr(), &mut init)?;
        arg::write("the attributes", attr, init);
        Ok(world.qp(qp).c.raw().cast())
    })
}

export! { plain:
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
        let world = world();
        let found = world.qp(qp.addr());
        if found.calls.is_none() {
            // Providers that have no calls have no room for the flag.
            doom!("the queue pair was made in the classic way: would read behind the end of its structure");
        }
        found.c.raw()
    }
}

control! {
    /// What a device's provider can do by calls.
    fn standin_calls(device: usize, has: c_int, refuses: u64, lacks: u64) {
        world().devices[device].skill = Skill { has: has != 0, refuses, lacks };
    }

    /// Whether a device has atomics (`ibv_atomic_cap`).
    fn standin_atomics(device: usize, cap: u32) {
        world().devices[device].attr.atomic_cap = ibv_atomic_cap(cap);
    }

    /// Reads what a request says that is posted to a queue pair and not complete: 1, or 0 when there is none at `place`.
    fn standin_request(qp: usize, place: usize, request: *mut Request) -> c_int {
        let world = world();
        let Some(send) = world.qp(qp).sends.get(place) else {
            return 0;
        };
        let mut told = Request {
            wr_id: send.wr.wr_id,
            opcode: send.wr.opcode.0,
            flags: send.wr.send_flags,
            ..Request::default()
        };
        match send.wr.opcode {
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM
            | ibv_wr_opcode::IBV_WR_SEND_WITH_INV
            | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => told.extra = wr::imm_of(&send.wr),
            _ => {}
        }
        match send.wr.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_WRITE
            | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
            | ibv_wr_opcode::IBV_WR_RDMA_READ => {
                (told.remote_addr, told.rkey) = wr::memory_of(&send.wr);
            }
            ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP | ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                (told.remote_addr, told.rkey, told.compare_add, told.swap) = wr::atomic_of(&send.wr);
            }
            _ => {}
        }
        match &send.inline {
            Some(bytes) => {
                told.length = bytes.len() as u64;
                told.first_byte = bytes.first().map_or(u32::MAX, |byte| (*byte).into());
            }
            None => {
                if let [piece] = send.pieces[..] {
                    (told.addr, told.length, told.lkey) = (piece.addr, piece.length.into(), piece.lkey);
                }
            }
        }
        arg::write("the request", request, told);
        1
    }
}

#![expect(unsafe_code, reason = "posts requests by the calls of a provider")]
//! Posting by calls, `ibv_wr_start` to `ibv_wr_complete`: one for each request and one for its data, in place of a list that the
//! provider walks over.
//!
//! A provider may hold its locks from the first call to the last, that of the completion queue, too. So the calls are made only
//! when everything that they need is there: nothing in between waits, panics, returns or runs the program's code, and a batch
//! that is forgotten has begun nothing.
//!
//! What was read in the providers up to rdma-core 65, beside the manual, and is relied on or kept away from here:
//!
//! - A queue pair that is made for calls takes `ibv_post_send`, too, but not between the two ends of a list. mlx5 makes its send
//!   queue as large as the operations need that were asked for: those on memory windows are asked for because they are posted
//!   in the classic way, which does not look whether they fit.
//! - bnxt takes every operation that is asked for, leaves the entries of those that it lacks null, and puts a wrong header before
//!   all but the last request of a list. Such a queue pair posts in the classic way: an entry that is missing says that its
//!   provider is not to be relied on.
//! - rxe sends inline data only with `IBV_SEND_INLINE` in the flags, which others do without. Up to rdma-core 63.0 its call for
//!   several pieces counts the length of the first for all: what is posted here has one piece.
//! - The manual says that nothing was posted when `ibv_wr_complete` fails. rxe has put the requests into the device's queue when
//!   the call that wakes the device fails, and the device finds them the next time that it is woken. So, as for a post that fails
//!   without a name, all of them count as posted.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use rdma_sys::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, ibv_qp,
    ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_type, ibv_send_wr, ibv_wr_opcode,
};

use super::pd::ProtectionDomain;
use super::wr_list::Entry;
use crate::error::Result;

/// Operations of a connected queue pair of either kind.
const MESSAGES: u32 = IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
const ATOMICS: u32 = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
/// Posted in the classic way only.
const WINDOWS: u32 = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;

/// A queue pair that was just made in C, and how lists of requests are posted to it.
#[derive(Debug)]
pub(crate) struct Made {
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) calls: Option<Calls>,
}

/// A queue pair whose requests are posted by calls.
///
/// # Invariants
///
/// It leads to a queue pair that has every entry that [`post`](Self::post) calls for a request of its type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls(NonNull<ibv_qp_ex>);

impl From<NonNull<ibv_qp>> for Made {
    /// Lists are posted in the classic way.
    fn from(raw: NonNull<ibv_qp>) -> Self {
        Self { raw, calls: None }
    }
}

impl Made {
    pub(crate) fn raw(&self) -> NonNull<ibv_qp> {
        self.raw
    }
}

/// What is posted by calls to a queue pair of this type.
fn operations(pd: &ProtectionDomain, qp_type: ibv_qp_type) -> u32 {
    if qp_type != ibv_qp_type::IBV_QPT_RC {
        return MESSAGES;
    }
    // With one operation that the device lacks, there is no queue pair.
    let atomics = if pd.context().limits().atomics().is_supported() {
        ATOMICS
    } else {
        0
    };
    MESSAGES | IBV_QP_EX_WITH_RDMA_READ | atomics
}

/// The extended attributes that begin with the plain ones.
fn extended(
    pd: &ProtectionDomain,
    attr: &ibv_qp_init_attr,
    operations: u32,
) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: pd.as_raw(),
        send_ops_flags: operations.into(),
        ..ibv_qp_init_attr_ex::default()
    }
}

/// Makes a connected queue pair: by `by_calls` if the provider can post by calls what this crate posts, else by `classic`, whose
/// error is then the one that counts.
///
/// `by_calls` gives the errno of a failure. The attributes hold the capacities granted afterwards.
///
/// # Safety
///
/// What the two return is a queue pair made with the attributes that they were given.
pub(crate) unsafe fn create(
    pd: &ProtectionDomain,
    attr: &mut ibv_qp_init_attr,
    by_calls: impl Fn(&mut ibv_qp_init_attr_ex) -> Result<NonNull<ibv_qp>, i32>,
    classic: impl FnOnce(&mut ibv_qp_init_attr) -> Result<NonNull<ibv_qp>>,
) -> Result<Made> {
    let operations = operations(pd, attr.qp_type);
    // hns has no calls for windows, and learns so late; rxe has one of them only for unreliable connections. Both have requests of
    // one size.
    let reliable = attr.qp_type == ibv_qp_type::IBV_QPT_RC;
    let without = pd.context().no_window_calls(reliable);
    for windows in [WINDOWS, 0] {
        if windows != 0 && without.load(Ordering::Relaxed) {
            continue;
        }
        let mut with_calls = extended(pd, attr, operations | windows);
        match by_calls(&mut with_calls) {
            Ok(raw) => {
                attr.cap = with_calls.cap;
                if windows == 0 {
                    without.store(true, Ordering::Relaxed);
                }
                // SAFETY: just made with the operations in its attributes, by the caller's promise.
                let calls = unsafe { Calls::of(raw, operations) };
                return Ok(Made { raw, calls });
            }
            // Anything else is no answer to what was asked for: with less, mlx5 might grant a queue where windows do not fit.
            Err(errno) if errno != libc::EOPNOTSUPP => break,
            Err(_) => {}
        }
    }
    classic(attr).map(Made::from)
}

/// Whether every entry is there that requests of `operations` need.
///
/// # Safety
///
/// `qp` is alive, and nobody writes to its entries.
unsafe fn has_entries(qp: *const ibv_qp_ex, operations: u32) -> bool {
    // Not by a reference: in older libraries the structure ends before its newest entries.
    macro_rules! has {
        ($($entry:ident)*) => {
            // SAFETY: the caller's own obligation.
            $(unsafe { (*qp).$entry }.is_some())&&*
        };
    }
    let ends = has!(wr_start wr_complete wr_set_sge wr_set_inline_data);
    let messages = has!(wr_send wr_send_imm wr_send_inv wr_rdma_write wr_rdma_write_imm);
    let asks = |wanted: u32| operations & wanted != 0;
    let reads = !asks(IBV_QP_EX_WITH_RDMA_READ) || has!(wr_rdma_read);
    let atomics = !asks(ATOMICS) || has!(wr_atomic_cmp_swp wr_atomic_fetch_add);
    ends && messages && reads && atomics
}

impl Calls {
    /// The calls of a queue pair, if it has all that `operations` need.
    ///
    /// # Safety
    ///
    /// The queue pair was made with `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`: the structures of providers that do not know of it may end
    /// before what is looked at.
    unsafe fn of(raw: NonNull<ibv_qp>, operations: u32) -> Option<Self> {
        // SAFETY: `ibv_qp_to_qp_ex` wants a queue pair inside a structure of the library's, by the caller's promise.
        let qp = NonNull::new(unsafe { rdma_sys::ibv_qp_to_qp_ex(raw.as_ptr()) })?;
        // SAFETY: the library gave it; the entries were written before the queue pair was given out.
        let is_whole = unsafe { has_entries(qp.as_ptr(), operations) };
        // INVARIANT: just looked.
        is_whole.then_some(Self(qp))
    }

    /// Posts a list: returns what `ibv_wr_complete` did.
    ///
    /// Calls `ibv_wr_start`, for each request its operation and `ibv_wr_set_sge` or `ibv_wr_set_inline_data`, and
    /// `ibv_wr_complete` ([man 3](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)).
    ///
    /// # Safety
    ///
    /// As for `ibv_post_send`. The queue pair is alive, and nobody else posts to it. Each request of the list was filled by a
    /// [`Work`](super::work::Work) or a [`Fetch`](super::work::Fetch), and is of the queue pair's type.
    // Out of line, so that adding to a batch stays in line.
    #[inline(never)]
    pub(super) unsafe fn post(self, list: &[Entry]) -> i32 {
        let qp = self.0.as_ptr();
        // SAFETY: the queue pair is alive (the caller), and has the entry (the invariant). The list ends below, on this thread.
        unsafe { rdma_sys::ibv_wr_start(qp) };
        for entry in list {
            // SAFETY: a list is begun, and the caller vouches for the request.
            unsafe { add(qp, entry) };
        }
        // SAFETY: a list is begun; the memory of its requests is the caller's promise.
        unsafe { rdma_sys::ibv_wr_complete(qp) }
    }
}

/// Adds a request to the list that is begun. It neither panics nor unwinds.
///
/// # Safety
///
/// As for [`Calls::post`], whose invariant holds for `qp`.
#[inline(always)]
unsafe fn add(qp: *mut ibv_qp_ex, entry: &Entry) {
    let Entry { wr, sge } = entry;
    // SAFETY: the structure is alive, and the caller is the only one who posts.
    unsafe { (*qp).wr_id = wr.wr_id };
    // SAFETY: as above.
    unsafe { (*qp).wr_flags = wr.send_flags };
    let is_inline = wr.send_flags & rdma_sys::IBV_SEND_INLINE != 0;
    if is_inline || wr.opcode != ibv_wr_opcode::IBV_WR_SEND {
        // SAFETY: the caller's own obligation.
        return unsafe { add_other(qp, entry) };
    }
    // SAFETY: a list is begun, and the entry is there: a send is of every type.
    unsafe { rdma_sys::ibv_wr_send(qp) };
    // SAFETY: a request was added, whose memory is the caller's promise.
    unsafe { rdma_sys::ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length) };
}

/// As [`add`], for whatever is no send of registered memory, when the id and the flags are there.
///
/// # Safety
///
/// As for [`add`].
#[inline(never)]
unsafe fn add_other(qp: *mut ibv_qp_ex, entry: &Entry) {
    let Entry { wr, sge } = entry;
    // SAFETY: the caller's own obligation.
    unsafe { add_operation(qp, wr) };
    if wr.send_flags & rdma_sys::IBV_SEND_INLINE == 0 {
        // SAFETY: a request was added, whose memory is the caller's promise.
        unsafe { rdma_sys::ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length) };
    } else {
        // CAST: an address of this process.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an address of this process"
        )]
        let bytes = ptr::with_exposed_provenance_mut::<c_void>(sge.addr as usize);
        // SAFETY: a request was added; the bytes are readable during the call, and the call only reads them.
        unsafe { rdma_sys::ibv_wr_set_inline_data(qp, bytes, sge.length as usize) };
    }
}

/// Adds the operation of a request.
///
/// # Safety
///
/// As for [`add`].
unsafe fn add_operation(qp: *mut ibv_qp_ex, wr: &ibv_send_wr) {
    // SAFETY: all requests but the sends were filled with one of the two; they begin alike, and all of the union was initialised
    // with the list.
    let rdma = unsafe { wr.wr.rdma };
    // SAFETY: four bytes at one place, initialised with the list: an immediate value or a key.
    let extra = unsafe { wr.__bindgen_anon_1.imm_data };
    let (to, key) = (rdma.remote_addr, rdma.rkey);
    match wr.opcode {
        ibv_wr_opcode::IBV_WR_SEND => {
            // SAFETY: a list is begun, and the entry is there: every type has it.
            unsafe { rdma_sys::ibv_wr_send(qp) };
        }
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => {
            // SAFETY: as above.
            unsafe { rdma_sys::ibv_wr_send_imm(qp, extra) };
        }
        ibv_wr_opcode::IBV_WR_SEND_WITH_INV => {
            // SAFETY: as above.
            unsafe { rdma_sys::ibv_wr_send_inv(qp, extra) };
        }
        ibv_wr_opcode::IBV_WR_RDMA_WRITE => {
            // SAFETY: as above.
            unsafe { rdma_sys::ibv_wr_rdma_write(qp, key, to) };
        }
        ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
            // SAFETY: as above.
            unsafe { rdma_sys::ibv_wr_rdma_write_imm(qp, key, to, extra) };
        }
        ibv_wr_opcode::IBV_WR_RDMA_READ => {
            // SAFETY: as above; the caller says that the queue pair's type has reads.
            unsafe { rdma_sys::ibv_wr_rdma_read(qp, key, to) };
        }
        _ => {
            // SAFETY: the caller's other requests are the two atomics.
            let atomic = unsafe { wr.wr.atomic };
            let (to, key) = (atomic.remote_addr, atomic.rkey);
            if wr.opcode == ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP {
                let (compare, swap) = (atomic.compare_add, atomic.swap);
                // SAFETY: as above, for atomics.
                unsafe { rdma_sys::ibv_wr_atomic_cmp_swp(qp, key, to, compare, swap) };
            } else {
                // SAFETY: as above.
                unsafe { rdma_sys::ibv_wr_atomic_fetch_add(qp, key, to, atomic.compare_add) };
            }
        }
    }
}

#![expect(unsafe_code, reason = "makes and destroys the queue pair of an id")]

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_state};

use super::handle::{Control, Handle, RawQp, Verbs};
use super::id::CmId;
use super::phase::Phase;
use crate::error::{Cause, Error, ErrorKind, Result, errno_of_rdma, pointer_of};
use crate::verbs::{
    self, Context, DatagramPair, ProtectionDomain, QpOwner, QueuePair, QueuePairInit, Standing,
};

const OP: &str = "rdma_create_qp";

/// Makes the queue pair of an id.
pub(super) fn create(
    handle: &Arc<Handle>,
    pd: &ProtectionDomain,
    init: &QueuePairInit,
) -> Result<QueuePair> {
    let id = CmId::from_handle(Arc::clone(handle));
    check_domain(OP, &id, pd)?;
    let control = handle.lock();
    check_free(OP, &id, &control)?;
    let owner: Arc<dyn QpOwner> = Arc::<Handle>::clone(handle);
    let made = |returned: i32| {
        errno_of_rdma(returned)?;
        // SAFETY: the id is alive; the lock is held.
        pointer_of(unsafe { (*handle.raw()).qp })
    };
    let by_calls = |attr: &mut ibv_qp_init_attr_ex| {
        let making = pd.context().objects_change();
        // SAFETY: as for `rdma_create_qp` below, with the domain in the attributes.
        let made = made(unsafe { rdma_sys::rdma_create_qp_ex(handle.raw(), attr) });
        drop(making);
        made
    };
    let classic = |attr: &mut ibv_qp_init_attr| {
        let making = pd.context().objects_change();
        // SAFETY: `rdma_create_qp` wants an id with a device and without a queue pair, and a domain and queues of that
        // device: all checked above or in `new_on`. It writes `id->qp`, which the lock protects.
        let made = made(unsafe { rdma_sys::rdma_create_qp(handle.raw(), pd.as_raw(), attr) });
        drop(making);
        made.map_err(|errno| {
            if errno == libc::EINVAL && peer_gone(handle) {
                Error::os_as(OP, errno, ErrorKind::PeerGone).at(id.local_addr(), id.peer_addr())
            } else {
                id.error_here(OP, errno)
            }
        })
    };
    let create = |attr: &mut ibv_qp_init_attr| {
        // SAFETY: both make what their attributes say.
        unsafe { verbs::create_with_calls(pd, attr, by_calls, classic) }
    };
    // SAFETY: `create` makes the queue pair in `pd` with the attributes that it is given, and the handle is the only one that
    // destroys it: `rdma_destroy_qp` is called nowhere.
    let made = unsafe { verbs::new_on(OP, pd, init, owner, create) };
    drop(control);
    made
}

/// Makes the queue pair of a datagram id.
pub(super) fn create_datagram(
    handle: &Arc<Handle>,
    pd: &ProtectionDomain,
    init: &QueuePairInit,
) -> Result<DatagramPair> {
    let id = CmId::from_handle(Arc::clone(handle));
    id.expect_service(OP, true)?;
    check_domain(OP, &id, pd)?;
    let port = handle.view().port;
    let control = handle.lock();
    id.expect(OP, "an id with a device", |phase| {
        !matches!(
            phase,
            Phase::Idle | Phase::ResolvingAddr | Phase::Failed | Phase::Removed
        )
    })?;
    check_none(OP, &id, &control)?;
    // The library moves the queue pair to RTS and then writes `id->qp`, which the reader of a join looks at.
    let gate = control.channel.gate();
    let create = |attr: &mut ibv_qp_init_attr| {
        let making = pd.context().objects_change();
        // SAFETY: `rdma_create_qp` wants an id with a device and without a queue pair, and a domain and queues of that
        // device: all checked above or in `new_datagram`. Both locks that protect `id->qp` are held.
        let returned = unsafe { rdma_sys::rdma_create_qp(handle.raw(), pd.as_raw(), attr) };
        let result = errno_of_rdma(returned);
        drop(making);
        result.map_err(|errno| id.error_here(OP, errno))?;
        // SAFETY: the id is alive; the locks are held.
        let qp = unsafe { (*handle.raw()).qp };
        let qp = pointer_of(qp).map_err(|errno| Error::os(OP, errno))?;
        if let Some(groups) = handle.known_groups() {
            // SAFETY: just made, and the gate is locked.
            unsafe { groups.attach(qp) }.inspect_err(|_| {
                // If this fails, too, it is leaked.
                let _ = end(handle, pd.context(), qp);
            })?;
        }
        Ok(qp)
    };
    // No connection tells when it may send.
    handle.standing().connect(0);
    let owner: Arc<dyn QpOwner> = Arc::<Handle>::clone(handle);
    // SAFETY: `create` makes the queue pair in `pd` with the attributes that it is given, ready to send, and only its owner
    // destroys it.
    let made = unsafe { verbs::new_datagram(OP, pd, init, port, owner, create) };
    drop(gate);
    drop(control);
    made
}

/// That `pd` is of the id's device.
pub(super) fn check_domain(op: &'static str, id: &CmId, pd: &ProtectionDomain) -> Result<()> {
    let verbs = id.handle().view().verbs;
    // A domain keeps its device open, so an equal pointer is the same device.
    if verbs.is_some_and(|Verbs(verbs)| verbs.as_ptr() == pd.context().as_raw()) {
        return Ok(());
    }
    let context = id.context_for(op)?;
    if *pd.context() != context {
        return Err(Error::new(
            op,
            Cause::DeviceMismatch {
                what: "the protection domain",
                found: pd.context().name().to_owned(),
                other: "the id",
                wanted: context.name().to_owned(),
            },
        ));
    }
    Ok(())
}

/// That the id may have a queue pair, and has none.
pub(super) fn check_free(op: &'static str, id: &CmId, control: &Control) -> Result<()> {
    id.expect_service(op, false)?;
    id.expect(op, "an id with a device that is not connected", |phase| {
        matches!(
            phase,
            Phase::Bound | Phase::AddrResolved | Phase::RouteResolved | Phase::Requested
        )
    })?;
    check_none(op, id, control)
}

fn check_none(op: &'static str, id: &CmId, control: &Control) -> Result<()> {
    if id.has_qp() || control.external.is_some() {
        return Err(Error::state(
            op,
            "an id without a queue pair",
            "there is one already",
        ));
    }
    Ok(())
}

/// Whether the peer of a request has given up, after a call on it gave EINVAL: then the kernel has no attributes for the next
/// state either; when the fault was ours, it does.
pub(super) fn peer_gone(handle: &Handle) -> bool {
    if handle.phase().get() < Phase::Requested {
        return false;
    }
    handle.init_qp_attr(ibv_qp_state::IBV_QPS_RTR).err() == Some(libc::EINVAL)
}

/// The number of an external queue pair. The id's lock is held.
pub(super) fn number(RawQp(qp): RawQp) -> u32 {
    // SAFETY: an external queue pair is alive while the id knows it, and its number never changes.
    unsafe { (*qp.as_ptr()).qp_num }
}

/// The owner of the queue pair on an id: it takes the id's lock and the gate, since the library uses the queue pair in calls and
/// while it reads events.
impl QpOwner for Handle {
    fn standing(&self) -> &Standing {
        self.standing()
    }

    unsafe fn modify(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
        let control = self.lock();
        let gate = control.channel.gate();
        // SAFETY: the caller's own promise.
        let returned = unsafe { verbs::modify_qp(qp, attr, mask) };
        drop(gate);
        returned
    }

    unsafe fn query(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
        let control = self.lock();
        let gate = control.channel.gate();
        // SAFETY: the caller keeps the queue pair; whoever changes it, the library too, holds the id's lock or the gate.
        let returned = unsafe { verbs::query_qp(qp, attr, mask) };
        drop(gate);
        returned
    }

    unsafe fn destroy(&self, context: &Context, qp: NonNull<ibv_qp>) -> i32 {
        let control = self.lock();
        let gate = control.channel.gate();
        let returned = end(self, context, qp);
        drop(gate);
        returned
    }
}

/// Destroys the queue pair of an id, whose lock and gate are held.
fn end(handle: &Handle, context: &Context, qp: NonNull<ibv_qp>) -> i32 {
    if let Some(groups) = handle.known_groups() {
        // SAFETY: the id's queue pair, with the gate locked.
        unsafe { groups.detach(qp) };
    }
    // SAFETY: `ibv_destroy_qp` wants a queue pair that nobody uses: calls that read `id->qp` hold the id's lock, the
    // reader of events holds the gate, and posts go through halves that are gone. `rdma_destroy_qp` would hide the result.
    let returned = unsafe { verbs::destroy_qp(context, qp) };
    // Also after a failure, when some providers have torn it down already: it is not touched again.
    // SAFETY: the id is alive, since the caller holds its handle; both locks are held.
    unsafe { (*handle.raw()).qp = std::ptr::null_mut() };
    returned
}

#![expect(
    unsafe_code,
    reason = "moves a queue pair that librdmacm does not know through its states"
)]

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state};

use super::handle::{Handle, RawQp};
use super::id::CmId;
use super::param::Negotiated;
use super::phase::Phase;
use super::qp;
use crate::error::{Error, Result, errno_of_rdma, errno_of_verbs};
use crate::verbs::{self, Context, ProtectionDomain, QpOwner, QueuePair, QueuePairInit, Standing};

const CREATE: &str = "ibv_create_qp";
const ESTABLISH: &str = "rdma_establish";

/// The bits of an attribute mask that the kernel sets for RoCE only and that InfiniBand devices refuse: 21 to 23.
const ROCE_ONLY: i32 = 0xe0_0000;

impl CmId {
    /// Makes a queue pair for this id that librdmacm does not know of: an *external* one.
    ///
    /// The difference is who moves its states. Before accept this crate does, inside [`ConnRequest::accept_with`]; on the
    /// connecting side the answer comes as [`ConnectResponse`](super::EventKind::ConnectResponse) in place of
    /// [`Established`](super::EventKind::Established), and [`establish`](Self::establish) makes the queue pair ready and
    /// tells the peer. So a program has the last word on the answer, and can set [`Ece`](super::Ece).
    ///
    /// For an id that has a device and no queue pair, as for [`create_qp`](Self::create_qp).
    ///
    /// Calls `ibv_create_qp` ([man 3](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)) and moves it to INIT with
    /// what `rdma_init_qp_attr` says. Blocks: no.
    ///
    /// # Errors
    ///
    /// As for [`create_qp`](Self::create_qp).
    ///
    /// [`ConnRequest::accept_with`]: super::ConnRequest::accept_with
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn create_external_qp(
        &self,
        pd: &ProtectionDomain,
        init: &QueuePairInit,
    ) -> Result<QueuePair> {
        let handle = self.handle();
        qp::check_domain(CREATE, self, pd)?;
        let mut control = handle.lock();
        qp::check_free(CREATE, self, &control)?;
        let create = |attr: &mut ibv_qp_init_attr| {
            // SAFETY: `new_on` has checked that the attributes have queues of the domain's device.
            let made = unsafe { verbs::create_connected(CREATE, pd, attr) }?;
            let qp = made.raw();
            self.step(pd.context(), qp, ibv_qp_state::IBV_QPS_INIT, None)
                .inspect_err(|_| {
                    // SAFETY: the queue pair was just made, and is known to nobody else. If this fails too, it is leaked.
                    let _ = unsafe { verbs::destroy_qp(pd.context(), qp) };
                })?;
            Ok(made)
        };
        let owner = Arc::new(ExternalOwner(Arc::clone(handle)));
        // SAFETY: `create` makes the queue pair in `pd` with the attributes that it is given, and only its owner destroys it.
        let made = unsafe { verbs::new_on(CREATE, pd, init, owner, create) }?;
        control.external = NonNull::new(made.as_raw()).map(RawQp);
        Ok(made)
    }

    /// Makes the external queue pair ready, and tells the peer that the connection stands.
    ///
    /// For the connecting side, once after [`ConnectResponse`](super::EventKind::ConnectResponse). No event follows here; the
    /// peer gets [`Established`](super::EventKind::Established).
    ///
    /// Calls `rdma_init_qp_attr` and `ibv_modify_qp` for RTR and RTS, then `rdma_establish`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`State`](crate::ErrorKind::State) without an answer or an external queue pair; what the device reports, and then the id
    /// cannot be used any more.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<()> {
        let context = self.context_for(ESTABLISH)?;
        let control = self.handle().lock();
        self.expect(ESTABLISH, "an id whose peer has accepted", |phase| {
            phase == Phase::Responded
        })?;
        let Some(RawQp(qp)) = control.external else {
            return Err(Error::state(
                ESTABLISH,
                "an external queue pair (`create_external_qp`)",
                "there is none",
            ));
        };
        // A step that fails is not done again: the queue pair is in between.
        let fail = |error| {
            self.handle().phase().advance(Phase::Failed);
            error
        };
        self.bring_up(&context, qp, None).map_err(fail)?;
        // SAFETY: `rdma_establish` wants an id without a queue pair of the library's, whose peer has accepted: the phase says
        // so, and an id with an external queue pair gets no other (`check_free`).
        let returned = unsafe { rdma_sys::rdma_establish(self.as_raw()) };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| fail(self.error_here(ESTABLISH, errno)))?;
        self.handle().phase().advance(Phase::Established);
        self.handle().set_connected();
        Ok(())
    }

    /// Moves an external queue pair to RTR and RTS. `agreed` is what this side will accept with; the connecting side takes
    /// the kernel's values, which are the answer's. The id's lock is held.
    pub(super) fn bring_up(
        &self,
        context: &Context,
        qp: NonNull<ibv_qp>,
        agreed: Option<Negotiated>,
    ) -> Result<()> {
        // The library does this step again too: what was set when the queue pair was made may have changed since.
        self.step(context, qp, ibv_qp_state::IBV_QPS_INIT, None)?;
        self.step(context, qp, ibv_qp_state::IBV_QPS_RTR, agreed)?;
        self.step(context, qp, ibv_qp_state::IBV_QPS_RTS, agreed)
    }

    /// Moves an external queue pair to `state` with the attributes that the kernel has for this id.
    fn step(
        &self,
        context: &Context,
        qp: NonNull<ibv_qp>,
        state: ibv_qp_state,
        agreed: Option<Negotiated>,
    ) -> Result<()> {
        let (mut attr, mut mask) = self
            .handle()
            .init_qp_attr(state)
            .map_err(|errno| self.error_here("rdma_init_qp_attr", errno))?;
        if let Some(agreed) = agreed {
            // The kernel's values are still the offer.
            match state {
                ibv_qp_state::IBV_QPS_RTR => attr.max_dest_rd_atomic = agreed.responder_resources,
                ibv_qp_state::IBV_QPS_RTS => attr.max_rd_atomic = agreed.initiator_depth,
                _ => {}
            }
        }
        if state == ibv_qp_state::IBV_QPS_RTR
            && context.is_infiniband_port(self.handle().view().port)?
        {
            mask &= !ROCE_ONLY;
        }
        // CAST: a mask of low bits.
        #[expect(clippy::cast_sign_loss, reason = "a mask of low bits")]
        let mask = mask as u32;
        // SAFETY: the lock that the caller holds keeps the queue pair from being destroyed; the kernel has written the attributes
        // and the mask.
        let returned = unsafe { verbs::modify_qp(qp, &mut attr, mask) };
        errno_of_verbs(returned).map_err(|errno| self.error_here("ibv_modify_qp", errno))
    }
}

/// The end of an external queue pair. librdmacm does not know it, so no gate is needed; calls that move its states hold the
/// id's lock.
struct ExternalOwner(Arc<Handle>);

impl QpOwner for ExternalOwner {
    fn standing(&self) -> &Standing {
        self.0.standing()
    }

    unsafe fn modify(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
        let control = self.0.lock();
        // SAFETY: the caller's own promise.
        let returned = unsafe { verbs::modify_qp(qp, attr, mask) };
        drop(control);
        returned
    }

    unsafe fn query(&self, qp: NonNull<ibv_qp>, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
        let control = self.0.lock();
        // SAFETY: the caller keeps the queue pair, and whoever changes it holds the id's lock.
        let returned = unsafe { verbs::query_qp(qp, attr, mask) };
        drop(control);
        returned
    }

    unsafe fn destroy(&self, context: &Context, qp: NonNull<ibv_qp>) -> i32 {
        let mut control = self.0.lock();
        // SAFETY: `ibv_destroy_qp` wants a queue pair that nobody uses: those who move its states hold the id's lock, and
        // posts go through halves that are gone.
        let returned = unsafe { verbs::destroy_qp(context, qp) };
        // Alive or half torn down after a failure: it is not touched again.
        control.external = None;
        returned
    }
}

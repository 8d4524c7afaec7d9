#![expect(unsafe_code, reason = "joins and leaves multicast groups")]

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rdma_sys::rdma_cm_join_mc_attr_ex;

use super::addr::CAddr;
use super::gate::Aside;
use super::handle::{Handle, Token};
use super::id::CmId;
use super::phase::Phase;
use crate::error::{Error, ErrorKind, Result, errno_of_rdma};

const JOIN: &str = "rdma_join_multicast_ex";
const LEAVE: &str = "rdma_leave_multicast";

/// What an id joins a multicast group for.
#[doc(alias = "rdma_cm_mc_join_flags")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JoinState {
    /// To receive from the group and to send to it: the id's queue pair is attached, whichever comes first.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    FullMember,
    /// To send only: no queue pair is attached, and over RoCE the routers are told nothing. Over InfiniBand the subnet manager
    /// must know it.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    SendOnlyFullMember,
}

impl JoinState {
    fn flag(self) -> u32 {
        match self {
            Self::FullMember => rdma_sys::RDMA_MC_JOIN_FLAG_FULLMEMBER,
            Self::SendOnlyFullMember => rdma_sys::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        }
    }
}

/// A datagram id's membership in a multicast group, from the join on; dropping it leaves the group.
///
/// It holds a share of the id, so it may be dropped before or after everything else.
///
/// The drop first reads what is queued on the id's channel, since an event in the queue may point to what the library frees;
/// readers get those events as if they had stayed there. When the id's device turns out to be gone, the group is left with the
/// id and not before.
#[doc(alias = "rdma_leave_multicast")]
#[must_use = "dropping a membership leaves the group"]
pub struct Membership {
    handle: Arc<Handle>,
    /// `None` once it was left.
    number: Option<Token>,
    group: IpAddr,
    state: JoinState,
}

impl CmId {
    /// Joins a multicast group.
    ///
    /// For a datagram id that is bound to a device or has its address resolved, and neither listens nor has its route resolved.
    /// What follows is [`MulticastJoined`](super::EventKind::MulticastJoined), with the group's destination, or
    /// [`MulticastError`](super::EventKind::MulticastError); either way the membership is left when its guard is dropped. An id
    /// that is to send to a group is best resolved to it: [`resolve_addr`](Self::resolve_addr) finds the device.
    ///
    /// A sender that is a full member receives what it sends, too.
    ///
    /// Calls `rdma_join_multicast_ex`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_join_multicast_ex.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported): groups with IPv6 addresses over RoCE (the kernel's errno 524), and all of them
    /// over iWARP (`ENOSYS`). [`InvalidInput`](ErrorKind::InvalidInput): not an address of a group.
    /// [`State`](ErrorKind::State): the id is not ready for it, is for connections, or is in the group already.
    #[doc(alias = "rdma_join_multicast")]
    #[doc(alias = "rdma_join_multicast_ex")]
    #[doc(alias(
        "rdma_cm_join_mc_attr_ex",
        "rdma_cm_join_mc_attr_mask",
        "RDMA_CM_JOIN_MC_ATTR_ADDRESS",
        "RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS"
    ))]
    pub fn join_multicast(&self, group: IpAddr, state: JoinState) -> Result<Membership> {
        let handle = self.handle();
        let control = handle.lock();
        self.expect_service(JOIN, true)?;
        self.expect(
            JOIN,
            "an id that is bound or has its address resolved",
            |phase| matches!(phase, Phase::Bound | Phase::AddrResolved),
        )?;
        if handle.view().verbs.is_none() {
            return Err(Error::state(
                JOIN,
                "an id that is bound to a device",
                "this one is bound to every address",
            ));
        }
        // Over InfiniBand the unspecified address asks for a group of the subnet manager's choice.
        if !group.is_multicast() && !group.is_unspecified() {
            return Err(Error::plain(
                JOIN,
                ErrorKind::InvalidInput,
                "the address is not one of a multicast group (224.0.0.0/4 or ff00::/8)",
            ));
        }
        // The event may come before the call returns.
        let Some(number) = handle.groups().add(group, state == JoinState::FullMember) else {
            return Err(Error::state(
                JOIN,
                "a group that the id is not in",
                "it has joined this one",
            ));
        };
        let addr = c_addr(group);
        let mut attr = rdma_cm_join_mc_attr_ex {
            comp_mask: rdma_sys::RDMA_CM_JOIN_MC_ATTR_ADDRESS
                | rdma_sys::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
            join_flags: state.flag(),
            addr: addr.as_ptr(),
        };
        // SAFETY: `rdma_join_multicast_ex` wants an id, and attributes with an address that it reads during the call. The
        // context is a number. A failure leaves nothing behind.
        let returned = unsafe {
            rdma_sys::rdma_join_multicast_ex(self.as_raw(), &raw mut attr, number.to_context())
        };
        let result = errno_of_rdma(returned);
        drop(control);
        result.map_err(|errno| {
            handle.groups().remove(number);
            Error::os(JOIN, errno).at(self.local_addr(), Some(SocketAddr::new(group, 0)))
        })?;
        Ok(Membership {
            handle: Arc::clone(handle),
            number: Some(number),
            group,
            state,
        })
    }
}

/// The address as join and leave compare it, to the last byte.
fn c_addr(group: IpAddr) -> CAddr {
    CAddr::new(SocketAddr::new(group, 0))
}

impl Membership {
    /// The group, as it was given to the join.
    #[must_use]
    pub fn group(&self) -> IpAddr {
        self.group
    }

    /// What the id has joined it for.
    #[must_use]
    pub fn state(&self) -> JoinState {
        self.state
    }

    /// The number by which events name the id.
    #[must_use]
    pub fn token(&self) -> Token {
        self.handle.token()
    }

    /// Leaves the group and says whether that worked. It is left either way.
    ///
    /// Calls `rdma_leave_multicast`
    /// ([man 3](https://man7.org/linux/man-pages/man3/rdma_leave_multicast.3.html)), unless the id's device is gone. Blocks: no.
    ///
    /// # Errors
    ///
    /// What the kernel reports.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(number) = self.number.take() else {
            return Ok(());
        };
        let handle = &self.handle;
        // Dropped after the two locks.
        let mut aside = Aside::default();
        let control = handle.lock();
        let mut gate = control.channel.gate();
        let read = control.channel.read_ahead(&mut gate, &mut aside);
        gate.forget_kept(handle.token(), |event| {
            event.kind.group() == Some(self.group)
        });
        control.channel.show_kept(&gate);
        handle.groups().remove(number);
        if read.is_err() || handle.phase().get() == Phase::Removed {
            // The kernel refuses, or may, and then the library frees the group although an event may still point to it.
            return Ok(());
        }
        let addr = c_addr(self.group);
        // SAFETY: `rdma_leave_multicast` wants an id that has joined the group, and an address that it reads during the call. It
        // reads `id->qp`, which the lock protects. It frees what queued events of the group point to: the kernel takes those
        // out, unless it refuses because the device is gone, which was looked for just now. It waits for events of the group to be
        // acknowledged: that is done in the gate, which is held, so there is none.
        let returned = unsafe { rdma_sys::rdma_leave_multicast(handle.raw(), addr.as_ptr()) };
        let result = errno_of_rdma(returned);
        drop(gate);
        drop(control);
        result.map_err(|errno| CmId::from_handle(Arc::clone(handle)).error_here(LEAVE, errno))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // `leave` is for those who want to know; the group is left with the id at the latest.
        drop(self.end());
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership")
            .field("id", &self.handle)
            .field("group", &self.group)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#![expect(unsafe_code, reason = "attaches a queue pair to multicast groups")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::ibv_qp;

use super::gid::Gid;
use crate::error::{Error, ErrorKind, Result, errno_of_verbs};

const ATTACH: &str = "ibv_attach_mcast";
const DETACH: &str = "ibv_detach_mcast";

/// A queue pair that is attached to a multicast group: see
/// [`DatagramPair::attach_multicast`](super::DatagramPair::attach_multicast). Dropping it detaches the pair; the end of the pair
/// does so, too.
#[doc(alias = "ibv_detach_mcast")]
#[must_use = "dropping it detaches the queue pair"]
pub struct Attachment {
    /// `None` once it was detached.
    attached: Option<Arc<Attachments>>,
    group: Group,
}

type Group = (Gid, u16);

/// The groups that a queue pair is attached to by hand. A device does not destroy a queue pair that is in any.
///
/// # Invariants
///
/// `raw` is alive while `groups` is `Some`.
pub(super) struct Attachments {
    raw: NonNull<ibv_qp>,
    groups: Mutex<Option<Vec<Group>>>,
}

// SAFETY: the pointer is only handed to libibverbs, with the lock held.
unsafe impl Send for Attachments {}
// SAFETY: as for `Send`.
unsafe impl Sync for Attachments {}

impl Attachments {
    /// # Safety
    ///
    /// `raw` is alive until [`end`](Self::end) has returned.
    pub(super) unsafe fn new(raw: NonNull<ibv_qp>) -> Arc<Self> {
        // INVARIANT: the caller vouches for it.
        Arc::new(Self {
            raw,
            groups: Mutex::new(Some(Vec::new())),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Group>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn attach(self: &Arc<Self>, group: Gid, mlid: u16) -> Result<Attachment> {
        if !group.to_ip().is_multicast() {
            return Err(Error::plain(
                ATTACH,
                ErrorKind::InvalidInput,
                "the address is not one of a multicast group",
            ));
        }
        let group = (group, mlid);
        let mut groups = self.lock();
        let found = match &mut *groups {
            None => "this one has ended",
            Some(groups) if groups.contains(&group) => "this one is attached to it",
            Some(groups) => {
                let gid = group.0.to_raw();
                // SAFETY: `ibv_attach_mcast` wants a queue pair, which is alive while there are groups, and an address that it
                // reads during the call.
                let returned =
                    unsafe { rdma_sys::ibv_attach_mcast(self.raw.as_ptr(), &raw const gid, mlid) };
                errno_of_verbs(returned).map_err(|errno| Error::os(ATTACH, errno))?;
                groups.push(group);
                return Ok(Attachment {
                    attached: Some(Arc::clone(self)),
                    group,
                });
            }
        };
        Err(Error::state(
            ATTACH,
            "a queue pair that is not attached to the group",
            found,
        ))
    }

    fn detach_one(&self, (gid, mlid): Group) -> Result<()> {
        let gid = gid.to_raw();
        // SAFETY: `ibv_detach_mcast` wants a queue pair, which is alive while there are groups, as the caller has seen with the
        // lock held, and an address that it reads during the call.
        let returned =
            unsafe { rdma_sys::ibv_detach_mcast(self.raw.as_ptr(), &raw const gid, mlid) };
        errno_of_verbs(returned).map_err(|errno| Error::os(DETACH, errno))
    }

    fn detach(&self, group: Group) -> Result<()> {
        let mut groups = self.lock();
        let Some(groups) = &mut *groups else {
            return Ok(());
        };
        groups.retain(|found| *found != group);
        self.detach_one(group)
    }

    /// Detaches the queue pair from every group, for good: before its destruction.
    pub(super) fn end(&self) {
        for group in self.lock().take().unwrap_or_default() {
            // Where it fails, the destruction does and says so.
            drop(self.detach_one(group));
        }
    }
}

impl Attachment {
    /// The group.
    #[must_use]
    pub fn group(&self) -> Gid {
        self.group.0
    }

    /// Detaches the pair and says whether that worked.
    ///
    /// Calls `ibv_detach_mcast` ([man 3](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)). Blocks: no.
    ///
    /// # Errors
    ///
    /// What the device reports, such as `EINVAL` when a [`Membership`](crate::Membership) of the same group was left before.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        match self.attached.take() {
            Some(attached) => attached.detach(self.group),
            None => Ok(()),
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // `detach` is for those who want to know.
        drop(self.end());
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("group", &self.group.0)
            .finish_non_exhaustive()
    }
}

use bitflags::bitflags;

use super::pd::ProtectionDomain;
use super::region::REG_MR;
use crate::error::{Error, Result};

bitflags! {
    /// What a peer may do with memory.
    ///
    /// Every combination has a meaning: that the device may write where a peer may is not said here, but follows.
    #[doc(alias = "ibv_access_flags")]
    #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Read it.
        #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
        const READ = rdma_sys::IBV_ACCESS_REMOTE_READ;
        /// Write it.
        #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
        const WRITE = rdma_sys::IBV_ACCESS_REMOTE_WRITE;
        /// Carry out atomic operations on it.
        #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
        const ATOMIC = rdma_sys::IBV_ACCESS_REMOTE_ATOMIC;
    }
}

impl Access {
    /// The flags of a registration, for the device of this side, too.
    pub(super) fn with_local(self) -> u32 {
        // The device may write for the peer only where it may write at all.
        let local = if self.intersects(Self::WRITE | Self::ATOMIC) {
            rdma_sys::IBV_ACCESS_LOCAL_WRITE
        } else {
            0
        };
        self.remote() | local
    }

    /// The flags of a window.
    pub(super) fn remote(self) -> u32 {
        self.bits() & Self::all().bits()
    }
}

/// How memory is registered, beside who may use it.
///
/// ```
/// use rdmacm::Registration;
///
/// let registration = Registration::new().relaxed_ordering();
/// assert_ne!(registration, Registration::new());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Registration {
    relaxed_ordering: bool,
    on_demand: bool,
}

impl Registration {
    /// Pinned memory, written in order.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the device write the bytes of messages and remote writes in any order, where it can: faster on some machines.
    ///
    /// A completion still says that all before it has arrived. Two remote writes to the same bytes, without a completion in
    /// between, may arrive in either order. A device that does not know of it goes on in order.
    #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
    pub fn relaxed_ordering(mut self) -> Self {
        self.relaxed_ordering = true;
        self
    }

    /// Does not pin the memory: the device asks for pages as it uses them. They count towards no limit of locked memory.
    ///
    /// For a device that cannot ([`on_demand_paging`](crate::DeviceLimits::on_demand_paging)) the registration is
    /// [`Unsupported`](crate::ErrorKind::Unsupported); soft-RoCE of Linux 6.1 is one. See `IBV_ACCESS_ON_DEMAND` in `ibv_reg_mr`
    /// ([man 3](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)).
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    pub fn on_demand(mut self) -> Self {
        self.on_demand = true;
        self
    }

    /// The flags, if the device can do what they ask.
    pub(super) fn flags(self, pd: &ProtectionDomain) -> Result<u32> {
        let mut flags = 0;
        if self.relaxed_ordering {
            flags |= rdma_sys::IBV_ACCESS_RELAXED_ORDERING;
        }
        if self.on_demand {
            if !pd.context().limits().on_demand_paging().is_supported() {
                return Err(Error::unsupported(
                    REG_MR,
                    "on-demand paging; register without it",
                    "the device",
                ));
            }
            flags |= rdma_sys::IBV_ACCESS_ON_DEMAND;
        }
        Ok(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_may_write_makes_the_device_write() {
        let local = rdma_sys::IBV_ACCESS_LOCAL_WRITE;
        for (access, writes) in [
            (Access::empty(), false),
            (Access::READ, false),
            (Access::WRITE, true),
            (Access::ATOMIC, true),
            (Access::READ | Access::WRITE, true),
            (Access::all(), true),
        ] {
            assert_eq!(access.with_local() & local != 0, writes, "{access:?}");
            assert_eq!(access.remote(), access.bits());
        }
    }

    #[test]
    fn flags_that_are_none_of_these_are_left_out() {
        let strange =
            Access::from_bits_retain(rdma_sys::IBV_ACCESS_ON_DEMAND | Access::READ.bits());
        assert_eq!(strange.with_local(), rdma_sys::IBV_ACCESS_REMOTE_READ);
    }
}

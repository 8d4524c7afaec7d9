#![expect(unsafe_code, reason = "attaches a queue pair to multicast groups")]

use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_sys::ibv_qp;

use super::handle::Token;
use super::lookup::Destination;
use crate::error::{Error, Result, errno_of_verbs};
use crate::verbs::Gid;

/// The multicast groups that an id has joined and not left.
///
/// Read inside the gate, so the lock is held for a moment only, and nothing else is locked meanwhile.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<Vec<Group>>);

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// What was given with the join, and comes back with the group's events.
    number: Token,
    address: IpAddr,
    /// Whether the id receives from the group.
    receives: bool,
    /// What the network calls the group, once it was joined.
    name: Option<Name>,
    /// Whether the id's queue pair is attached to it.
    attached: bool,
}

/// The GID and the LID of a group.
#[derive(Clone, Copy, Debug)]
struct Name {
    gid: Gid,
    lid: u16,
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, Vec<Group>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a group; `None` when the id is in it already. librdmacm tells groups apart by their addresses.
    pub(super) fn add(&self, address: IpAddr, receives: bool) -> Option<Token> {
        let mut groups = self.lock();
        if groups.iter().any(|group| group.address == address) {
            return None;
        }
        let number = Token::new();
        groups.push(Group {
            number,
            address,
            receives,
            name: None,
            attached: false,
        });
        Some(number)
    }

    pub(super) fn remove(&self, number: Token) {
        self.lock().retain(|group| group.number != number);
    }

    /// The address of a group that the id is in.
    pub(super) fn find(&self, number: Token) -> Option<IpAddr> {
        let groups = self.lock();
        let group = groups.iter().find(|group| group.number == number)?;
        Some(group.address)
    }

    /// A group was joined: the library has attached the queue pair, if the id `has_qp`. Inside the gate.
    pub(super) fn joined(&self, address: IpAddr, destination: &Destination, has_qp: bool) {
        let mut groups = self.lock();
        if let Some(group) = groups.iter_mut().find(|group| group.address == address) {
            let there = destination.address();
            group.name = there.dgid().map(|gid| Name {
                gid,
                lid: there.dlid(),
            });
            group.attached = group.receives && has_qp;
        }
    }

    /// Attaches a queue pair that was made after groups were joined, as the library does with one that was made before.
    ///
    /// # Safety
    ///
    /// `qp` is the id's queue pair, just made; the gate is locked.
    pub(super) unsafe fn attach(&self, qp: NonNull<ibv_qp>) -> Result<()> {
        for group in self.lock().iter_mut() {
            let Some(name) = group.name.filter(|_| group.receives) else {
                continue;
            };
            let gid = name.gid.to_raw();
            // SAFETY: `ibv_attach_mcast` wants a queue pair, which the caller has just made, and an address that it reads during
            // the call.
            let returned =
                unsafe { rdma_sys::ibv_attach_mcast(qp.as_ptr(), &raw const gid, name.lid) };
            errno_of_verbs(returned).map_err(|errno| Error::os("ibv_attach_mcast", errno))?;
            group.attached = true;
        }
        Ok(())
    }

    /// Detaches the queue pair, before its end: a device does not destroy one that is attached.
    ///
    /// # Safety
    ///
    /// `qp` is the id's queue pair; the gate is locked.
    pub(super) unsafe fn detach(&self, qp: NonNull<ibv_qp>) {
        for group in self.lock().iter_mut().filter(|group| group.attached) {
            group.attached = false;
            let Some(name) = group.name else { continue };
            let gid = name.gid.to_raw();
            // SAFETY: `ibv_detach_mcast` wants a queue pair, which the caller has, and an address that it reads during the call.
            // Where it fails, the destruction of the queue pair does and says so.
            let _ = unsafe { rdma_sys::ibv_detach_mcast(qp.as_ptr(), &raw const gid, name.lid) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_there_once_and_has_another_number_each_time() {
        let groups = Groups::default();
        let address = IpAddr::from([224, 9, 9, 9]);
        let first = groups.add(address, true).unwrap();
        assert_eq!(groups.add(address, true), None);
        assert_eq!(groups.find(first), Some(address));
        groups.remove(first);
        assert_eq!(groups.find(first), None);
        let second = groups.add(address, true).unwrap();
        assert_ne!(first, second);
        assert_eq!(groups.find(first), None);
        assert_eq!(groups.find(second), Some(address));
    }
}

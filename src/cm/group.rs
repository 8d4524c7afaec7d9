use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::handle::Token;

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
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, Vec<Group>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a group; `None` when the id is in it already. librdmacm tells groups apart by their addresses.
    pub(super) fn add(&self, address: IpAddr) -> Option<Token> {
        let mut groups = self.lock();
        if groups.iter().any(|group| group.address == address) {
            return None;
        }
        let number = Token::new();
        groups.push(Group { number, address });
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_there_once_and_has_another_number_each_time() {
        let groups = Groups::default();
        let address = IpAddr::from([224, 9, 9, 9]);
        let first = groups.add(address).unwrap();
        assert_eq!(groups.add(address), None);
        assert_eq!(groups.find(first), Some(address));
        groups.remove(first);
        assert_eq!(groups.find(first), None);
        let second = groups.add(address).unwrap();
        assert_ne!(first, second);
        assert_eq!(groups.find(first), None);
        assert_eq!(groups.find(second), Some(address));
    }
}

//! A table of the objects of one kind, by their address.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash for addresses and other numbers that nobody chooses in bad faith.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// A map with that hash.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// The living objects of one kind.
pub(crate) struct Table<T> {
    /// What such an object is called.
    pub(crate) kind: &'static str,
    map: Map<usize, T>,
}

impl<T> Table<T> {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            map: Map::default(),
        }
    }

    pub(crate) fn insert(&mut self, address: usize, object: T) {
        self.map.insert(address, object);
    }

    pub(crate) fn find(&self, address: usize) -> Option<&T> {
        self.map.get(&address)
    }

    pub(crate) fn find_mut(&mut self, address: usize) -> Option<&mut T> {
        self.map.get_mut(&address)
    }

    pub(crate) fn remove(&mut self, address: usize) -> Option<T> {
        self.map.remove(&address)
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.map.iter().map(|(address, object)| (*address, object))
    }
}

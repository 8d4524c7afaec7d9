use std::fmt;

/// A range of the peer's memory: what the peer has told about memory that it has exposed.
///
/// Plain numbers; whether the memory is there, and open to an access, the peer's device decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteMemory {
    addr: u64,
    rkey: u32,
    len: u32,
}

impl RemoteMemory {
    /// How many bytes its byte form has.
    pub const SIZE: usize = 16;

    /// From an address, a key and a length in bytes that were learnt in another way.
    #[inline]
    #[must_use]
    pub const fn new(addr: u64, rkey: u32, len: u32) -> Self {
        Self { addr, rkey, len }
    }

    /// The address, in the peer's process.
    #[inline]
    #[must_use]
    pub const fn addr(self) -> u64 {
        self.addr
    }

    /// The key.
    #[inline]
    #[must_use]
    pub const fn rkey(self) -> u32 {
        self.rkey
    }

    /// How many bytes.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u32 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The part of `len` bytes at `offset`; `None` when it is not all inside.
    #[must_use]
    pub fn part(self, offset: u32, len: u32) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| Self {
            addr: self.addr.wrapping_add(offset.into()),
            rkey: self.rkey,
            len,
        })
    }

    /// The byte form, to be sent: address, key and length in network order, as rdma-core's `rping` sends it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// From the byte form.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, k0, k1, k2, k3, l0, l1, l2, l3] = bytes;
        Self {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            rkey: u32::from_be_bytes([k0, k1, k2, k3]),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }
}

impl fmt::Debug for RemoteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RemoteMemory({} bytes at {:#x}, key {:#x})",
            self.len, self.addr, self.rkey
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_form_is_in_network_order() {
        let memory = RemoteMemory::new(0x0102_0304_0506_0708, 0x090a_0b0c, 0x0d0e_0f10);
        let bytes: Vec<u8> = (1..=16).collect();
        assert_eq!(memory.to_bytes().to_vec(), bytes);
        assert_eq!(RemoteMemory::from_bytes(memory.to_bytes()), memory);
    }

    #[test]
    fn a_part_is_inside_the_whole() {
        let memory = RemoteMemory::new(1000, 7, 100);
        assert_eq!(memory.part(40, 60), Some(RemoteMemory::new(1040, 7, 60)));
        assert_eq!(memory.part(41, 60), None);
        assert_eq!(memory.part(u32::MAX, 2), None);
        assert!(memory.part(100, 0).is_some_and(RemoteMemory::is_empty));
    }
}

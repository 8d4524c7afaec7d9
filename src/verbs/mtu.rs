use std::fmt;

use rdma_sys::ibv_mtu;

/// The largest packet of a port or a path, without headers (`ibv_mtu`). A number without a name here is kept.
///
/// Larger numbers stand for larger packets, so the path between two ports has the smaller of their two.
#[doc(alias = "ibv_mtu")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtu(u32);

impl Mtu {
    /// 256 bytes.
    #[doc(alias = "IBV_MTU_256")]
    pub const B256: Self = Self(ibv_mtu::IBV_MTU_256.0);
    /// 512 bytes.
    #[doc(alias = "IBV_MTU_512")]
    pub const B512: Self = Self(ibv_mtu::IBV_MTU_512.0);
    /// 1024 bytes.
    #[doc(alias = "IBV_MTU_1024")]
    pub const B1024: Self = Self(ibv_mtu::IBV_MTU_1024.0);
    /// 2048 bytes.
    #[doc(alias = "IBV_MTU_2048")]
    pub const B2048: Self = Self(ibv_mtu::IBV_MTU_2048.0);
    /// 4096 bytes.
    #[doc(alias = "IBV_MTU_4096")]
    pub const B4096: Self = Self(ibv_mtu::IBV_MTU_4096.0);

    /// From the number in C.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The number in C.
    #[must_use]
    pub const fn as_raw(self) -> u32 {
        self.0
    }

    /// The size in bytes; `None` for a number that this crate has no name for.
    #[must_use]
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "{bytes}"),
            None => write!(f, "MTU number {}", self.0),
        }
    }
}

impl fmt::Debug for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mtu({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_the_names() {
        let sizes = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096].map(Mtu::bytes);
        assert_eq!(sizes, [256, 512, 1024, 2048, 4096].map(Some));
        for unknown in [0, 6, 7, u32::MAX] {
            assert_eq!(Mtu::from_raw(unknown).bytes(), None);
            assert_eq!(Mtu::from_raw(unknown).as_raw(), unknown);
        }
        assert_eq!(Mtu::from_raw(6).to_string(), "MTU number 6");
        assert_eq!(Mtu::B1024.min(Mtu::B4096).to_string(), "1024");
    }
}

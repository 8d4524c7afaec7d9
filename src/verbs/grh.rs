use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::gid::Gid;

/// The header that is in front of every datagram in its receive buffer (`ibv_grh`): who has sent it, and to which address.
///
/// Over RoCE v2 with IPv4 it is an IPv4 header in the last 20 of its 40 bytes, which this looks at in its stead.
#[doc(alias = "ibv_grh")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Grh {
    bytes: [u8; Self::LEN],
}

/// Where the IPv4 header starts.
const V4: usize = 20;

impl Grh {
    /// How many bytes the header takes.
    pub const LEN: usize = 40;

    pub(super) fn new(bytes: [u8; Self::LEN]) -> Self {
        Self { bytes }
    }

    /// The forty bytes, as they are in the buffer.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.bytes
    }

    /// Whether it is an IPv4 header.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        let v4 = &self.bytes[V4..];
        if self.bytes[0] >> 4 != 6 {
            return v4[0] >> 4 == 4;
        }
        // The first twenty bytes may hold anything before an IPv4 header: the checksum says. RoCE v2 has no options.
        v4[0] == 0x45 && is_checksum_right(v4)
    }

    fn four(&self, at: usize) -> Gid {
        let bytes = &self.bytes[at..at + 4];
        Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
    }

    fn sixteen(&self, at: usize) -> Gid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.bytes[at..at + 16]);
        Ipv6Addr::from(bytes).into()
    }

    /// The address of the sender.
    #[must_use]
    pub fn source(&self) -> Gid {
        if self.is_ipv4() {
            self.four(V4 + 12)
        } else {
            self.sixteen(8)
        }
    }

    /// The address that the datagram was sent to: this side's, or a multicast group's.
    #[must_use]
    pub fn destination(&self) -> Gid {
        if self.is_ipv4() {
            self.four(V4 + 16)
        } else {
            self.sixteen(24)
        }
    }

    /// Whether it was sent to a multicast group.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        self.destination().to_ip().is_multicast()
    }

    /// How many more routers it could have passed.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        if self.is_ipv4() {
            self.bytes[V4 + 8]
        } else {
            self.bytes[7]
        }
    }

    /// The traffic class that it was sent with.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        if self.is_ipv4() {
            self.bytes[V4 + 1]
        } else {
            self.bytes[0] << 4 | self.bytes[1] >> 4
        }
    }
}

/// Whether the sum over an IPv4 header without options comes out.
fn is_checksum_right(header: &[u8]) -> bool {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    // Ten numbers of sixteen bits: one carry is enough, and a second one for what it carries.
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16) == 0xffff
}

impl fmt::Debug for Grh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grh")
            .field("source", &self.source())
            .field("destination", &self.destination())
            .field("hop_limit", &self.hop_limit())
            .field("traffic_class", &self.traffic_class())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header from 10.9.0.1 to `to`, with its checksum.
    fn v4(to: [u8; 4]) -> [u8; 20] {
        let mut header = [0; 20];
        header[0] = 0x45;
        header[1] = 0x28;
        header[3] = 88;
        header[8] = 63;
        header[9] = 17;
        header[12..16].copy_from_slice(&[10, 9, 0, 1]);
        header[16..].copy_from_slice(&to);
        let sum: u32 = header
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    #[test]
    fn an_ipv4_header_is_found_behind_whatever_is_in_front() {
        for front in [0x00, 0x45, 0x6f] {
            let mut bytes = [front; 40];
            bytes[20..].copy_from_slice(&v4([10, 9, 0, 2]));
            let grh = Grh::new(bytes);
            assert!(grh.is_ipv4());
            assert_eq!(grh.source(), Ipv4Addr::new(10, 9, 0, 1).into());
            assert_eq!(grh.destination(), Ipv4Addr::new(10, 9, 0, 2).into());
            assert_eq!((grh.hop_limit(), grh.traffic_class()), (63, 0x28));
            assert!(!grh.is_multicast());
        }
        let mut bytes = [0; 40];
        bytes[20..].copy_from_slice(&v4([239, 9, 0, 2]));
        assert!(Grh::new(bytes).is_multicast());
    }

    #[test]
    fn an_ipv6_header_stays_one_whatever_its_addresses_look_like() {
        let source: Ipv6Addr = "fe80::1".parse().unwrap();
        // What stands where an IPv4 header would start looks like one; the checksum does not.
        let destination: Ipv6Addr = "ff0e::4500:9".parse().unwrap();
        let mut bytes = [0; 40];
        bytes[..2].copy_from_slice(&[0x62, 0x80]);
        bytes[6] = 0x1b;
        bytes[7] = 9;
        bytes[8..24].copy_from_slice(&source.octets());
        bytes[20] = 0x45;
        bytes[24..].copy_from_slice(&destination.octets());
        let grh = Grh::new(bytes);
        assert!(!grh.is_ipv4());
        assert_eq!(grh.destination(), destination.into());
        assert_eq!((grh.hop_limit(), grh.traffic_class()), (9, 0x28));
        assert!(grh.is_multicast());
        assert_eq!(grh.as_bytes(), &bytes);
    }
}

//! What packets can say.

/// A message has at most as many bytes: 2 GiB.
pub(super) const MAX_MESSAGE: u32 = 1 << 31;

/// Numbers of packets and of queue pairs have 24 bits.
pub(super) const MAX_NUMBER: u32 = 0xff_ffff;

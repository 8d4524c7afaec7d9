/// How often a send is repeated when the peer has no receive posted: never, 1 to 6 times, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrRetry(u8);

/// How often a send is repeated when the peer does not answer: 0 to 7 times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryCount(u8);

/// What the fields hold: three bits.
const BITS: u8 = 7;

impl RnrRetry {
    /// A send fails at once when the peer has no receive posted.
    pub const NEVER: Self = Self(0);
    /// A send waits until the peer has a receive posted.
    pub const FOREVER: Self = Self(7);

    /// 1 to 6 times; `None` for any other number.
    #[must_use]
    pub const fn times(times: u8) -> Option<Self> {
        match times {
            1..=6 => Some(Self(times)),
            _ => None,
        }
    }

    /// The three bits on the wire: 0 is never, 7 for ever.
    #[must_use]
    pub const fn as_raw(self) -> u8 {
        self.0
    }

    /// From a field of C, of which three bits count.
    pub(crate) const fn from_raw(raw: u8) -> Self {
        Self(raw & BITS)
    }
}

impl Default for RnrRetry {
    fn default() -> Self {
        Self::FOREVER
    }
}

impl RetryCount {
    /// 0 to 7 times; `None` above.
    #[must_use]
    pub const fn new(times: u8) -> Option<Self> {
        match times {
            0..=BITS => Some(Self(times)),
            _ => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn as_raw(self) -> u8 {
        self.0
    }

    /// From a field of C, of which three bits count.
    pub(crate) const fn from_raw(raw: u8) -> Self {
        Self(raw & BITS)
    }
}

impl Default for RetryCount {
    fn default() -> Self {
        Self(BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_of_more_than_three_bits_cannot_be_written() {
        assert_eq!(RnrRetry::times(0), None);
        assert_eq!(RnrRetry::times(7), None);
        assert_eq!(RnrRetry::times(6).unwrap().as_raw(), 6);
        assert_eq!(RnrRetry::default().as_raw(), 7);
        assert_eq!(RetryCount::new(8), None);
        assert_eq!(RetryCount::default(), RetryCount::new(7).unwrap());
        assert_eq!(RetryCount::new(5).unwrap().as_raw(), 5);
    }

    #[test]
    fn three_bits_of_a_field_count() {
        assert_eq!(RetryCount::from_raw(0xfd), RetryCount::new(5).unwrap());
        assert_eq!(RnrRetry::from_raw(0xf8), RnrRetry::NEVER);
    }
}

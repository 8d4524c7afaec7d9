use std::time::Duration;

/// The unit of the field: `n` stands for this many nanoseconds times 2^`n`, and 0 for ever.
const UNIT: u64 = 4_096;
/// The largest number that the field holds.
const LONGEST: u8 = 31;

/// The number that stands for the shortest time that is at least `time`, never 0; above all of them, the longest.
pub(crate) fn ack_timeout_code(time: Duration) -> u8 {
    (1..LONGEST)
        .find(|&code| Duration::from_nanos(UNIT << code) >= time)
        .unwrap_or(LONGEST)
}

/// The time that a number stands for; `None` for ever. A number that the field cannot hold is taken for the longest time.
pub(super) fn ack_timeout(code: u8) -> Option<Duration> {
    match code {
        0 => None,
        code => Some(Duration::from_nanos(UNIT << code.min(LONGEST))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_never_shorter_than_asked() {
        for (time, code) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(8_192), 1),
            (Duration::from_nanos(8_193), 2),
            (Duration::from_nanos(16_384), 2),
            (Duration::from_micros(17), 3),
            (Duration::from_millis(67), 14),
            (Duration::from_micros(67_108), 14),
            (Duration::from_micros(67_109), 15),
            (Duration::from_secs(3_600), 30),
            (Duration::from_secs(8_796), 31),
            (Duration::MAX, 31),
        ] {
            assert_eq!(ack_timeout_code(time), code, "{time:?}");
        }
    }

    #[test]
    fn a_number_stands_for_its_time() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(u8::MAX), ack_timeout(31));
        for code in 1..=31 {
            assert_eq!(ack_timeout_code(ack_timeout(code).unwrap()), code);
        }
    }
}

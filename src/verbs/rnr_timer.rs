use std::time::Duration;

/// The times that the field can say, in hundredths of a millisecond, shortest first, with the number that stands for each.
const TIMES: [(u32, u8); 32] = [
    (1, 1),
    (2, 2),
    (3, 3),
    (4, 4),
    (6, 5),
    (8, 6),
    (12, 7),
    (16, 8),
    (24, 9),
    (32, 10),
    (48, 11),
    (64, 12),
    (96, 13),
    (128, 14),
    (192, 15),
    (256, 16),
    (384, 17),
    (512, 18),
    (768, 19),
    (1_024, 20),
    (1_536, 21),
    (2_048, 22),
    (3_072, 23),
    (4_096, 24),
    (6_144, 25),
    (8_192, 26),
    (12_288, 27),
    (16_384, 28),
    (24_576, 29),
    (32_768, 30),
    (49_152, 31),
    (65_536, 0),
];

/// The number that stands for the shortest time that is at least `time`; above all of them, the longest.
pub(super) fn rnr_timer_code(time: Duration) -> u8 {
    TIMES
        .iter()
        .find(|&&(hundredths, _)| Duration::from_micros(u64::from(hundredths) * 10) >= time)
        .map_or(0, |&(_, code)| code)
}

/// The time that a number stands for; `None` for one that the field cannot hold.
pub(super) fn rnr_timer(code: u8) -> Option<Duration> {
    let (hundredths, _) = TIMES.iter().find(|&&(_, other)| other == code)?;
    Some(Duration::from_micros(u64::from(*hundredths) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_never_shorter_than_asked() {
        for (micros, code) in [
            (0, 1),
            (10, 1),
            (11, 2),
            (50, 5),
            (1_280, 14),
            (1_281, 15),
            (491_520, 31),
            (491_521, 0),
            (655_360, 0),
            (10_000_000, 0),
        ] {
            assert_eq!(
                rnr_timer_code(Duration::from_micros(micros)),
                code,
                "{micros} µs"
            );
        }
    }

    #[test]
    fn a_number_stands_for_its_time() {
        assert_eq!(rnr_timer(12), Some(Duration::from_micros(640)));
        assert_eq!(rnr_timer(0), Some(Duration::from_micros(655_360)));
        assert_eq!(rnr_timer(32), None);
    }

    #[test]
    fn the_times_rise_and_every_code_is_there_once() {
        assert!(TIMES.is_sorted_by(|a, b| a.0 < b.0));
        let mut codes = TIMES.map(|(_, code)| code);
        codes.sort_unstable();
        assert_eq!(codes.to_vec(), (0..32).collect::<Vec<u8>>());
    }
}

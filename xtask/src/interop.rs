//! `cargo xtask test --interop N`: the pairs of rdma-core's tools and this crate's of the same names, many times in a row.
//!
//! They are the tests in rdmacm's test programs `device_interop_*`, and in `iwarp_interop_*` on soft-iWARP: there each test is a
//! pair. All rounds are in one boot, and a failure ends none of them, so that the last line tells how often one fails.

use std::time::Duration;

use anyhow::Result;

use crate::{
    cargo::{self, Executable},
    tally::Tally,
};

/// Builds the examples that are run, and the test programs, which it gives. In one command cargo would build the examples as
/// tests.
pub(crate) fn build(iwarp: bool) -> Result<Vec<Executable>> {
    cargo::build(&["build", "--package", "rdmacm", "--examples"])?;
    let tests = if iwarp {
        "iwarp_interop_*"
    } else {
        "device_interop_*"
    };
    cargo::build(&["test", "--no-run", "--package", "rdmacm", "--test", tests])
}

/// Whether the tests of a test program are pairs.
pub(crate) fn has_pairs(program: &str) -> bool {
    program.starts_with("device_interop_") || program.starts_with("iwarp_interop_")
}

/// The closing line. `tally` counts each pair once for every round.
pub(crate) fn line(on: &str, pairs: usize, rounds: u32, tally: Tally, took: Duration) -> String {
    let times = if rounds == 1 { "round" } else { "rounds" };
    let Tally { passed, failed, .. } = tally;
    let seconds = took.as_secs();
    format!(
        "rdmacm interop on {on}: {pairs} pairs, {rounds} {times}: {passed} passed, {failed} failed, in {} min {} s",
        seconds / 60,
        seconds % 60,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_by_the_name_of_their_program() {
        for (program, wanted) in [
            ("device_interop_rping", true),
            ("iwarp_interop_rping", true),
            ("device_tools", false),
            ("standin_interop_rping", false),
        ] {
            assert_eq!(has_pairs(program), wanted, "{program}");
        }
    }

    #[test]
    fn the_line_tells_everything() {
        let tally = Tally {
            lines: 30,
            passed: 579,
            failed: 1,
            ignored: 0,
        };
        assert_eq!(
            line("soft-RoCE", 58, 10, tally, Duration::from_secs(754)),
            "rdmacm interop on soft-RoCE: 58 pairs, 10 rounds: 579 passed, 1 failed, in 12 min 34 s"
        );
        assert_eq!(
            line(
                "soft-iWARP",
                2,
                1,
                Tally {
                    passed: 2,
                    ..Tally::default()
                },
                Duration::from_secs(59)
            ),
            "rdmacm interop on soft-iWARP: 2 pairs, 1 round: 2 passed, 0 failed, in 0 min 59 s"
        );
    }
}

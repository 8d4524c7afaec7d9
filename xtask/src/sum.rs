//! The sum of all tests, over all the places where they ran.

use crate::tally::Tally;

/// What a run of some test programs gave.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its `test result:` lines.
    pub(crate) tally: Tally,
    /// The status, if it was not 0.
    pub(crate) failure: Option<String>,
}

/// The sum over all places.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Everything that ran, once.
    pub(crate) tally: Tally,
    /// What went wrong, one message each.
    pub(crate) faults: Vec<String>,
}

impl Sum {
    /// Adds what ran in one place. `expected` is the number of tests that had to run, where it is known: these were
    /// counted as ignored by `cargo test` and are not skipped any more.
    pub(crate) fn add(&mut self, what: &str, mut ran: Ran, expected: Option<usize>) {
        let lost = expected.map_or(0, |expected| expected.saturating_sub(ran.tally.ran()));
        self.tally.ignored = self.tally.ignored.saturating_sub(expected.unwrap_or(0));
        match (&ran.failure, lost) {
            (None, 0) => {}
            (None, _) => self
                .faults
                .push(format!("{what}: {lost} tests gave no result")),
            (Some(status), 0) if ran.tally.failed > 0 => self
                .faults
                .push(format!("{what}: {} failed ({status})", ran.tally.failed)),
            (Some(status), 0) => {
                // Not a test, but something has failed.
                ran.tally.failed += 1;
                self.faults.push(format!(
                    "{what}: {status}, though no test had failed; what happened is above"
                ));
            }
            (Some(status), _) => self.faults.push(format!(
                "{what}: {lost} tests gave no result ({status}); what happened is above"
            )),
        }
        ran.tally.failed += lost;
        self.tally += ran.tally;
    }

    /// Whether nothing went wrong.
    pub(crate) fn good(&self) -> bool {
        self.faults.is_empty() && self.tally.failed == 0
    }

    /// The closing line.
    pub(crate) fn line(&self) -> String {
        let Tally {
            passed,
            failed,
            ignored,
            ..
        } = self.tally;
        format!("rdmacm: {passed} passed, {failed} failed, {ignored} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(passed: usize, failed: usize, ignored: usize, failure: Option<&str>) -> Ran {
        let tally = Tally {
            lines: 1,
            passed,
            failed,
            ignored,
        };
        Ran {
            tally,
            failure: failure.map(str::to_owned),
        }
    }

    fn sum(host: Ran, device: Ran, expected: usize) -> (String, bool, usize) {
        let mut sum = Sum::default();
        sum.add("cargo test", host, None);
        sum.add("the device tests", device, Some(expected));
        (sum.line(), sum.good(), sum.faults.len())
    }

    #[test]
    fn what_ran_beside_the_device_is_not_skipped() {
        let sum = sum(ran(100, 0, 25, None), ran(23, 0, 0, None), 23);
        assert_eq!(
            sum,
            (
                "rdmacm: 123 passed, 0 failed, 2 skipped".to_owned(),
                true,
                0
            )
        );
    }

    #[test]
    fn a_failed_test_is_counted_once() {
        let sum = sum(ran(100, 0, 3, None), ran(2, 1, 0, Some("status 1")), 3);
        assert_eq!(
            sum,
            (
                "rdmacm: 102 passed, 1 failed, 0 skipped".to_owned(),
                false,
                1
            )
        );
    }

    #[test]
    fn lost_tests_have_failed() {
        let crashed = sum(ran(100, 0, 3, None), ran(1, 0, 0, Some("status 1")), 3);
        assert_eq!(
            crashed,
            (
                "rdmacm: 101 passed, 2 failed, 0 skipped".to_owned(),
                false,
                1
            )
        );
        let silent = sum(ran(100, 0, 3, None), ran(0, 0, 0, None), 3);
        assert_eq!(
            silent,
            (
                "rdmacm: 100 passed, 3 failed, 0 skipped".to_owned(),
                false,
                1
            )
        );
    }

    #[test]
    fn a_failure_without_a_failed_test_is_one() {
        let sum = sum(
            ran(100, 0, 0, Some("exit status: 101")),
            ran(3, 0, 0, None),
            3,
        );
        assert_eq!(
            sum,
            (
                "rdmacm: 103 passed, 1 failed, 0 skipped".to_owned(),
                false,
                1
            )
        );
    }
}

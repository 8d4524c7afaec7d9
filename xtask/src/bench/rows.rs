//! What is measured: the jobs, and the rows of the table that they fill.

use anyhow::Result;

use super::{cmtime, perftest, runs, samples::Who};

/// A line of the table: one figure that each run gives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// As in the results; no other row has it.
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) judged: Judged,
}

/// Which figure is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

/// What is compared. The bound is how much worse than C this crate may be: a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Judged {
    /// The best of all runs. Out of bounds is only what is also further from C than C from itself.
    Best { bound: f64 },
    /// The median of the ratios of the pairs, a pair being the two runs of one round. What is worse than C at all must
    /// also be as near as half of the ratios of C to itself are.
    Pairs { bound: f64 },
    /// Nothing: the ratios are told. That of the pairs is the one in the results.
    Not,
}

/// A server and a client that are run together, and give the figures of some rows.
pub(crate) trait Job {
    /// What a run gives, in this order.
    fn rows(&self) -> Vec<Row>;

    /// What both programs do alike, in a line.
    fn conditions(&self) -> String;

    /// How many rounds it takes part in, when not in all: they are spread over the others.
    fn at_most(&self) -> Option<u32> {
        None
    }

    /// Makes a run beside the device, on a port that no run had before, and gives a figure for each row.
    fn run(&self, place: &runs::Args, who: Who, port: u16) -> Result<Vec<f64>>;
}

/// All there is to measure, or the part of it that is for a quick look.
pub(crate) fn jobs(quick: bool) -> Vec<Box<dyn Job>> {
    let mut jobs: Vec<Box<dyn Job>> = Vec::new();
    for job in perftest::jobs(quick) {
        jobs.push(Box::new(job));
    }
    jobs.extend(cmtime::jobs(quick));
    jobs
}

/// Whether a job that takes part in `at_most` of `rounds` does so in this one.
pub(crate) fn takes_part(at_most: Option<u32>, round: u32, rounds: u32) -> bool {
    at_most.is_none_or(|runs| {
        let runs = u64::from(runs.min(rounds));
        let until = |round: u64| (round * runs).div_ceil(rounds.into());
        until(u64::from(round) + 1) > until(round.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_job_of_few_runs_is_spread_over_the_rounds() {
        let rounds = |at_most, rounds| -> Vec<u32> {
            (0..rounds)
                .filter(|round| takes_part(at_most, *round, rounds))
                .collect()
        };
        assert_eq!(rounds(Some(3), 15), [0, 5, 10]);
        assert_eq!(rounds(Some(3), 2), [0, 1]);
        assert_eq!(rounds(None, 3), [0, 1, 2]);
    }

    #[test]
    fn no_two_rows_have_the_same_name() {
        let mut seen = HashSet::new();
        for row in jobs(false).iter().flat_map(|job| job.rows()) {
            assert!(seen.insert(row.name.clone()), "{} is there twice", row.name);
        }
        for row in jobs(true).iter().flat_map(|job| job.rows()) {
            assert!(
                seen.contains(&row.name),
                "only the quick look has {}",
                row.name
            );
        }
    }
}

//! What the figures of a row say.

use std::fmt;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{
    rows::{Better, Judged, Row},
    samples::{Sample, Who},
};

/// All runs of a row.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) row: Row,
    /// C's, ours, and C's once more.
    pub(crate) runs: [Runs; 3],
    /// Ours by C's, of the runs of the same round.
    pub(crate) pairs: Spread,
    /// C's by C's, likewise.
    pub(crate) null_pairs: Spread,
}

/// The runs of one program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Runs {
    count: usize,
    pub(crate) best: f64,
    pub(crate) median: f64,
}

impl Runs {
    fn new(better: Better, runs: &[(u32, f64)]) -> Option<Self> {
        let mut figures: Vec<f64> = runs.iter().map(|(_, figure)| *figure).collect();
        figures.sort_by(f64::total_cmp);
        if better == Better::More {
            figures.reverse();
        }
        Some(Self {
            count: figures.len(),
            best: *figures.first()?,
            median: figures[figures.len() / 2],
        })
    }
}

impl Summary {
    pub(crate) fn new(row: Row, samples: &[Sample]) -> Result<Self> {
        let of = |who: Who| -> Vec<(u32, f64)> {
            samples
                .iter()
                .filter(|sample| sample.row == row.name && sample.who == who)
                .map(|sample| (sample.round, sample.figure))
                .collect()
        };
        let [c, rust, again] = Who::ALL.map(of);
        let spreads = (Spread::of(&rust, &c), Spread::of(&again, &c));
        let (Some(pairs), Some(null_pairs)) = spreads else {
            bail!("no round has a run of {} by each", row.name);
        };
        let runs = [&c, &rust, &again].map(|runs| Runs::new(row.better, runs));
        let [Some(c), Some(rust), Some(again)] = runs else {
            bail!("there was no run of {}", row.name);
        };
        Ok(Self {
            row,
            runs: [c, rust, again],
            pairs,
            null_pairs,
        })
    }

    /// How many runs each program has.
    pub(crate) fn count(&self) -> usize {
        self.runs
            .map(|runs| runs.count)
            .into_iter()
            .min()
            .unwrap_or(0)
    }

    /// What is judged: ours by C's.
    fn ratio(&self) -> f64 {
        let [c, rust, _] = self.runs;
        match self.row.judged {
            Judged::Best { .. } => rust.best / c.best,
            Judged::Pairs { .. } | Judged::Not => self.pairs.median,
        }
    }

    /// C's by C's, likewise.
    fn null_ratio(&self) -> f64 {
        let [c, _, again] = self.runs;
        match self.row.judged {
            Judged::Best { .. } => again.best / c.best,
            Judged::Pairs { .. } | Judged::Not => self.null_pairs.median,
        }
    }

    /// A ratio beyond this is out of bounds.
    fn limit(&self) -> f64 {
        let null = self.null_ratio();
        match (self.row.judged, self.row.better) {
            // C is that far from itself, or may be.
            (Judged::Best { bound }, Better::Less) => bound.max(null).max(1.0 / null),
            (Judged::Best { bound }, Better::More) => bound.min(null).min(1.0 / null),
            (Judged::Pairs { bound }, Better::Less) => bound.min(self.null_pairs.upper.max(1.0)),
            (Judged::Pairs { bound }, Better::More) => bound.max(self.null_pairs.lower.min(1.0)),
            (Judged::Not, Better::Less) => f64::INFINITY,
            (Judged::Not, Better::More) => 0.0,
        }
    }

    pub(crate) fn good(&self) -> bool {
        match self.row.better {
            Better::Less => self.ratio() <= self.limit(),
            Better::More => self.ratio() >= self.limit(),
        }
    }

    /// What is wrong, if something is.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.good() {
            return None;
        }
        let [c, rust, _] = self.runs;
        let (of, ours, c) = match self.row.judged {
            Judged::Best { .. } => ("best", rust.best, c.best),
            Judged::Pairs { .. } | Judged::Not => ("median", rust.median, c.median),
        };
        let side = match self.row.better {
            Better::Less => "at most",
            Better::More => "at least",
        };
        Some(format!(
            "{}: the {of} is {ours:.2} {unit}, and C's is {c:.2} {unit}: {:.3} times, {side} {:.3} is allowed",
            self.row.name,
            self.ratio(),
            self.limit(),
            unit = self.row.unit
        ))
    }

    /// For the list of results.
    pub(crate) fn to_json(&self) -> Value {
        let [c, rust, again] = self.runs;
        json!({
            "name": self.row.name,
            "unit": self.row.unit,
            "runs": self.count(),
            "c_best": c.best,
            "rust_best": rust.best,
            "c_median": c.median,
            "rust_median": rust.median,
            "ratio": self.ratio(),
            "null_ratio": self.null_ratio(),
            "limit": self.limit(),
            "ok": self.good(),
            "median_ratio": rust.median / c.median,
            "median_null_ratio": again.median / c.median,
            "pairs": self.pairs.to_json(),
            "null_pairs": self.null_pairs.to_json(),
        })
    }
}

/// What lies between the quarters of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    lower: f64,
    median: f64,
    upper: f64,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}-{:.3}", self.lower, self.upper)
    }
}

impl Spread {
    /// The ratios of the runs of the same round.
    fn of(ours: &[(u32, f64)], theirs: &[(u32, f64)]) -> Option<Self> {
        let mut ratios: Vec<f64> = ours
            .iter()
            .filter_map(|(round, ours)| {
                let (_, theirs) = theirs.iter().find(|(other, _)| other == round)?;
                Some(ours / theirs)
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len().checked_sub(1)?;
        Some(Self {
            lower: ratios[last / 4],
            median: ratios[ratios.len() / 2],
            upper: ratios[last - last / 4],
        })
    }

    fn to_json(self) -> Value {
        json!([self.lower, self.median, self.upper])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn row(name: &str, unit: &'static str, better: Better, judged: Judged) -> Row {
        Row {
            name: name.into(),
            unit,
            better,
            judged,
        }
    }

    pub(crate) fn latency(name: &str) -> Row {
        row(name, "us", Better::Less, Judged::Best { bound: 1.05 })
    }

    pub(crate) fn bandwidth(name: &str) -> Row {
        row(name, "MiB/s", Better::More, Judged::Best { bound: 0.95 })
    }

    fn pairs() -> Row {
        let judged = Judged::Pairs { bound: 1.05 };
        row("a row", "us", Better::Less, judged)
    }

    pub(crate) fn summary(row: Row, c: &[f64], rust: &[f64], again: &[f64]) -> Summary {
        let each = [(Who::C, c), (Who::Rust, rust), (Who::Again, again)];
        let samples: Vec<Sample> = each
            .into_iter()
            .flat_map(|(who, figures)| (0..).zip(figures).map(move |figure| (who, figure)))
            .map(|(who, (round, figure))| Sample {
                round,
                who,
                figure: *figure,
                row: row.name.clone(),
            })
            .collect();
        Summary::new(row, &samples).unwrap()
    }

    #[test]
    fn the_best_latency_is_the_least_and_the_best_bandwidth_the_most() {
        let latency = summary(
            latency("a row"),
            &[12.0, 10.0, 20.0],
            &[15.0, 11.0, 14.0],
            &[10.0],
        );
        let [c, rust, _] = latency.runs;
        assert_eq!((c.best, c.median), (10.0, 12.0));
        assert_eq!((rust.best, rust.median), (11.0, 14.0));
        assert_eq!(
            latency.fault().unwrap(),
            "a row: the best is 11.00 us, and C's is 10.00 us: 1.100 times, at most 1.050 is allowed"
        );
        let wide = summary(
            bandwidth("a row"),
            &[40.0, 30.0],
            &[38.0, 20.0],
            &[40.0, 39.0],
        );
        let [c, rust, _] = wide.runs;
        assert_eq!((c.best, rust.best), (40.0, 38.0));
        assert_eq!(wide.fault(), None);
        assert!(
            summary(bandwidth("a row"), &[40.0], &[37.9], &[40.0])
                .fault()
                .is_some()
        );
    }

    #[test]
    fn what_c_differs_from_itself_is_allowed_either_way() {
        for again in [9.0, 11.2] {
            assert_eq!(
                summary(latency("a row"), &[10.0], &[11.1], &[again]).fault(),
                None
            );
            assert_eq!(
                summary(bandwidth("a row"), &[10.0], &[9.0], &[again]).fault(),
                None
            );
        }
        assert!(
            summary(latency("a row"), &[10.0], &[11.3], &[11.2])
                .fault()
                .is_some()
        );
    }

    #[test]
    fn pairs_are_of_the_same_round() {
        // 1.1, 1.2 and 1.0, whatever a round's own speed.
        let slow = summary(
            pairs(),
            &[10.0, 20.0, 30.0],
            &[11.0, 24.0, 30.0],
            &[10.0, 20.0, 30.0],
        );
        assert_eq!((slow.ratio(), slow.null_ratio()), (1.1, 1.0));
        assert_eq!(
            slow.fault().unwrap(),
            "a row: the median is 24.00 us, and C's is 20.00 us: 1.100 times, at most 1.000 is allowed"
        );
    }

    #[test]
    fn a_median_worse_than_c_must_be_within_what_c_differs_from_itself_and_within_the_bound() {
        let c = [10.0; 5];
        let of = |ours: f64, again: [f64; 5]| summary(pairs(), &c, &[ours; 5], &again).fault();
        let near = [9.7, 9.9, 10.0, 10.1, 10.3];
        assert_eq!(of(9.0, near), None);
        assert_eq!(of(10.0, near), None);
        assert_eq!(of(10.1, near), None);
        assert!(
            of(10.2, near)
                .unwrap()
                .ends_with("at most 1.010 is allowed")
        );
        let far = [5.0, 8.0, 10.0, 12.0, 15.0];
        assert_eq!(of(10.5, far), None);
        assert!(of(10.6, far).unwrap().ends_with("at most 1.050 is allowed"));
    }

    #[test]
    fn the_results_have_their_fields() {
        let value = summary(latency("a row"), &[10.0], &[11.0], &[10.0]).to_json();
        assert_eq!(value["name"], "a row");
        assert_eq!(value["ratio"], 1.1);
        for field in [
            "unit",
            "runs",
            "c_best",
            "rust_best",
            "c_median",
            "rust_median",
            "null_ratio",
        ] {
            assert!(!value[field].is_null(), "{field}");
        }
    }

    #[test]
    fn a_row_without_runs_is_an_error() {
        let told = Summary::new(latency("a row"), &[]).unwrap_err().to_string();
        assert_eq!(told, "no round has a run of a row by each");
    }
}

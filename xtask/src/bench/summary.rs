//! What the figures of a row say.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{
    rows::{Better, Judged, Row},
    samples::{Sample, Who},
};

/// All runs of a row.
#[derive(Debug)]
pub(crate) struct Summary {
    row: Row,
    pub(crate) runs: usize,
    c_best: f64,
    rust_best: f64,
    c_median: f64,
    rust_median: f64,
    /// Ours by C's, of the best or of the pairs, as the row is judged.
    ratio: f64,
    /// C's by C's, likewise.
    null_ratio: f64,
    /// The ratios of the pairs.
    pairs: Spread,
    null_pairs: Spread,
}

pub(crate) const HEAD: &str = "row                        best: C     Rust  ratio C by C  median: C     Rust  ratio C by C  half of the pairs, C by C     runs";

impl Summary {
    pub(crate) fn new(row: Row, samples: &[Sample]) -> Result<Self> {
        let of = |who: Who| {
            samples
                .iter()
                .filter(|sample| sample.row == row.name && sample.who == who)
                .map(|sample| (sample.round, sample.figure))
                .collect::<Vec<_>>()
        };
        let (c, rust, again) = (of(Who::C), of(Who::Rust), of(Who::Again));
        for (who, runs) in [(Who::C, &c), (Who::Rust, &rust), (Who::Again, &again)] {
            if runs.is_empty() {
                bail!("there was no run of {} ({who})", row.name);
            }
        }
        let (Some(pairs), Some(null_pairs)) = (Spread::of(&rust, &c), Spread::of(&again, &c))
        else {
            bail!("no round has a run of {} by each", row.name);
        };
        let runs = c.len().min(rust.len()).min(again.len());
        let [c, rust, again] = [c, rust, again].map(|runs| best_first(row.better, &runs));
        let (ratio, null_ratio) = match row.judged {
            Judged::Best { .. } => (rust[0] / c[0], again[0] / c[0]),
            Judged::Pairs { .. } => (pairs.median, null_pairs.median),
        };
        Ok(Self {
            row,
            runs,
            c_best: c[0],
            rust_best: rust[0],
            c_median: c[c.len() / 2],
            rust_median: rust[rust.len() / 2],
            ratio,
            null_ratio,
            pairs,
            null_pairs,
        })
    }

    /// A ratio beyond this is out of bounds.
    fn limit(&self) -> f64 {
        match (self.row.judged, self.row.better) {
            // C is that far from itself, or may be.
            (Judged::Best { bound }, Better::Less) => {
                bound.max(self.null_ratio).max(1.0 / self.null_ratio)
            }
            (Judged::Best { bound }, Better::More) => {
                bound.min(self.null_ratio).min(1.0 / self.null_ratio)
            }
            (Judged::Pairs { bound }, Better::Less) => bound.min(self.null_pairs.upper.max(1.0)),
            (Judged::Pairs { bound }, Better::More) => bound.max(self.null_pairs.lower.min(1.0)),
        }
    }

    fn good(&self) -> bool {
        match self.row.better {
            Better::Less => self.ratio <= self.limit(),
            Better::More => self.ratio >= self.limit(),
        }
    }

    /// What is wrong, if something is.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.good() {
            return None;
        }
        let (of, ours, c) = match self.row.judged {
            Judged::Best { .. } => ("best", self.rust_best, self.c_best),
            Judged::Pairs { .. } => ("median", self.rust_median, self.c_median),
        };
        let side = match self.row.better {
            Better::Less => "at most",
            Better::More => "at least",
        };
        Some(format!(
            "{}: the {of} is {ours:.2} {unit}, and C's is {c:.2} {unit}: {:.3} times, {side} {:.3} is allowed",
            self.row.name,
            self.ratio,
            self.limit(),
            unit = self.row.unit
        ))
    }

    /// A line of the table.
    pub(crate) fn line(&self) -> String {
        let Self {
            pairs, null_pairs, ..
        } = self;
        format!(
            "{:<22} {:>11.2} {:>8.2}  {:>5.3}  {:>5.3} {:>10.2} {:>8.2}  {:>5.3}  {:>5.3}  {:>5.3}-{:<5.3}  {:>5.3}-{:<5.3}  {:<6} {:>2} {}",
            self.row.name,
            self.c_best,
            self.rust_best,
            self.ratio,
            self.null_ratio,
            self.c_median,
            self.rust_median,
            pairs.median,
            null_pairs.median,
            pairs.lower,
            pairs.upper,
            null_pairs.lower,
            null_pairs.upper,
            self.row.unit,
            self.runs,
            if self.good() { "ok" } else { "OUT" }
        )
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.row.name,
            "unit": self.row.unit,
            "runs": self.runs,
            "c_best": self.c_best,
            "rust_best": self.rust_best,
            "c_median": self.c_median,
            "rust_median": self.rust_median,
            "ratio": self.ratio,
            "null_ratio": self.null_ratio,
        })
    }
}

fn best_first(better: Better, runs: &[(u32, f64)]) -> Vec<f64> {
    let mut figures: Vec<f64> = runs.iter().map(|(_, figure)| *figure).collect();
    figures.sort_by(f64::total_cmp);
    if better == Better::More {
        figures.reverse();
    }
    figures
}

/// What lies between the quarters of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    lower: f64,
    median: f64,
    upper: f64,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(better: Better, judged: Judged) -> Row {
        Row {
            name: "a row".into(),
            unit: "us",
            better,
            judged,
        }
    }

    fn latency() -> Row {
        row(Better::Less, Judged::Best { bound: 1.05 })
    }

    fn bandwidth() -> Row {
        row(Better::More, Judged::Best { bound: 0.95 })
    }

    fn pairs() -> Row {
        row(Better::Less, Judged::Pairs { bound: 1.05 })
    }

    fn summary(row: Row, c: &[f64], rust: &[f64], again: &[f64]) -> Summary {
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
        let latency = summary(latency(), &[12.0, 10.0, 20.0], &[15.0, 11.0, 14.0], &[10.0]);
        assert_eq!((latency.c_best, latency.c_median), (10.0, 12.0));
        assert_eq!((latency.rust_best, latency.rust_median), (11.0, 14.0));
        assert_eq!(
            latency.fault().unwrap(),
            "a row: the best is 11.00 us, and C's is 10.00 us: 1.100 times, at most 1.050 is allowed"
        );
        let wide = summary(bandwidth(), &[40.0, 30.0], &[38.0, 20.0], &[40.0, 39.0]);
        assert_eq!((wide.c_best, wide.rust_best), (40.0, 38.0));
        assert_eq!(wide.fault(), None);
        assert!(
            summary(bandwidth(), &[40.0], &[37.9], &[40.0])
                .fault()
                .is_some()
        );
    }

    #[test]
    fn what_c_differs_from_itself_is_allowed_either_way() {
        for again in [9.0, 11.2] {
            assert_eq!(summary(latency(), &[10.0], &[11.1], &[again]).fault(), None);
            assert_eq!(
                summary(bandwidth(), &[10.0], &[9.0], &[again]).fault(),
                None
            );
        }
        assert!(
            summary(latency(), &[10.0], &[11.3], &[11.2])
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
        assert_eq!((slow.ratio, slow.null_ratio), (1.1, 1.0));
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
        let value = summary(latency(), &[10.0], &[11.0], &[10.0]).to_json();
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
        let told = Summary::new(latency(), &[]).unwrap_err().to_string();
        assert_eq!(told, "there was no run of a row (c)");
    }
}

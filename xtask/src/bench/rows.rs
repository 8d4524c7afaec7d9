//! What is measured, and what the figures say.

use std::fmt;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// A test of perftest, and of ours under the same name.
#[derive(Debug)]
pub(crate) struct Row {
    /// Without the `ib_`.
    pub(crate) test: &'static str,
    pub(crate) kind: Kind,
    pub(crate) size: u32,
    pub(crate) iters: u32,
    /// How many requests may be outstanding.
    pub(crate) depth: u32,
    /// Whether perftest has to be told that nothing is inline.
    pub(crate) may_inline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Less is better.
    Latency,
    /// More is better.
    Bandwidth,
}

impl Row {
    const fn latency(test: &'static str, may_inline: bool) -> Self {
        Self {
            test,
            kind: Kind::Latency,
            size: 64,
            iters: 5000,
            depth: 1,
            may_inline,
        }
    }

    const fn bandwidth(test: &'static str) -> Self {
        Self {
            test,
            kind: Kind::Bandwidth,
            size: 65536,
            iters: 300,
            depth: 128,
            may_inline: false,
        }
    }

    /// What both programs do alike.
    pub(crate) fn conditions(&self) -> String {
        format!(
            "{:<9} {:>5} bytes, {} iterations, {} outstanding, each signalled, inline size 0, server on processor 0, client on 1",
            self.test, self.size, self.iters, self.depth
        )
    }
}

pub(crate) const ROWS: &[Row] = &[
    Row::latency("send_lat", true),
    Row::latency("write_lat", true),
    Row::latency("read_lat", false),
    Row::bandwidth("send_bw"),
    Row::bandwidth("write_bw"),
    Row::bandwidth("read_bw"),
];

/// Whose run it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    C,
    Rust,
    /// C once more, beside itself.
    Again,
}

impl Who {
    pub(crate) const ALL: [Self; 3] = [Self::C, Self::Rust, Self::Again];
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::C => "c",
            Self::Rust => "rust",
            Self::Again => "again",
        })
    }
}

/// What one run gave.
#[derive(Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) test: String,
    pub(crate) who: Who,
    pub(crate) figure: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.test, self.who, self.figure)
    }
}

/// The samples, a line each.
pub(crate) fn samples(text: &str) -> Result<Vec<Sample>> {
    text.lines()
        .map(|line| sample(line).with_context(|| format!("`{line}` is no figure of a run")))
        .collect()
}

fn sample(line: &str) -> Option<Sample> {
    let mut words = line.split_whitespace();
    let (test, who, figure) = (words.next()?, words.next()?, words.next()?);
    Some(Sample {
        test: test.to_owned(),
        who: Who::ALL
            .into_iter()
            .find(|known| known.to_string() == who)?,
        figure: figure.parse().ok()?,
    })
}

/// All runs of a row.
#[derive(Debug)]
pub(crate) struct Summary {
    row: &'static Row,
    pub(crate) runs: usize,
    c_best: f64,
    rust_best: f64,
    c_median: f64,
    rust_median: f64,
    /// Ours by C's, of the best.
    ratio: f64,
    /// C's by C's.
    null_ratio: f64,
}

/// How much the best of ours may be worse than C's best.
const LATENCY_BOUND: f64 = 1.05;
const BANDWIDTH_BOUND: f64 = 0.95;

pub(crate) const HEAD: &str =
    "            best: C     Rust  ratio  C by C   median: C     Rust           runs";

impl Summary {
    pub(crate) fn new(row: &'static Row, samples: &[Sample]) -> Result<Self> {
        let of = |who: Who| -> Result<Vec<f64>> {
            let mut figures: Vec<f64> = samples
                .iter()
                .filter(|sample| sample.test == row.test && sample.who == who)
                .map(|sample| sample.figure)
                .collect();
            figures.sort_by(f64::total_cmp);
            if row.kind == Kind::Bandwidth {
                figures.reverse();
            }
            if figures.is_empty() {
                anyhow::bail!("there was no run of {} ({who})", row.test);
            }
            Ok(figures)
        };
        let (c, rust, again) = (of(Who::C)?, of(Who::Rust)?, of(Who::Again)?);
        Ok(Self {
            row,
            runs: c.len().min(rust.len()).min(again.len()),
            c_best: c[0],
            rust_best: rust[0],
            c_median: c[c.len() / 2],
            rust_median: rust[rust.len() / 2],
            ratio: rust[0] / c[0],
            null_ratio: again[0] / c[0],
        })
    }

    /// A ratio beyond this is out of bounds: C is that far from itself, or may be.
    fn limit(&self) -> f64 {
        match self.row.kind {
            Kind::Latency => LATENCY_BOUND
                .max(self.null_ratio)
                .max(1.0 / self.null_ratio),
            Kind::Bandwidth => BANDWIDTH_BOUND
                .min(self.null_ratio)
                .min(1.0 / self.null_ratio),
        }
    }

    fn good(&self) -> bool {
        match self.row.kind {
            Kind::Latency => self.ratio <= self.limit(),
            Kind::Bandwidth => self.ratio >= self.limit(),
        }
    }

    fn unit(&self) -> &'static str {
        match self.row.kind {
            Kind::Latency => "us",
            Kind::Bandwidth => "MiB/s",
        }
    }

    /// What is wrong, if something is.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.good() {
            return None;
        }
        let side = match self.row.kind {
            Kind::Latency => "at most",
            Kind::Bandwidth => "at least",
        };
        Some(format!(
            "{}: the best is {:.2} {unit}, and C's is {:.2} {unit}: {:.3} times, {side} {:.3} is allowed",
            self.row.test,
            self.rust_best,
            self.c_best,
            self.ratio,
            self.limit(),
            unit = self.unit()
        ))
    }

    /// A line of the table.
    pub(crate) fn line(&self) -> String {
        format!(
            "{:<9} {:>9.2} {:>8.2} {:>6.3} {:>7.3} {:>11.2} {:>8.2}  {:<6} {:>6}  {}",
            self.row.test,
            self.c_best,
            self.rust_best,
            self.ratio,
            self.null_ratio,
            self.c_median,
            self.rust_median,
            self.unit(),
            self.runs,
            if self.good() { "ok" } else { "OUT" }
        )
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": format!("{} {}", self.row.test, self.row.size),
            "unit": self.unit(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(row: &'static Row, c: &[f64], rust: &[f64], again: &[f64]) -> Summary {
        let each = [(Who::C, c), (Who::Rust, rust), (Who::Again, again)];
        let text: Vec<String> = each
            .into_iter()
            .flat_map(|(who, figures)| figures.iter().map(move |figure| (who, figure)))
            .map(|(who, figure)| format!("{} {who} {figure}", row.test))
            .collect();
        Summary::new(row, &samples(&text.join("\n")).unwrap()).unwrap()
    }

    #[test]
    fn the_best_latency_is_the_least_and_the_best_bandwidth_the_most() {
        let latency = summary(&ROWS[0], &[12.0, 10.0, 20.0], &[15.0, 11.0, 14.0], &[10.0]);
        assert_eq!((latency.c_best, latency.c_median), (10.0, 12.0));
        assert_eq!((latency.rust_best, latency.rust_median), (11.0, 14.0));
        assert_eq!(
            latency.fault().unwrap(),
            "send_lat: the best is 11.00 us, and C's is 10.00 us: 1.100 times, at most 1.050 is allowed"
        );
        let bandwidth = summary(&ROWS[3], &[40.0, 30.0], &[38.0, 20.0], &[40.0, 39.0]);
        assert_eq!((bandwidth.c_best, bandwidth.rust_best), (40.0, 38.0));
        assert_eq!(bandwidth.fault(), None);
        assert!(
            summary(&ROWS[3], &[40.0], &[37.9], &[40.0])
                .fault()
                .is_some()
        );
    }

    #[test]
    fn what_c_differs_from_itself_is_allowed_either_way() {
        for again in [9.0, 11.2] {
            assert_eq!(summary(&ROWS[0], &[10.0], &[11.1], &[again]).fault(), None);
            assert_eq!(summary(&ROWS[3], &[10.0], &[9.0], &[again]).fault(), None);
        }
        assert!(
            summary(&ROWS[0], &[10.0], &[11.3], &[11.2])
                .fault()
                .is_some()
        );
    }

    #[test]
    fn the_results_have_their_fields() {
        let value = summary(&ROWS[0], &[10.0], &[11.0], &[10.0]).to_json();
        assert_eq!(value["name"], "send_lat 64");
        assert_eq!(value["ratio"], 1.1);
        assert_eq!(value.as_object().unwrap().len(), 9);
    }

    #[test]
    fn a_row_without_runs_is_an_error() {
        assert!(Summary::new(&ROWS[0], &[]).is_err());
        assert!(samples("send_lat c many").is_err());
    }
}

//! What the runs say: a line of text for each figure.

use std::fmt;

use anyhow::{Context as _, Result};

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

/// What one run gave for a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) round: u32,
    pub(crate) who: Who,
    pub(crate) figure: f64,
    /// The row's name.
    pub(crate) row: String,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.round, self.who, self.figure, self.row
        )
    }
}

/// The samples, a line each.
pub(crate) fn read(text: &str) -> Result<Vec<Sample>> {
    text.lines()
        .map(|line| sample(line).with_context(|| format!("`{line}` is no figure of a run")))
        .collect()
}

fn sample(line: &str) -> Option<Sample> {
    let mut words = line.splitn(4, ' ');
    let (round, who, figure) = (words.next()?, words.next()?, words.next()?);
    Some(Sample {
        round: round.parse().ok()?,
        who: Who::ALL
            .into_iter()
            .find(|known| known.to_string() == who)?,
        figure: figure.parse().ok()?,
        row: words.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_read_as_it_was_written() {
        let sample = Sample {
            round: 3,
            who: Who::Again,
            figure: 17.25,
            row: "send_lat 64".into(),
        };
        assert_eq!(sample.to_string(), "3 again 17.25 send_lat 64");
        assert_eq!(read(&sample.to_string()).unwrap(), [sample]);
    }

    #[test]
    fn what_is_no_sample_is_an_error() {
        for line in [
            "3 c many send_lat 64",
            "3 we 1.5 send_lat 64",
            "3 c 1.5",
            "",
        ] {
            let told = read(&format!("{line}\n")).unwrap_err().to_string();
            assert_eq!(told, format!("`{line}` is no figure of a run"));
        }
    }
}

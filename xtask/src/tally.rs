//! What test programs say of their tests, read while it goes by: the `test result:` lines, summed up, and which tests failed.

use std::{
    io::{self, Write},
    ops::AddAssign,
    sync::{Arc, Mutex, PoisonError},
};

/// A sum over `test result:` lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many such lines there were.
    pub(crate) lines: usize,
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests that were not run.
    pub(crate) ignored: usize,
}

impl Tally {
    /// Tests that ran.
    pub(crate) fn ran(self) -> usize {
        self.passed + self.failed
    }

    /// Reads a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; ...`.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let counts = line.trim().strip_prefix("test result: ")?;
        let (_verdict, counts) = counts.split_once(". ")?;
        let mut tally = Self {
            lines: 1,
            ..Self::default()
        };
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else {
                continue;
            };
            match what {
                "passed" => tally.passed = number.parse().ok()?,
                "failed" => tally.failed = number.parse().ok()?,
                "ignored" => tally.ignored = number.parse().ok()?,
                _ => {}
            }
        }
        Some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.lines += other.lines;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Reads a line such as `test a_module::a_test ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (verdict.trim_end() == "FAILED").then_some(name)
}

/// What the lines have said so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The `test result:` lines.
    pub(crate) tally: Tally,
    /// The names of tests that failed.
    pub(crate) failed: Vec<String>,
}

impl Seen {
    fn line(&mut self, line: &str) {
        if let Some(result) = Tally::of_line(line) {
            self.tally += result;
        } else if let Some(name) = failed_test(line) {
            self.failed.push(name.to_owned());
        }
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.tally += other.tally;
        self.failed.extend(other.failed);
    }
}

/// No result line is longer; of a longer line only the beginning is kept.
const LONGEST_LINE: usize = 1024;

/// A writer that passes everything on at once, and reads the lines among it that tell of tests.
#[derive(Debug)]
pub(crate) struct Counting<W> {
    to: W,
    line: Vec<u8>,
    seen: Arc<Mutex<Seen>>,
}

impl<W: Write> Counting<W> {
    pub(crate) fn new(to: W) -> Self {
        Self {
            to,
            line: Vec::new(),
            seen: Arc::default(),
        }
    }

    /// A view of what was seen, which stays when the writer has gone.
    pub(crate) fn seen(&self) -> Arc<Mutex<Seen>> {
        Arc::clone(&self.seen)
    }
}

/// What was seen; a thread that panicked while it was adding has not spoiled it.
pub(crate) fn read(seen: &Mutex<Seen>) -> Seen {
    seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        for &byte in bytes.iter().take(count) {
            if byte != b'\n' {
                if self.line.len() < LONGEST_LINE {
                    self.line.push(byte);
                }
                continue;
            }
            self.seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .line(&String::from_utf8_lossy(&self.line));
            self.line.clear();
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";
    const FAILED: &str = "test result: FAILED. 0 passed; 12 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s";

    #[test]
    fn result_lines_are_read() {
        assert_eq!(
            Tally::of_line(OK),
            Some(Tally {
                lines: 1,
                passed: 3,
                failed: 0,
                ignored: 1
            })
        );
        assert_eq!(
            Tally::of_line(&format!("{FAILED}\r\n")),
            Some(Tally {
                lines: 1,
                passed: 0,
                failed: 12,
                ignored: 0
            })
        );
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "",
            "test accept ... ok",
            "the test result: ok. 3 passed",
            "test result: none",
            "running 3 tests",
        ] {
            assert_eq!(Tally::of_line(line), None, "{line:?}");
        }
    }

    #[test]
    fn sums_do_not_depend_on_where_the_pieces_break() {
        let text = format!(
            "running 4 tests\ntest a::b ... FAILED\ntest c ... ok\n{OK}\n\n{FAILED}\nno newline at the end, test result"
        );
        for size in [1, 7, text.len()] {
            let mut passed_on = Vec::new();
            let mut counting = Counting::new(&mut passed_on);
            let seen = counting.seen();
            for piece in text.as_bytes().chunks(size) {
                counting
                    .write_all(piece)
                    .expect("a vector takes everything");
            }
            assert_eq!(
                read(&seen),
                Seen {
                    tally: Tally {
                        lines: 2,
                        passed: 3,
                        failed: 12,
                        ignored: 1
                    },
                    failed: vec!["a::b".to_owned()],
                }
            );
            assert_eq!(passed_on, text.as_bytes());
        }
    }
}

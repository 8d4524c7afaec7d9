//! The rows: what the C loops cost when they were recorded, and what ours may cost beyond.

/// The three ways to write a loop in C.
pub(crate) const WAYS: [&str; 3] = ["kept", "written", "books"];
const KEPT: usize = 0;
const WRITTEN: usize = 1;
const BOOKS: usize = 2;

/// How far a C loop may be from its recorded figure, so that a slow one cannot help.
const CHANGE: f64 = 3.0;

/// What a batch may cost beyond C's books.
pub(crate) const BATCH_BOUND: f64 = 25.0;

/// One kind of work.
#[derive(Debug)]
pub(crate) struct Row {
    /// What its loops are named after.
    pub(crate) key: &'static str,
    /// For a person.
    name: &'static str,
    /// Instructions for a request of each C loop, as gcc 12 compiles them.
    recorded: [f64; WAYS.len()],
    pub(crate) rust: &'static [Rust],
}

/// A loop of ours.
#[derive(Debug)]
pub(crate) struct Rust {
    /// What its name has after the row's.
    pub(crate) suffix: &'static str,
    name: &'static str,
    /// What it is compared with.
    over: usize,
    bound: Option<f64>,
    /// How many requests one round of the loop has.
    pub(crate) step: u64,
}

impl Rust {
    const fn safe(bound: f64) -> Self {
        Self {
            suffix: "",
            name: "",
            over: KEPT,
            bound: Some(bound),
            step: 1,
        }
    }

    const fn named(mut self, suffix: &'static str, name: &'static str) -> Self {
        self.suffix = suffix;
        self.name = name;
        self
    }

    const fn over(mut self, way: usize) -> Self {
        self.over = way;
        self
    }

    const fn each(mut self, step: u64) -> Self {
        self.step = step;
        self
    }

    const fn unbounded(mut self) -> Self {
        self.bound = None;
        self
    }
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        key: "send",
        name: "send",
        recorded: [92.0, 117.0, 131.0],
        rust: &[
            Rust::safe(5.0).named("_raw", ", raw"),
            Rust::safe(40.0),
            Rust::safe(40.0).named("_scope", ", lent in a scope"),
            Rust::safe(0.0)
                .named("_free_list", ", free list")
                .over(BOOKS)
                .unbounded(),
        ],
    },
    Row {
        key: "receive",
        name: "receive",
        recorded: [100.0, 106.0, 120.0],
        rust: &[Rust::safe(40.0)],
    },
    Row {
        key: "shared",
        name: "shared receive",
        recorded: [101.0, 107.0, 121.0],
        rust: &[Rust::safe(45.0)],
    },
    Row {
        key: "inline",
        name: "inline, 32 bytes",
        recorded: [92.0, 117.0, 131.0],
        rust: &[Rust::safe(45.0)],
    },
    Row {
        key: "pairs",
        name: "8 pairs, one queue",
        recorded: [94.0, 119.0, 133.0],
        rust: &[Rust::safe(40.0)],
    },
    Row {
        key: "batch",
        name: "batch of 32",
        recorded: [61.8, 97.5, 94.9],
        rust: &[Rust::safe(BATCH_BOUND).over(BOOKS).each(32)],
    },
    Row {
        key: "batch_wr",
        name: "batch of 32, by calls",
        recorded: [69.7, 69.7, 78.7],
        // More than for a list. C's loop makes each call when it has the request, and so writes none: that spares it 16. Ours may
        // not, since a provider holds locks between the calls, and the program's code runs there: it writes the request, and
        // makes the calls in a walk over the list, which is 18. For a list, the walk is the provider's.
        // `cargo xtask overhead --librxe` counts the provider's part, too, and there the bound is that of a list.
        rust: &[Rust::safe(60.0).over(BOOKS).each(32)],
    },
    Row {
        key: "run",
        name: "15 unsignalled + 1",
        recorded: [43.1, 67.1, 72.7],
        rust: &[Rust::safe(60.0).over(WRITTEN).each(16)],
    },
    Row {
        key: "pieces",
        name: "two pieces",
        recorded: [94.0, 120.0, 134.0],
        rust: &[Rust::safe(0.0).unbounded()],
    },
];

pub(crate) const HEAD: &str =
    "instructions for a request      C kept  written    books     Rust            over  bound";

/// How a loop of ours stands.
#[derive(Debug)]
pub(crate) struct Verdict {
    figure: f64,
    over: f64,
    way: &'static str,
    bound: Option<f64>,
}

impl Verdict {
    pub(crate) fn new(rust: &Rust, c: &[f64; WAYS.len()], figure: f64) -> Self {
        Self::beyond(figure, c[rust.over], WAYS[rust.over], rust.bound)
    }

    /// A figure beside that of C's `way`.
    pub(crate) fn beyond(figure: f64, c: f64, way: &'static str, bound: Option<f64>) -> Self {
        Self {
            figure,
            over: figure - c,
            way,
            bound,
        }
    }

    /// What is wrong, if something is.
    pub(crate) fn fault(&self, name: &str) -> Option<String> {
        let bound = self.bound.filter(|bound| self.over > *bound)?;
        Some(format!(
            "{name}: {:.1} instructions for a request, {:.1} over C {}; the bound is {bound:.0}",
            self.figure, self.over, self.way
        ))
    }

    /// The end of a line of the table.
    pub(crate) fn columns(&self) -> String {
        let bound = match self.bound {
            None => "-".to_owned(),
            Some(bound) => {
                let good = self.fault("").is_none();
                format!("{bound:.0}  {}", if good { "ok" } else { "OUT" })
            }
        };
        let over = format!("{:+.1} {}", self.over, self.way);
        format!(" {:>8.1} {over:>15}  {bound}", self.figure)
    }
}

impl Row {
    /// What has changed in C, a line each.
    pub(crate) fn changed(&self, c: &[f64; WAYS.len()]) -> Vec<String> {
        WAYS.iter()
            .zip(c.iter().zip(self.recorded))
            .filter(|(_, (now, then))| (*now - then).abs() > CHANGE)
            .map(|(way, (now, then))| {
                format!(
                    "{}: C {way} takes {now:.1} instructions, and took {then:.1} when it was recorded; \
                     it may differ by {CHANGE:.0} (is this another compiler?)",
                    self.name
                )
            })
            .collect()
    }

    pub(crate) fn name_of(&self, rust: &Rust) -> String {
        format!("{}{}", self.name, rust.name)
    }

    /// A line of the table.
    pub(crate) fn line(&self, c: &[f64; WAYS.len()], rust: Option<(&Rust, &Verdict)>) -> String {
        let [kept, written, books] = c;
        let name = rust.map_or(self.name.to_owned(), |(rust, _)| self.name_of(rust));
        let start = format!("{name:<30}{kept:>8.1} {written:>8.1} {books:>8.1}");
        let Some((_, verdict)) = rust else {
            return format!("{start} {:>8}", "-");
        };
        format!("{start}{}", verdict.columns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: [f64; 3] = [92.0, 117.0, 131.0];

    #[test]
    fn a_loop_is_compared_with_the_one_in_c_that_it_stands_beside() {
        let kept = Rust::safe(40.0);
        assert_eq!(Verdict::new(&kept, &C, 132.0).fault("send"), None);
        assert_eq!(
            Verdict::new(&kept, &C, 132.5).fault("send").unwrap(),
            "send: 132.5 instructions for a request, 40.5 over C kept; the bound is 40"
        );
        let written = Rust::safe(60.0).over(WRITTEN);
        assert_eq!(Verdict::new(&written, &C, 177.0).fault("run"), None);
        assert!(Verdict::new(&written, &C, 177.1).fault("run").is_some());
        let free = Rust::safe(0.0).unbounded();
        assert_eq!(Verdict::new(&free, &C, 1000.0).fault("send"), None);
    }

    #[test]
    fn a_c_loop_that_has_become_slower_or_faster_is_a_fault() {
        let row = &ROWS[0];
        assert!(row.changed(&row.recorded).is_empty());
        let [kept, written, books] = row.recorded;
        assert!(row.changed(&[kept + 3.0, written - 3.0, books]).is_empty());
        let faults = row.changed(&[kept + 3.1, written, books - 3.1]);
        assert_eq!(faults.len(), 2);
        assert!(
            faults[0].starts_with("send: C kept takes 95.1"),
            "{faults:?}"
        );
    }

    #[test]
    fn a_line_says_whether_it_holds() {
        let row = &ROWS[0];
        let rust = &row.rust[1];
        let line = row.line(&C, Some((rust, &Verdict::new(rust, &C, 100.0))));
        assert!(line.ends_with("+8.0 kept  40  ok"), "{line}");
        let line = row.line(&C, Some((rust, &Verdict::new(rust, &C, 200.0))));
        assert!(line.ends_with("OUT"), "{line}");
        assert!(row.line(&C, None).ends_with(" -"));
    }
}

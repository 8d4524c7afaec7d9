//! The table of the summaries, for a terminal and for the documentation.

use super::{rows::Judged, summary::Summary};

const HEAD: [&str; 14] = [
    "row",
    "unit",
    "runs",
    "best: C",
    "Rust",
    "ratio",
    "C by C",
    "median: C",
    "Rust",
    "ratio",
    "C by C",
    "half of the pairs",
    "C by C",
    "",
];

fn cells(summary: &Summary) -> [String; 14] {
    let ratio = |ratio: f64| format!("{ratio:.3}");
    let [c, rust, again] = &summary.runs;
    [
        summary.row.name.clone(),
        summary.row.unit.to_owned(),
        summary.count().to_string(),
        figure(c.best),
        figure(rust.best),
        ratio(rust.best / c.best),
        ratio(again.best / c.best),
        figure(c.median),
        figure(rust.median),
        ratio(rust.median / c.median),
        ratio(again.median / c.median),
        summary.pairs.to_string(),
        summary.null_pairs.to_string(),
        verdict(summary).to_owned(),
    ]
}

fn verdict(summary: &Summary) -> &'static str {
    match (summary.good(), summary.row.judged) {
        (_, Judged::Not) => "",
        (true, _) => "ok",
        (false, Judged::Best { .. }) => "best out of bounds",
        (false, Judged::Pairs { .. }) => "pairs out of bounds",
    }
}

/// A figure with three or four digits that count.
fn figure(figure: f64) -> String {
    let decimals = match figure.abs() {
        large if large >= 1000.0 => 0,
        large if large >= 100.0 => 1,
        middle if middle >= 1.0 => 2,
        _ => 4,
    };
    format!("{figure:.decimals$}")
}

/// With a line for each row, in columns.
pub(crate) fn text(summaries: &[Summary]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(summaries.iter().map(cells));
    let widths: [usize; 14] = std::array::from_fn(|column| {
        let cells = lines.iter().map(|cells| cells[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let mut text = String::new();
    for cells in lines {
        let [name, unit, numbers @ .., last] = &cells;
        let mut line = format!("{name:<0$}  {unit:<1$}", widths[0], widths[1]);
        for (cell, width) in numbers.iter().zip(&widths[2..]) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        line.push_str(&format!("  {last}"));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The same in Markdown.
pub(crate) fn markdown<'s>(summaries: impl IntoIterator<Item = &'s Summary>) -> String {
    let mut text = row(HEAD.map(str::to_owned));
    text.push_str("|---|---|");
    text.push_str(&"--:|".repeat(HEAD.len() - 3));
    text.push_str("---|\n");
    for summary in summaries {
        text.push_str(&row(cells(summary)));
    }
    text
}

fn row(cells: [String; 14]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::summary::tests::{latency, summary};

    fn summaries() -> [Summary; 2] {
        [
            summary(
                latency("send_lat 64"),
                &[10.0, 12.0],
                &[10.5, 11.0],
                &[11.0],
            ),
            summary(latency("read_lat 65536"), &[1500.0], &[1800.0], &[1500.0]),
        ]
    }

    #[test]
    fn the_columns_stand_under_each_other() {
        assert_eq!(
            text(&summaries()),
            "\
row             unit  runs  best: C   Rust  ratio  C by C  median: C   Rust  ratio  C by C  half of the pairs       C by C
send_lat 64     us       1    10.00  10.50  1.050   1.100      12.00  11.00  0.917   0.917        0.917-1.050  1.100-1.100  ok
read_lat 65536  us       1     1500   1800  1.200   1.000       1500   1800  1.200   1.000        1.200-1.200  1.000-1.000  best out of bounds
"
        );
    }

    #[test]
    fn markdown_has_the_same_cells() {
        let text = markdown(&summaries());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        for line in &lines {
            assert_eq!(line.matches('|').count(), 15, "{line}");
        }
        assert_eq!(
            lines[3],
            "| read_lat 65536 | us | 1 | 1500 | 1800 | 1.200 | 1.000 | 1500 | 1800 | 1.200 | 1.000 | 1.200-1.200 | 1.000-1.000 | best out of bounds |"
        );
    }

    #[test]
    fn small_figures_keep_their_digits() {
        assert_eq!(
            [0.2953, 9.996, 42.128, 161.04, 16049.55].map(figure),
            ["0.2953", "10.00", "42.13", "161.0", "16050"]
        );
    }
}

//! The picture of latency and bandwidth by size.

use std::ops::Range;

use anyhow::{Context as _, Result, anyhow};
use plotters::{
    coord::combinators::{BindKeyPoints as _, IntoLogRange as _},
    prelude::*,
};

use super::summary::Summary;

const SIZE: (u32, u32) = (1200, 520);

/// The operations, by what the names of their rows begin with, and the colours of their lines.
const VERBS: [(&str, RGBColor); 3] = [
    ("send", RGBColor(0, 114, 178)),
    ("write", RGBColor(0, 158, 115)),
    ("read", RGBColor(213, 94, 0)),
];

/// What a panel shows.
struct Panel {
    title: &'static str,
    axis: &'static str,
    /// The end of the test's name.
    test: &'static str,
    /// Where there are no lines.
    legend: SeriesLabelPosition,
}

const PANELS: [Panel; 2] = [
    Panel {
        title: "Latency, the best of all runs",
        axis: "microseconds",
        test: "lat",
        legend: SeriesLabelPosition::UpperLeft,
    },
    Panel {
        title: "Bandwidth, the best of all runs",
        axis: "MiB per second",
        test: "bw",
        legend: SeriesLabelPosition::LowerRight,
    },
];

/// A line: the size and the figure of each row of a test.
type Line = Vec<(f64, f64)>;

/// C's line and ours.
fn lines(summaries: &[Summary], test: &str) -> [Line; 2] {
    let points = |whose: usize| {
        summaries
            .iter()
            .filter_map(|summary| {
                let size = summary.row.name.strip_prefix(test)?.strip_prefix(' ')?;
                Some((size.parse().ok()?, summary.runs[whose].best))
            })
            .collect()
    };
    [points(0), points(1)]
}

/// Draws it.
pub(crate) fn svg(summaries: &[Summary]) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, panel) in root.split_evenly((1, PANELS.len())).iter().zip(&PANELS) {
            draw(area, panel, summaries)
                .with_context(|| format!("cannot draw `{}`", panel.title))?;
        }
        root.present()?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, panel: &Panel, summaries: &[Summary]) -> Result<()> {
    let tests: Vec<_> = VERBS
        .into_iter()
        .map(|(verb, colour)| {
            (
                verb,
                colour,
                lines(summaries, &format!("{verb}_{}", panel.test)),
            )
        })
        .filter(|(_, _, [c, _])| !c.is_empty())
        .collect();
    let all = || {
        tests
            .iter()
            .flat_map(|(_, _, lines)| lines.iter().flatten())
    };
    let sizes = range(all().map(|(size, _)| *size))?;
    let figures = range(all().map(|(_, figure)| *figure))?;
    let mut marks: Vec<f64> = all().map(|(size, _)| *size).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 22))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(
            sizes.log_scale().with_key_points(marks),
            figures.log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("size of a message")
        .x_label_formatter(&|size| bytes(*size))
        .y_desc(panel.axis)
        .y_label_formatter(&|figure| figure.to_string())
        .label_style(("sans-serif", 15))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()?;
    for (verb, colour, [c, rust]) in tests {
        // C's is broad and pale, so that it is seen under ours.
        let broad = colour.mix(0.35).stroke_width(8);
        let fine = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(c, broad))?
            .label(format!("{verb}, C"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], broad));
        chart.draw_series(
            rust.iter()
                .map(|point| Circle::new(*point, 4, colour.filled())),
        )?;
        chart
            .draw_series(LineSeries::new(rust, fine))?
            .label(format!("{verb}, Rust"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], fine));
    }
    chart
        .configure_series_labels()
        .position(panel.legend.clone())
        .label_font(("sans-serif", 15))
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    Ok(())
}

/// From the least to the most, with room on both sides.
fn range(figures: impl Iterator<Item = f64>) -> Result<Range<f64>> {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for figure in figures {
        least = least.min(figure);
        most = most.max(figure);
    }
    if least > most {
        return Err(anyhow!("there are no rows for it"));
    }
    Ok(least / 1.5..most * 1.5)
}

fn bytes(size: f64) -> String {
    match size {
        mib if mib >= 1048576.0 => format!("{} MiB", mib / 1048576.0),
        kib if kib >= 1024.0 => format!("{} KiB", kib / 1024.0),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::summary::tests::{bandwidth, latency, summary};

    fn summaries() -> Vec<Summary> {
        let mut list = Vec::new();
        for (size, time) in [(2, 12.0), (64, 12.5), (65536, 1500.0)] {
            for verb in ["send", "write", "read"] {
                let row = latency(&format!("{verb}_lat {size}"));
                list.push(summary(row, &[time], &[time * 1.25], &[time]));
                let row = bandwidth(&format!("{verb}_bw {size}"));
                list.push(summary(row, &[1e5 / time], &[9e4 / time], &[1e5 / time]));
            }
        }
        let rate = bandwidth("send_rate 64 depth 16");
        list.push(summary(rate, &[20000.0], &[20000.0], &[20000.0]));
        list
    }

    #[test]
    fn the_lines_are_those_of_one_test() {
        let [c, rust] = lines(&summaries(), "send_lat");
        assert_eq!(c, [(2.0, 12.0), (64.0, 12.5), (65536.0, 1500.0)]);
        assert_eq!(rust, [(2.0, 15.0), (64.0, 15.625), (65536.0, 1875.0)]);
    }

    #[test]
    fn both_lines_of_each_operation_are_in_both_panels() {
        let svg = svg(&summaries()).unwrap();
        for verb in ["send", "write", "read"] {
            for whose in ["C", "Rust"] {
                let label = format!("{verb}, {whose}\n");
                assert_eq!(svg.matches(&label).count(), 2, "{label}");
            }
        }
        // A line for each, and one beside its label.
        assert_eq!(svg.matches("stroke-width=\"8\"").count(), 12);
        for text in ["64 KiB\n", "2 B\n", "microseconds\n", "MiB per second\n"] {
            assert!(svg.contains(text), "{text}");
        }
        // A point for each size.
        assert_eq!(svg.matches("<circle").count(), 2 * 3 * 3);
    }

    #[test]
    fn without_rows_there_is_no_picture() {
        let told = format!("{:#}", svg(&[]).unwrap_err());
        assert!(told.contains("there are no rows for it"), "{told}");
    }
}

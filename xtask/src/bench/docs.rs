//! `docs/performance.md`, from the figures.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::{machine::Machine, summary::Summary, table};

/// The page and its picture, in the folder `docs`.
const PAGE: &str = "performance.md";
pub(crate) const PICTURE: &str = "performance.svg";

/// What is under this heading is written by hand, and stays.
const NOTES: &str = "\n## Notes\n";

/// The tables of the page, by what is in the names of their rows.
const PARTS: [(&str, &str); 4] = [
    ("Latency", "_lat "),
    ("Bandwidth", "_bw "),
    ("Rate of small messages", "_rate "),
    ("Setting up connections", "cmtime"),
];

/// What a page is made from.
#[derive(Debug)]
pub(crate) struct Page<'p> {
    pub(crate) summaries: &'p [Summary],
    pub(crate) machine: &'p Machine,
    /// A line for each job.
    pub(crate) conditions: &'p [String],
    pub(crate) picture: &'p str,
}

impl Page<'_> {
    /// Writes the page and its picture into a folder, and keeps the notes that are there.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let page = folder.join(PAGE);
        let old = fs::read_to_string(&page).unwrap_or_default();
        let notes = old.find(NOTES).map_or("", |start| &old[start..]);
        fs::write(&page, self.text() + notes)
            .with_context(|| format!("cannot write {}", page.display()))?;
        Ok(fs::write(folder.join(PICTURE), self.picture)?)
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (name, value) in &self.machine.0 {
            text.push_str(&format!("| {name} | {value} |\n"));
        }
        text.push_str(&format!("\n{READING}"));
        if self.machine.is_emulated() {
            text.push_str(EMULATED);
        }
        text.push_str(&format!(
            "\n![Latency and bandwidth by the size of a message]({PICTURE})\n"
        ));
        for (title, part) in PARTS {
            let rows: Vec<_> = self
                .summaries
                .iter()
                .filter(|summary| summary.row.name.contains(part))
                .collect();
            if !rows.is_empty() {
                text.push_str(&format!("\n## {title}\n\n{}", table::markdown(rows)));
            }
        }
        text.push_str(&format!(
            "\n{CONDITIONS}\n```text\n{}\n```\n",
            self.conditions.join("\n")
        ));
        text
    }
}

const HEAD: &str = "\
<!-- Made by `cargo xtask bench --docs`. Only the notes at the end are written by hand. -->
# Performance

This crate beside the C programs, in one boot of one machine, in turns:

```sh
cargo xtask bench           # --quick for a few of the rows, --docs to make this page again
```

| | |
|---|---|
";

const READING: &str = "\
In each round every program runs once: C's, ours, and C's again. What C differs from itself is what chance does, and stands beside
each of our figures as *C by C*. A row is out of bounds when ours is worse than the bound (1.05 times C's latency, 0.95 times its
bandwidth, of the best of all runs) and also further from C than C from itself. A ratio is ours by C's: of times less is better, of
bandwidths and rates more. *Half of the pairs* is where the ratios of the two runs of a round lie, without the lowest and the
highest quarter; where times of connections are judged, it is by the median of those ratios.
";

const EMULATED: &str = "
Under software emulation every instruction takes many times as long as on a processor, and a network card is a program too: the
ratios say something about this crate, the figures nothing about RDMA.
";

const CONDITIONS: &str = "\
## Conditions

The same for both programs, but for what is said. In the micro-VM addresses are not random, and libibverbs loads the provider for soft RoCE alone: what
is emulated then starts in a third of the time, which nothing here measures.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::summary::tests::{bandwidth, latency, summary};

    fn written(before: Option<&str>) -> String {
        let folder = std::env::temp_dir().join(format!(
            "xtask-docs-{}-{}",
            std::process::id(),
            before.is_some()
        ));
        fs::create_dir_all(&folder).unwrap();
        if let Some(before) = before {
            fs::write(folder.join(PAGE), before).unwrap();
        }
        let summaries = [
            summary(latency("send_lat 64"), &[10.0], &[10.5], &[10.0]),
            summary(bandwidth("read_bw 64"), &[2.0], &[1.0], &[2.0]),
        ];
        let page = Page {
            summaries: &summaries,
            machine: &Machine(vec![("kernel".into(), "Linux 6.1.0".into())]),
            conditions: &["send_lat 64: the same".into()],
            picture: "<svg/>",
        };
        page.write(&folder).unwrap();
        let text = fs::read_to_string(folder.join(PAGE)).unwrap();
        assert_eq!(fs::read_to_string(folder.join(PICTURE)).unwrap(), "<svg/>");
        fs::remove_dir_all(&folder).unwrap();
        text
    }

    #[test]
    fn the_page_has_the_machine_the_picture_the_tables_and_the_conditions() {
        let text = written(None);
        for part in [
            "| kernel | Linux 6.1.0 |\n",
            "](performance.svg)\n",
            "\n## Latency\n\n| row |",
            "| send_lat 64 | us | 1 | 10.00 | 10.50 | 1.050 |",
            "| read_bw 64 | MiB/s | 1 | 2.00 | 1.00 | 0.500 |",
            "best out of bounds |\n",
            "\nsend_lat 64: the same\n",
            "cargo xtask bench ",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("Setting up"), "{text}");
        // It was no emulated machine.
        assert!(!text.contains("emulation"), "{text}");
    }

    #[test]
    fn only_the_notes_of_a_page_stay() {
        let text = written(Some("# Old\n\nold figures\n\n## Notes\n\nA profile.\n"));
        assert!(text.ends_with("```\n\n## Notes\n\nA profile.\n"), "{text}");
        assert!(!text.contains("old figures"), "{text}");
    }
}

//! What goes on before the command starts: moving on a terminal, a line each in a log.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Reports steps on standard error.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    silent: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Reports, unless told to be silent.
    pub(crate) fn new(silent: bool) -> Self {
        Self { silent, bar: None }
    }

    /// Begins a step; the one before has ended.
    pub(crate) fn step(&mut self, text: impl Into<String>) {
        self.finish();
        let text = text.into();
        if self.silent {
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner().with_message(text);
            bar.set_style(
                ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar.enable_steady_tick(Duration::from_millis(100));
            self.bar = Some(bar);
        } else {
            eprintln!("softroce: {text}");
        }
    }

    /// The step is a download of so many bytes, if that is known.
    pub(crate) fn download(&mut self, total: Option<u64>) {
        if let Some(bar) = &self.bar {
            let template = if total.is_some() {
                "{msg} {wide_bar} {bytes}/{total_bytes}"
            } else {
                "{spinner} {msg} {bytes}"
            };
            bar.set_style(
                ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            if let Some(total) = total {
                bar.set_length(total);
            }
        }
    }

    /// So many bytes are there.
    pub(crate) fn reached(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    /// Ends the step and clears what it drew.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

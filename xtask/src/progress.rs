//! One line per long step: a spinner on a terminal, plain lines in a log.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// A step that is under way; dropped without [`ProgressStep::done`] it is reported as failed.
pub(crate) struct ProgressStep {
    name: String,
    started: Instant,
    spinner: Option<ProgressBar>,
    finished: bool,
}

impl ProgressStep {
    /// Says what begins.
    pub(crate) fn begin(name: impl Into<String>) -> Self {
        let name = name.into();
        let spinner = stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            let bar = ProgressBar::new_spinner().with_message(name.clone());
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if spinner.is_none() {
            eprintln!("{name} ...");
        }
        Self { name, started: Instant::now(), spinner, finished: false }
    }

    /// Says that it is done, and how long it took.
    pub(crate) fn done(mut self) {
        self.end("done");
    }

    fn end(&mut self, how: &str) {
        self.finished = true;
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
        eprintln!("{}: {how} in {:.1} s", self.name, self.started.elapsed().as_secs_f64());
    }
}

impl Drop for ProgressStep {
    fn drop(&mut self) {
        if !self.finished {
            self.end("failed");
        }
    }
}

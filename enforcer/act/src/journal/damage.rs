//! Lines that cannot be read: the first ones are named, however many there are.

use std::path::Path;

/// Lines that are named.
const NAMED: usize = 100;

/// Unreadable lines of a file.
#[derive(Debug, Default)]
pub(super) struct DamageList {
    named: Vec<String>,
    more: usize,
}

impl DamageList {
    /// Adds the fault of a line.
    pub(super) fn note(&mut self, error: impl FnOnce() -> String) {
        if self.named.len() < NAMED {
            self.named.push(error());
        } else {
            self.more += 1;
        }
    }

    /// All of it.
    pub(super) fn into_lines(mut self, path: &Path) -> Vec<String> {
        if self.more > 0 {
            self.named.push(format!("{}: {} more lines", path.display(), self.more));
        }
        self.named
    }
}

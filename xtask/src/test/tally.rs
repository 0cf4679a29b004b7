//! What passed and what failed.

use std::process::ExitCode;

/// Counts, and the names of what failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failures: Vec<String>,
}

impl Tally {
    /// One thing passed or failed.
    pub(super) fn count(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failures.push(name.to_owned());
        }
    }

    /// So many things passed.
    pub(super) fn add(&mut self, passed: usize) {
        self.passed += passed;
    }

    /// The failures by name, then the one line that scripts read.
    pub(super) fn print(&self) {
        for name in &self.failures {
            println!("failed: {name}");
        }
        println!("{}", self.line());
    }

    pub(super) fn line(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failures.len())
    }

    /// Success needs something that passed: a name that selects nothing must not look like success.
    pub(super) fn exit_code(&self) -> ExitCode {
        if self.succeeded() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Nothing was counted.
    pub(super) fn is_empty(&self) -> bool {
        self.passed == 0 && self.failures.is_empty()
    }

    /// Something passed and nothing failed.
    pub(crate) fn succeeded(&self) -> bool {
        self.failures.is_empty() && self.passed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_ran_is_no_success() {
        let mut tally = Tally::default();
        assert!(!tally.succeeded());
        tally.count("a", true);
        assert!(tally.succeeded());
        tally.count("b", false);
        assert!(!tally.succeeded());
        assert_eq!(tally.line(), "1 passed, 1 failed");
    }
}

//! What passed, what failed, and why.
//!
//! A run prints tens of thousands of lines, and what keeps them may keep only the last ones. So all that is
//! needed to understand a failure is told again at the end, before the one line that scripts read.

use std::process::ExitCode;

use anyhow::Result;

use crate::command;

/// Most lines that the end says of one failure: its last ones.
const LINES: usize = 40;

/// Counts, and what failed.
#[derive(Debug, Default)]
pub(crate) struct TestTally {
    passed: usize,
    failures: Vec<Failure>,
}

#[derive(Debug)]
struct Failure {
    name: String,
    /// Empty if nothing is known but the name.
    why: String,
}

impl TestTally {
    /// One thing passed.
    pub(super) fn pass(&mut self) {
        self.add(1);
    }

    /// So many things passed.
    pub(super) fn add(&mut self, passed: usize) {
        self.passed += passed;
    }

    /// Adds what another one has counted.
    pub(super) fn join(&mut self, other: Self) {
        self.add(other.passed);
        self.failures.extend(other.failures);
    }

    /// One thing failed; `why` has any number of lines, or none.
    pub(super) fn fail(&mut self, name: impl Into<String>, why: impl AsRef<str>) {
        let why = command::tail(why.as_ref().trim_end(), LINES);
        self.failures.push(Failure { name: name.into(), why });
    }

    /// One thing passed, or failed with an error, which is printed at once.
    pub(super) fn outcome(&mut self, name: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.pass(),
            Err(error) => {
                println!("{name}: {error:#}");
                self.fail(name, format!("{error:#}"));
            }
        }
    }

    /// The failures by name with their reasons, then the one line that scripts read.
    pub(super) fn print(&self) {
        for line in self.failures() {
            println!("{line}");
        }
        println!("{}", self.line());
    }

    /// Their lines.
    fn failures(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for Failure { name, why } in &self.failures {
            lines.push(format!("failed: {name}"));
            lines.extend(why.lines().map(|line| format!("  {line}")));
        }
        lines
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
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn nothing_that_ran_is_no_success() {
        let mut tally = TestTally::default();
        assert!(!tally.succeeded());
        tally.pass();
        assert!(tally.succeeded());
        tally.fail("b", "");
        assert!(!tally.succeeded());
        assert_eq!(tally.line(), "1 passed, 1 failed");
        let mut other = TestTally::default();
        other.add(2);
        other.join(tally);
        assert_eq!(other.line(), "3 passed, 1 failed");
    }

    #[test]
    fn the_end_says_why() {
        let mut tally = TestTally::default();
        tally.outcome("fine", Ok(()));
        tally.outcome("a", Err(anyhow!("no such file")).context("read /x"));
        tally.fail("b", "one\ntwo\n\n");
        tally.fail("c", "");
        let long: Vec<_> = (0..=LINES).map(|line| line.to_string()).collect();
        tally.fail("d", long.join("\n"));
        let said = tally.failures();
        let (first, last) = said.split_at(7);
        let wanted =
            ["failed: a", "  read /x: no such file", "failed: b", "  one", "  two", "failed: c", "failed: d"];
        assert_eq!(first, wanted);
        assert_eq!((last.len(), last[0].as_str()), (LINES, "  1"));
    }
}

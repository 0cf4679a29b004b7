//! Assertions that say what they saw.
//!
//! A scenario goes on after a failed assertion: the ones behind it tell how far the damage goes.

use std::{
    fmt::{Debug, Display},
    time::Duration,
};

use anyhow::Result;

use crate::wait;

/// The assertions of one scenario.
#[derive(Debug, Default)]
pub struct Checks {
    passed: usize,
    failed: usize,
    runs: Option<usize>,
}

impl Checks {
    /// Of a scenario that shall repeat its cases so often, where it does that.
    pub fn of(runs: Option<usize>) -> Self {
        Self { runs, ..Self::default() }
    }

    /// How often each case is repeated: as was asked, or else so often. It is printed.
    pub fn runs(&self, otherwise: usize) -> usize {
        let runs = self.runs.unwrap_or(otherwise);
        self.note("runs of each case", &runs);
        runs
    }

    /// Both are the same.
    #[expect(clippy::needless_pass_by_value, reason = "what is compared is made for the comparison")]
    pub fn equal<T: PartialEq + Debug>(&mut self, what: impl Display, wanted: T, found: T) {
        let holds = wanted == found;
        self.record(&what, holds, &format!("{wanted:?}"), &format!("{found:?}"));
    }

    /// A condition, with what was found in words.
    pub fn holds(&mut self, what: impl Display, holds: bool, found: impl Debug) {
        self.record(&what, holds, "that it holds", &format!("{found:?}"));
    }

    /// A condition that comes to hold within `limit`: it follows from something asynchronous, such as a turn.
    /// `look` returns whether it holds, and what was found.
    pub fn comes_to_hold<F: Debug>(
        &mut self,
        what: impl Display,
        limit: Duration,
        mut look: impl FnMut() -> Result<(bool, F)>,
    ) -> Result<()> {
        let mut latest = None;
        let seen = wait::until("the condition", limit, || {
            let (holds, found) = look()?;
            latest = Some(found);
            Ok(holds.then_some(()))
        });
        let holds = seen.is_ok();
        match (latest, seen) {
            (Some(found), _) => self.record(&what, holds, "that it comes to hold", &format!("{found:?}")),
            (None, result) => result?,
        }
        Ok(())
    }

    /// A number is there and above a bound.
    pub fn above(&mut self, what: impl Display, bound: f64, found: Option<f64>) {
        let holds = found.is_some_and(|found| found > bound);
        self.record(&what, holds, &format!("above {bound}"), &format!("{found:?}"));
    }

    /// A number is there and below a bound.
    pub fn below(&mut self, what: impl Display, bound: f64, found: Option<f64>) {
        let holds = found.is_some_and(|found| found < bound);
        self.record(&what, holds, &format!("below {bound}"), &format!("{found:?}"));
    }

    /// The scenario could not go on.
    pub fn broken(&mut self, error: &anyhow::Error) {
        self.record(&"the scenario runs to its end", false, "no error", &format!("{error:#}"));
    }

    /// A measurement, as one line of JSON; it asserts nothing.
    pub fn note(&self, what: impl Display, found: &impl serde::Serialize) {
        match serde_json::to_string(found) {
            Ok(json) => println!("note {what}: {json}"),
            Err(error) => println!("note {what}: {error}"),
        }
    }

    /// Something was asserted, and nothing failed.
    pub fn passed(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    /// The last line of a scenario.
    pub fn verdict(&self) -> String {
        let word = if self.passed() { "ok" } else { "FAILED" };
        format!("{word}, {} checks passed, {} failed", self.passed, self.failed)
    }

    fn record(&mut self, what: &dyn Display, holds: bool, wanted: &str, found: &str) {
        if holds {
            self.passed += 1;
            println!("check ok: {what}: {found}");
        } else {
            self.failed += 1;
            println!("check FAILED: {what} (wanted {wanted}, found {found})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_without_assertions_has_not_passed() {
        assert!(!Checks::default().passed());
    }

    #[test]
    fn one_failure_is_a_failure() {
        let mut checks = Checks::default();
        checks.equal("a", 1, 1);
        assert!(checks.passed());
        checks.below("b", 0.1, Some(0.2));
        assert!(!checks.passed());
        assert_eq!(checks.verdict(), "FAILED, 1 checks passed, 1 failed");
    }

    #[test]
    fn a_condition_that_comes_to_hold_passes_and_one_that_never_does_fails() -> Result<()> {
        let (mut checks, mut looks) = (Checks::default(), 0);
        checks.comes_to_hold("later", Duration::from_mins(1), || {
            looks += 1;
            Ok((looks == 2, looks))
        })?;
        assert!(checks.passed());
        checks.comes_to_hold("never", Duration::ZERO, || Ok((false, "nothing")))?;
        assert_eq!(checks.verdict(), "FAILED, 1 checks passed, 1 failed");
        checks
            .comes_to_hold("unreadable", Duration::ZERO, || anyhow::bail!("no file") as Result<(bool, ())>)
            .expect_err("what cannot be read is no failed condition");
        Ok(())
    }

    #[test]
    fn cases_are_repeated_as_often_as_was_asked() {
        assert_eq!((Checks::of(Some(1)).runs(5), Checks::default().runs(5)), (1, 5));
    }

    #[test]
    fn a_missing_number_is_neither_above_nor_below() {
        let mut checks = Checks::default();
        checks.above("a", 0.0, None);
        checks.below("a", 1.0, None);
        checks.above("a", 0.0, Some(f64::NAN));
        assert_eq!(checks.failed, 3);
    }
}

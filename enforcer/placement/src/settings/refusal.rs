//! Why a value of the configuration is refused.
//!
//! Problem: a check of two settings can fail although the file has only one of them. A message about the
//! other one, which has its default, names a key that the reader never wrote. Idea: such a refusal names both
//! settings and their relation. The reader of the file, which knows what was written, reports it about the
//! setting in the file.
//!
//! Invariant: every check of two settings is made by [`at_odds`].

use std::{fmt, mem};

use thiserror::Error;

/// An invalid value of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct PolicyError {
    /// Key, as in the file; `[N]` after the name of a list is its N-th entry, from 0.
    pub key: String,
    /// Value, as in the file.
    pub value: String,
    /// What is wrong with it; its required relation to `other`, if there is one.
    pub problem: &'static str,
    /// The setting that it conflicts with.
    pub other: Option<Box<OtherSetting>>,
}

/// A setting that conflicts with another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSetting {
    key: String,
    value: String,
    /// Its required relation to the refused setting.
    problem: &'static str,
    /// Why both conflict; empty if `problem` says everything.
    reason: &'static str,
    /// Whether the file lacks it, so that the value is the default.
    is_default: bool,
}

/// Required relation between two settings, in both directions.
#[derive(Debug, Clone, Copy)]
pub struct Relation {
    own: &'static str,
    inverse: &'static str,
    reason: &'static str,
}

impl Relation {
    /// The first is greater than the second.
    pub const ABOVE: Self = Self { own: "it must be above", inverse: "it must be below", reason: "" };
    /// The first is at least the second.
    pub const AT_LEAST: Self =
        Self { own: "it must not be below", inverse: "it must not be above", reason: "" };

    /// Only one of both values is allowed.
    pub const fn excludes(reason: &'static str) -> Self {
        Self { own: "it cannot be used with", inverse: "it cannot be used with", reason }
    }
}

/// A value that is wrong regardless of other settings.
pub fn refused(key: impl Into<String>, value: impl fmt::Display, problem: &'static str) -> PolicyError {
    PolicyError { key: key.into(), value: value.to_string(), problem, other: None }
}

/// Error for two settings, each with key and value, that do not have the required relation.
pub fn at_odds(
    (key, value): (impl Into<String>, impl fmt::Display),
    Relation { own, inverse, reason }: Relation,
    (other, other_value): (impl Into<String>, impl fmt::Display),
) -> PolicyError {
    let (other, value_of_other) = (other.into(), other_value.to_string());
    let other =
        OtherSetting { key: other, value: value_of_other, problem: inverse, reason, is_default: false };
    PolicyError { other: Some(Box::new(other)), ..refused(key, value, own) }
}

impl PolicyError {
    /// Reports the error about the setting that the file has, if it has only one. The other one has its
    /// default then.
    #[must_use]
    pub fn seen_from(self, is_written: impl Fn(&str) -> bool) -> Self {
        let Some(other) = &self.other else { return self };
        let mut seen = match (is_written(&self.key), is_written(&other.key)) {
            (true, true) | (false, false) => return self,
            (true, false) => self,
            (false, true) => self.turned(),
        };
        if let Some(other) = &mut seen.other {
            other.is_default = true;
        }
        seen
    }

    /// Puts the setting with this key first, if it is one of the two.
    #[must_use]
    pub fn about(self, key: &str) -> Self {
        if self.other.as_ref().is_some_and(|other| other.key == key) { self.turned() } else { self }
    }

    /// Replaces keys by their names at their place in the file.
    #[must_use]
    pub fn renamed(mut self, name: impl Fn(&str) -> Option<String>) -> Self {
        let keys = [Some(&mut self.key), self.other.as_mut().map(|other| &mut other.key)];
        for key in keys.into_iter().flatten() {
            if let Some(name) = name(key) {
                *key = name;
            }
        }
        self
    }

    fn turned(mut self) -> Self {
        if let Some(other) = &mut self.other {
            mem::swap(&mut self.key, &mut other.key);
            mem::swap(&mut self.value, &mut other.value);
            mem::swap(&mut self.problem, &mut other.problem);
        }
        self
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, problem, other } = self;
        write!(f, "{key} = {value}: {problem}")?;
        let Some(OtherSetting { key, value, reason, is_default, .. }) = other.as_deref() else {
            return Ok(());
        };
        let by_default = if *is_default { " by default" } else { "" };
        write!(f, " {key}, which is {value}{by_default}")?;
        if reason.is_empty() { Ok(()) } else { write!(f, ": {reason}") }
    }
}

/// A value as it is in the file: in quotes.
pub fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_the_written_setting_first() {
        let refused = || at_odds(("a.high", 8), Relation::ABOVE, ("a.low", 50));
        for (written, expected) in [
            (vec!["a.low"], "a.low = 50: it must be below a.high, which is 8 by default"),
            (vec!["a.high"], "a.high = 8: it must be above a.low, which is 50 by default"),
            (vec!["a.low", "a.high"], "a.high = 8: it must be above a.low, which is 50"),
            (vec![], "a.high = 8: it must be above a.low, which is 50"),
        ] {
            assert_eq!(refused().seen_from(|key| written.contains(&key)).to_string(), expected);
        }
        let alone = super::refused("a", 1, "no").seen_from(|_| false).renamed(|_| Some("--a".into()));
        assert_eq!(alone.to_string(), "--a = 1: no");
        let excludes = at_odds(("a", true), Relation::excludes("why"), ("b", true));
        assert_eq!(excludes.about("b").to_string(), "b = true: it cannot be used with a, which is true: why");
    }
}

//! Trace of a decision.
//!
//! Candidates are collected only on request (`--explain`); otherwise nothing is formatted. A trace never
//! changes a decision.

use std::collections::{BTreeMap, BTreeSet};

/// The candidates for all containers of one pod, and warnings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    wanted: bool,
    candidates: Vec<Candidate>,
    warnings: Vec<Warning>,
    /// Index of each warning about containers, by its text.
    about_containers: BTreeMap<String, usize>,
    /// Pairs of a warning's index and a container that it names.
    named: BTreeSet<(usize, String)>,
    about_settings: Vec<String>,
}

/// A warning about an ignored setting.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Warning {
    /// Containers that it is about; empty if it is about the pod.
    containers: Vec<String>,
    text: String,
}

/// Maximum number of containers that one warning names.
const NAMES_LIMIT: usize = 8;

/// A place considered for a container.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Candidate {
    /// Name of the container.
    pub container: String,
    /// The place: a set of nodes or a pool.
    pub place: String,
    /// Whether it was chosen.
    pub chosen: bool,
    /// The comparison that decided: against the chosen place, or why it was chosen.
    pub because: String,
}

impl Trace {
    /// A trace that collects candidates.
    pub fn wanted() -> Self {
        Self { wanted: true, ..Self::default() }
    }

    /// Does the trace collect candidates?
    pub const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Adds the candidates of a container, best first; call it only if they are wanted. Candidates that a
    /// second attempt repeats are added once.
    pub(crate) fn consider(&mut self, candidates: impl IntoIterator<Item = Candidate>) {
        if self.wanted {
            let before = self.candidates.len();
            for candidate in candidates {
                if !self.candidates.iter().take(before).any(|noted| *noted == candidate) {
                    self.candidates.push(candidate);
                }
            }
        }
    }

    /// Adds a warning about an ignored request, such as an annotation with an invalid value. Always
    /// collected.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(Warning { containers: Vec::new(), text: warning.into() });
    }

    /// Adds a warning about one container. A warning that holds for several containers is reported once, with
    /// their names.
    pub(crate) fn warn_about(&mut self, container: &str, warning: impl Into<String>) {
        let text = warning.into();
        let next = self.warnings.len();
        let at = *self.about_containers.entry(text.clone()).or_insert(next);
        if at == next {
            self.warnings.push(Warning { containers: Vec::new(), text });
        }
        if self.named.insert((at, container.to_owned())) {
            self.warnings[at].containers.push(container.to_owned());
        }
    }

    /// Adds a warning about the settings, which concerns every pod.
    pub(crate) fn warn_about_settings(&mut self, warning: impl Into<String>) {
        self.about_settings.push(warning.into());
    }

    /// Removes and returns the warnings about the settings.
    pub(crate) fn take_settings_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.about_settings)
    }

    /// The collected candidates and warnings.
    pub fn into_parts(self) -> (Vec<Candidate>, Vec<String>) {
        let warnings = self.warnings.into_iter().map(Warning::into_text);
        (self.candidates, self.about_settings.into_iter().chain(warnings).collect())
    }
}

impl Warning {
    fn into_text(self) -> String {
        let Self { containers, text } = self;
        match containers.as_slice() {
            [] => text,
            [one] => format!("container {one}: {text}"),
            several => {
                let shown =
                    several.iter().take(NAMES_LIMIT).map(String::as_str).collect::<Vec<_>>().join(", ");
                match several.len().saturating_sub(NAMES_LIMIT) {
                    0 => format!("containers {shown}: {text}"),
                    more => format!("containers {shown} and {more} more: {text}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_attempt_notes_only_what_is_different() {
        let of = |because: &str| Candidate {
            container: "c".to_owned(),
            place: "node 0".to_owned(),
            chosen: false,
            because: because.to_owned(),
        };
        let mut trace = Trace::wanted();
        trace.consider([of("too little cpu")]);
        trace.consider([of("too little cpu"), of("too little memory")]);
        assert_eq!(trace.into_parts().0, [of("too little cpu"), of("too little memory")]);
    }

    #[test]
    fn what_is_ignored_for_several_containers_is_said_once() {
        let mut trace = Trace::default();
        trace.warn_about("a", "bad value");
        trace.warn("of the pod");
        trace.warn_about("b", "bad value");
        trace.warn_about("b", "bad value");
        trace.warn_about("b", "worse value");
        (0..10).for_each(|n| trace.warn_about(&format!("c{n}"), "common"));
        trace.warn_about_settings("bad glob");
        let mut heard = trace.clone();
        assert_eq!(
            trace.into_parts().1,
            [
                "bad glob",
                "containers a, b: bad value",
                "of the pod",
                "container b: worse value",
                "containers c0, c1, c2, c3, c4, c5, c6, c7 and 2 more: common",
            ]
        );
        assert_eq!(heard.take_settings_warnings(), ["bad glob"]);
        assert!(!heard.into_parts().1.contains(&"bad glob".to_owned()));
    }
}

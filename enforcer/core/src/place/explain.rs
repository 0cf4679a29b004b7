//! How a decision came about.
//!
//! Collected only when somebody asked (`--explain`); otherwise nothing is formatted. A trace never
//! changes a decision.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The candidates of all containers of one pod, and what was noticed on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    wanted: bool,
    candidates: Vec<Candidate>,
    warnings: Vec<Warning>,
    /// Where in the list a warning about containers is, by its text.
    about_containers: BTreeMap<String, usize>,
    /// Which of these names which container.
    named: BTreeSet<(usize, String)>,
    about_settings: Vec<String>,
}

/// Something that was ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Warning {
    /// Containers that it is about; none when it is about the pod.
    containers: Vec<String>,
    text: String,
}

/// Most containers that one warning names.
const NAMES_LIMIT: usize = 8;

/// A place that was considered for a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Container.
    pub container: String,
    /// What was considered: a set of nodes, a pool.
    pub place: String,
    /// Was it taken?
    pub chosen: bool,
    /// The comparison that decided: against the chosen one, or why it was taken.
    pub because: String,
}

impl Trace {
    /// A trace that collects candidates.
    pub fn wanted() -> Self {
        Self { wanted: true, ..Self::default() }
    }

    /// Should candidates be given?
    pub const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Notes the candidates of a container, best first; called only when they are wanted. One that a
    /// second attempt comes to in the same way is noted once.
    pub fn consider(&mut self, candidates: impl IntoIterator<Item = Candidate>) {
        if self.wanted {
            let before = self.candidates.len();
            for candidate in candidates {
                if !self.candidates.iter().take(before).any(|noted| *noted == candidate) {
                    self.candidates.push(candidate);
                }
            }
        }
    }

    /// Notes something that was asked for and ignored, like an annotation with a bad value. Always
    /// collected.
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(Warning { containers: Vec::new(), text: warning.into() });
    }

    /// The same of one container of the pod. What holds for several is said once, with their names.
    pub fn warn_about(&mut self, container: &str, warning: impl Into<String>) {
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

    /// Notes something that is wrong with the settings, and so for every pod.
    pub fn warn_about_settings(&mut self, warning: impl Into<String>) {
        self.about_settings.push(warning.into());
    }

    /// What is wrong with the settings, no longer part of the warnings.
    pub fn take_settings_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.about_settings)
    }

    /// What was collected: candidates and warnings.
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

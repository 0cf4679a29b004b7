//! How a decision came about.
//!
//! Collected only when somebody asked (`--explain`); otherwise nothing is formatted. A trace never
//! changes a decision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The candidates of all containers of one pod, and what was noticed on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    wanted: bool,
    candidates: Vec<Candidate>,
    warnings: Vec<String>,
}

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
        self.warnings.push(warning.into());
    }

    /// What was collected: candidates and warnings.
    pub fn into_parts(self) -> (Vec<Candidate>, Vec<String>) {
        (self.candidates, self.warnings)
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
}

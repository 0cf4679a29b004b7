//! Recent decisions, in one line each and with their steps.
//!
//! The same decision in consecutive turns is one entry, so that a lasting refusal does not displace other
//! decisions. Bounded in number and length, because texts of errors come from outside.

use enforcer_core::workload::{CgroupPath, cut_at};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    decision::{DecisionRecord, DecisionState, DecisionSubject},
    view::step::step,
};

/// Most actions in a report.
const KEPT: usize = 64;
/// Steps of one.
const STEPS: usize = 8;
/// Characters of one text.
const LONGEST: usize = 400;

/// A decision about one workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TopAction")]
pub struct TopAction {
    /// Name of the workload.
    pub workload: String,
    /// Its cgroup, as far as it is known.
    pub cgroup: Option<CgroupPath>,
    /// When it was decided first, in milliseconds since 1970.
    pub first_unix_ms: u64,
    /// How often in a row.
    pub times: u64,
    /// Occasion: `turn`, or a call of the runtime.
    pub by: String,
    /// Result.
    pub state: DecisionState,
    /// Enforcement was paused.
    pub paused: bool,
    /// Why, in one sentence.
    pub reason: String,
    /// Its steps, with what became of each and why it was planned.
    pub steps: Vec<String>,
}

impl TopAction {
    /// Makes the action of a record.
    fn new(subject: &DecisionSubject, record: &DecisionRecord) -> Self {
        Self {
            workload: subject.name.clone(),
            cgroup: subject.cgroup.clone(),
            first_unix_ms: record.first_unix_ms,
            times: record.times,
            by: record.by.clone(),
            state: record.state,
            paused: record.paused,
            reason: cut(&record.reason),
            steps: record.outcomes.iter().take(STEPS).map(|outcome| cut(&step(outcome))).collect(),
        }
    }

    /// The newest of these, newest first, but for those that say that all is well.
    pub fn newest<'a>(records: impl Iterator<Item = (&'a DecisionSubject, &'a DecisionRecord)>) -> Vec<Self> {
        let mut records: Vec<_> =
            records.filter(|(_, record)| record.state != DecisionState::InPlace).collect();
        records.sort_by(|(a, one), (b, other)| {
            other.first_unix_ms.cmp(&one.first_unix_ms).then_with(|| a.name.cmp(&b.name))
        });
        records.into_iter().take(KEPT).map(|(subject, record)| Self::new(subject, record)).collect()
    }

    /// The reason, or the step where there is no reason.
    pub fn words(&self) -> &str {
        match self.steps.first() {
            Some(step) if self.reason.is_empty() => step,
            _ => &self.reason,
        }
    }
}

/// At most [`LONGEST`] characters.
pub(super) fn cut(text: &str) -> String {
    cut_at(text, LONGEST).into_owned()
}

#[cfg(test)]
mod tests {
    use enforcer_core::considered::DecisionTrace;

    use super::*;

    #[test]
    fn newest_come_first_and_workloads_in_place_are_left_out() {
        let about = |name: &str, at, state, reason: String| {
            let subject =
                DecisionSubject { name: name.into(), cgroup: None, container_id: None, ended: false };
            let record = DecisionRecord {
                first_unix_ms: at,
                last_unix_ms: 1_000,
                times: 3,
                by: "turn".into(),
                state,
                cause: None,
                paused: false,
                reason,
                considered: DecisionTrace::default(),
                updates: Vec::new(),
                warnings: Vec::new(),
                outcomes: Vec::new(),
            };
            (subject, record)
        };
        let mut all = vec![
            about("old", 1, DecisionState::Refused, "é".repeat(LONGEST + 1)),
            about("well", 9, DecisionState::InPlace, String::new()),
            about("new", 5, DecisionState::Corrected, "why".into()),
        ];
        let told =
            |all: &[(DecisionSubject, DecisionRecord)]| TopAction::newest(all.iter().map(|(a, b)| (a, b)));
        let actions = told(&all);
        assert_eq!(actions.iter().map(|one| one.workload.as_str()).collect::<Vec<_>>(), ["new", "old"]);
        assert_eq!((actions[0].words(), actions[1].reason.chars().count()), ("why", LONGEST + 1));
        all.extend((0..500).map(|at| about("x", at, DecisionState::Failed, String::new())));
        assert_eq!(told(&all).len(), KEPT);
    }
}

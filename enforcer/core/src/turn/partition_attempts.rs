//! Attempts to begin partitions.
//!
//! A partition that the kernel refuses, or that another program ends again and again, is not begun in every
//! turn: the attempts and their outcomes last between turns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::partitions::{AddedAbove, WantedPartition};
use crate::{
    plan::{Action, Outcome, OutcomeResult},
    workload::CgroupPath,
};

/// How often a partition that another program ends is begun before it is left alone.
const BEGINNINGS: u32 = 3;

/// Attempts to begin partitions, and their outcomes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionAttempts(BTreeMap<CgroupPath, PartitionAttempt>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartitionAttempt {
    wanted: WantedPartition,
    beginnings: u32,
    refused: Option<String>,
}

impl PartitionAttempts {
    /// Records the outcomes of a plan for the `wanted` partitions; `added` are its additions to cgroups above
    /// them.
    pub fn note(
        &mut self,
        wanted: &BTreeMap<CgroupPath, WantedPartition>,
        added: &AddedAbove,
        outcomes: &[Outcome],
    ) {
        self.0.retain(|cgroup, attempt| wanted.get(cgroup) == Some(&attempt.wanted));
        for Outcome { step, result } in outcomes {
            let refused = match result {
                OutcomeResult::Applied { .. } => None,
                OutcomeResult::Differs { read_back, .. } => Some(read_back),
                OutcomeResult::Failed { error } => Some(error),
                _ => continue,
            };
            match &step.action {
                Action::SetPartition { cgroup, kind } => {
                    let of_kind = wanted.get(cgroup).filter(|wanted| wanted.kind == *kind);
                    if let Some(attempt) = of_kind.map(|wanted| self.attempt(cgroup, wanted)) {
                        attempt.beginnings = attempt.beginnings.saturating_add(1);
                        attempt.refused = refused.cloned();
                    }
                }
                // A sibling has these CPUs: the partition that needs them cannot begin.
                Action::SetExclusive { cgroup: above, cpus } if refused.is_some() => {
                    let found = added.get(&(above.clone(), cpus.clone()));
                    let found = found.and_then(|cgroup| Some((cgroup, wanted.get(cgroup)?)));
                    if let Some((cgroup, wanted)) = found {
                        self.attempt(cgroup, wanted).refused = refused.cloned();
                    }
                }
                _ => {}
            }
        }
    }

    fn attempt(&mut self, cgroup: &CgroupPath, wanted: &WantedPartition) -> &mut PartitionAttempt {
        let first = || PartitionAttempt { wanted: wanted.clone(), beginnings: 0, refused: None };
        self.0.entry(cgroup.clone()).or_insert_with(first)
    }

    /// Allows every partition to be tried again.
    pub fn forgive(&mut self) {
        self.0.clear();
    }

    /// Reason why a partition is not begun again.
    pub(crate) fn refusal(&self, cgroup: &CgroupPath) -> Option<String> {
        let attempt = self.0.get(cgroup)?;
        let ended = (attempt.beginnings >= BEGINNINGS)
            .then(|| format!("it was begun {BEGINNINGS} times, and another program has ended it each time"));
        attempt.refused.clone().or(ended)
    }
}

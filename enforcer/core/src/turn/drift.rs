//! Drift: another program rewrites a cpuset that the daemon keeps. It is put back at once, up to a limit.
//!
//! Problem: a restarted kubelet, a daemon-reload or an administrator writes a cpuset that the daemon keeps.
//! It should be restored within a second. A program that writes it again and again does so on purpose, and an
//! endless fight helps neither side. Idea: remember the last known set of each workload. If that is still its
//! goal and the workload has another set, it has drifted. It is put back without a cool-down, at most
//! [`REPAIRS`] times within [`WINDOW_NS`], and then left alone until the first of these repairs is that old,
//! or until the configuration is read again.
//!
//! Invariants: writes of the daemon, and of a runtime on its behalf ([`Drift::expect`]), are no drift. A
//! changed goal or a recreated cgroup is an ordinary correction. A restarted daemon continues the count
//! ([`Drift::to_record`]).

mod record;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::record::{DriftRecordError, LastingDrift};
use super::target::{CpusetTarget, DriftStatus};
use crate::{
    hosted::Cpuset,
    plan::{Outcome, OutcomeResult},
    workload::CgroupPath,
};
use numa_topology::set::{CpuSet, NodeSet};

/// How often a workload is put back within [`WINDOW_NS`].
pub(crate) const REPAIRS: usize = 3;
/// An hour in nanoseconds.
const WINDOW_NS: u64 = 3_600 * 1_000_000_000;

/// Outcome of the drift of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftFate {
    /// It was put back.
    Repaired,
    /// It could not be put back.
    Failed,
    /// It is left alone from now on.
    LeftAlone,
}

/// Numbers of drifts by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftCounts {
    /// Drifts that were put back.
    pub repaired: u64,
    /// Drifts that could not be put back.
    pub failed: u64,
    /// Drifts after which the workload was left alone.
    pub left_alone: u64,
}

impl DriftCounts {
    /// Adds one outcome.
    pub fn count(&mut self, fate: DriftFate) {
        let counted = match fate {
            DriftFate::Repaired => &mut self.repaired,
            DriftFate::Failed => &mut self.failed,
            DriftFate::LeftAlone => &mut self.left_alone,
        };
        *counted = counted.saturating_add(1);
    }
}

/// Last known target of each workload, and its repairs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Drift(BTreeMap<CgroupPath, WorkloadDrift>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WorkloadDrift {
    cgroup_id: Option<u64>,
    goal: Cpuset,
    reached: TargetReached,
    /// Times of its repairs, the latest last; at most [`REPAIRS`].
    repairs: Vec<u64>,
    left_alone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum TargetReached {
    /// It was seen there, or was put back.
    Yes,
    /// It was written, and not looked at since.
    Written,
    /// Steps are left, or a runtime writes on the daemon's behalf.
    NotYet,
    /// The write failed.
    Failed,
}

impl WorkloadDrift {
    /// Repairs within the hour. A time in the future, as after a clock restart, counts as long ago.
    fn repairs(&self, now_ns: u64) -> usize {
        self.repairs.iter().filter(|at| is_recent(**at, now_ns)).count()
    }
}

fn is_recent(at_ns: u64, now_ns: u64) -> bool {
    now_ns.checked_sub(at_ns).is_some_and(|passed| passed < WINDOW_NS)
}

impl Drift {
    /// The record of this life of a cgroup.
    fn of(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>) -> Option<&WorkloadDrift> {
        self.0.get(cgroup).filter(|kept| kept.cgroup_id == cgroup_id)
    }

    /// The state of a workload that has, or does not have, its target.
    pub fn standing(
        &self,
        cgroup: &CgroupPath,
        cgroup_id: Option<u64>,
        goal: &Cpuset,
        in_place: bool,
        now_ns: u64,
    ) -> DriftStatus {
        if in_place {
            return DriftStatus::InPlace;
        }
        let Some(kept) = self.of(cgroup, cgroup_id).filter(|kept| kept.goal == *goal) else {
            return DriftStatus::OnItsWay;
        };
        let enough = kept.repairs(now_ns) >= REPAIRS;
        match kept.reached {
            TargetReached::NotYet => DriftStatus::OnItsWay,
            _ if enough => DriftStatus::LeftAlone,
            TargetReached::Yes => DriftStatus::Drifted,
            // A write may have no effect, whatever undoes it, so it is not repeated at once or without end.
            TargetReached::Written | TargetReached::Failed => DriftStatus::OnItsWay,
        }
    }

    /// The last target of a workload, if it was reached.
    pub fn set_to(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>) -> Option<&Cpuset> {
        let kept = self.of(cgroup, cgroup_id).filter(|kept| kept.reached != TargetReached::Failed);
        kept.map(|kept| &kept.goal)
    }

    /// Did the last attempt to reach the goal fail?
    pub fn has_failed(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>) -> bool {
        self.of(cgroup, cgroup_id).is_some_and(|kept| kept.reached == TargetReached::Failed)
    }

    /// Is its cpuset another one than the daemon set? Then that is the choice of another program, however
    /// good.
    pub fn is_away(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>, now: (&CpuSet, &NodeSet)) -> bool {
        let kept = self.of(cgroup, cgroup_id).filter(|kept| kept.reached == TargetReached::Yes);
        kept.is_some_and(|WorkloadDrift { goal: Cpuset { cpus, mems }, .. }| {
            cpus.as_ref().is_some_and(|cpus| cpus != now.0) || mems.as_ref().is_some_and(|mems| mems != now.1)
        })
    }

    /// Nanoseconds until a workload that is left alone may be put back again.
    pub fn left_alone_for(&self, cgroup: &CgroupPath, now_ns: u64) -> u64 {
        let repairs = self.0.get(cgroup).map_or(&[][..], |kept| &kept.repairs);
        let first = repairs.iter().find(|at| is_recent(**at, now_ns));
        first.map_or(0, |first| first.saturating_add(WINDOW_NS).saturating_sub(now_ns))
    }

    /// Marks cgroups that a runtime writes on the daemon's behalf, now or in a moment: their sets are no
    /// drift meanwhile.
    pub fn expect<'a>(&mut self, cgroups: impl IntoIterator<Item = &'a CgroupPath>) {
        for cgroup in cgroups {
            if let Some(kept) = self.0.get_mut(cgroup) {
                kept.reached = TargetReached::NotYet;
            }
        }
    }

    /// Forgets repairs after the configuration was read again: workloads that were left alone are put back.
    pub fn forgive(&mut self) {
        for kept in self.0.values_mut() {
            kept.repairs.clear();
        }
    }

    /// Records the targets of a decision that was carried out, and the outcomes of its steps. `unfinished`
    /// are workloads with more steps than one plan allows. Returns the outcome of each drift.
    pub fn note(
        &mut self,
        targets: &BTreeMap<CgroupPath, CpusetTarget>,
        outcomes: &[Outcome],
        unfinished: &BTreeSet<CgroupPath>,
        now_ns: u64,
    ) -> Vec<(CgroupPath, DriftFate)> {
        // A workload that is missing from one sample keeps its record.
        self.0.retain(|cgroup, kept| targets.contains_key(cgroup) || kept.repairs(now_ns) > 0);
        let mut written = written(outcomes);
        let mut fates = Vec::new();
        for (cgroup, target) in targets {
            let fresh = || WorkloadDrift {
                cgroup_id: target.cgroup_id,
                goal: target.cpuset.clone(),
                reached: TargetReached::NotYet,
                repairs: Vec::new(),
                left_alone: false,
            };
            let kept = self.0.entry(cgroup.clone()).or_insert_with(fresh);
            if kept.cgroup_id != target.cgroup_id {
                *kept = fresh();
            } else if kept.goal != target.cpuset {
                // Another goal, but the same program fights for this cpuset.
                (kept.goal, kept.reached) = (target.cpuset.clone(), TargetReached::NotYet);
            }
            let is_repair = target.standing == DriftStatus::Drifted
                || (target.standing == DriftStatus::OnItsWay && kept.reached == TargetReached::Written);
            let became = match written.remove(cgroup) {
                _ if unfinished.contains(cgroup) => Some(TargetReached::NotYet),
                Some(true) if is_repair => Some(TargetReached::Yes),
                Some(true) => Some(TargetReached::Written),
                Some(false) => Some(TargetReached::Failed),
                None => (target.standing == DriftStatus::InPlace).then_some(TargetReached::Yes),
            };
            kept.reached = became.unwrap_or(kept.reached);
            if is_repair && became.is_some() {
                kept.repairs.retain(|at| is_recent(*at, now_ns));
                kept.repairs.push(now_ns);
                let failed = became == Some(TargetReached::Failed);
                let fate = if failed { DriftFate::Failed } else { DriftFate::Repaired };
                fates.push((cgroup.clone(), fate));
            }
            let left_alone = target.standing == DriftStatus::LeftAlone;
            if left_alone && !kept.left_alone {
                fates.push((cgroup.clone(), DriftFate::LeftAlone));
            }
            kept.left_alone = left_alone;
        }
        fates
    }
}

/// Workloads with a cpuset to be written, and whether all of it was done.
fn written(outcomes: &[Outcome]) -> BTreeMap<&CgroupPath, bool> {
    let mut written = BTreeMap::new();
    for Outcome { step, result } in outcomes {
        if step.action.sets_cpuset() {
            let done = matches!(result, OutcomeResult::Applied { .. });
            *written.entry(step.action.cgroup()).or_insert(true) &= done;
        }
    }
    written
}

#[cfg(test)]
mod tests;

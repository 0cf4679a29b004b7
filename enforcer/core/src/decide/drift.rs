//! Somebody else rewrites what was set: put back at once, but not for ever.
//!
//! Problem: a kubelet that restarts, a daemon-reload or a person writes a cpuset that is ours to keep. It
//! should be as it was within a second; but who writes it again and again means it, and to go on against that
//! is a fight that nobody wins. Idea: remember what each workload was last seen or made to be. If that is
//! still its goal and it is elsewhere, it has drifted. It is put back without a cool-down, at most
//! [`REPAIRS`] times within [`WINDOW_NS`], and then left alone until the first of these is that long ago, or
//! until somebody reads the configuration again.
//!
//! Never: our own writes, or those of a runtime on our behalf ([`Drift::expect`]), taken for somebody else's.
//! A goal that has changed, and a cgroup that was made again, is a correction like any other. And a daemon
//! that is started again does not count anew ([`Drift::to_record`]).

mod record;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::record::{DriftRecordError, LastingDrift};
use super::Decision;
use crate::{
    place::Cpuset,
    plan::{Outcome, OutcomeResult},
    set::{CpuSet, NodeSet},
    workload::CgroupPath,
};

/// Times that a workload is put back within [`WINDOW_NS`].
pub(super) const REPAIRS: usize = 3;
/// An hour in nanoseconds.
pub(super) const WINDOW_NS: u64 = 3_600 * 1_000_000_000;

/// What a workload shall be set to, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The kernel's id of its cgroup, which one that is made again does not have.
    pub cgroup_id: Option<u64>,
    /// CPUs and memory nodes.
    pub cpuset: Cpuset,
    /// How far it is.
    pub standing: Standing,
}

/// How far a workload is from what it shall be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Its cpuset is what it shall be.
    InPlace,
    /// It has not been there yet.
    OnItsWay,
    /// It was there, and somebody else has written its cpuset.
    Drifted,
    /// The same, once more than it is put back.
    LeftAlone,
}

/// What became of the drift of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftFate {
    /// It was put back.
    Repaired,
    /// It could not be put back.
    Failed,
    /// It is left alone from now on.
    LeftAlone,
}

/// How often what became of drift.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftCounts {
    /// Put back.
    pub repaired: u64,
    /// Could not be put back.
    pub failed: u64,
    /// Left alone from then on.
    pub left_alone: u64,
}

impl DriftCounts {
    /// Counts what happened later.
    pub fn count(&mut self, fate: DriftFate) {
        let counted = match fate {
            DriftFate::Repaired => &mut self.repaired,
            DriftFate::Failed => &mut self.failed,
            DriftFate::LeftAlone => &mut self.left_alone,
        };
        *counted = counted.saturating_add(1);
    }
}

/// What each workload was last seen or made to be, and how often it was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Drift(BTreeMap<CgroupPath, Kept>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    cgroup_id: Option<u64>,
    goal: Cpuset,
    reached: Reached,
    /// When it was put back, the latest last; at most [`REPAIRS`].
    repairs: Vec<u64>,
    left_alone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Reached {
    /// It was seen there, or put back.
    Yes,
    /// It was written, and not looked at since.
    Written,
    /// Not all is done, or somebody writes on our behalf.
    NotYet,
    /// It was tried.
    Failed,
}

impl Kept {
    /// Times that it was put back within the hour. A time in the future, as after a restart of the clock, is
    /// long ago.
    fn repairs(&self, now_ns: u64) -> usize {
        self.repairs.iter().filter(|at| is_recent(**at, now_ns)).count()
    }
}

fn is_recent(at_ns: u64, now_ns: u64) -> bool {
    now_ns.checked_sub(at_ns).is_some_and(|passed| passed < WINDOW_NS)
}

impl Drift {
    /// What is remembered of this life of a cgroup.
    fn of(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>) -> Option<&Kept> {
        self.0.get(cgroup).filter(|kept| kept.cgroup_id == cgroup_id)
    }

    /// Where a workload stands that is, or is not, what it shall be.
    pub fn standing(
        &self,
        cgroup: &CgroupPath,
        cgroup_id: Option<u64>,
        goal: &Cpuset,
        in_place: bool,
        now_ns: u64,
    ) -> Standing {
        if in_place {
            return Standing::InPlace;
        }
        let Some(kept) = self.of(cgroup, cgroup_id).filter(|kept| kept.goal == *goal) else {
            return Standing::OnItsWay;
        };
        let enough = kept.repairs(now_ns) >= REPAIRS;
        match kept.reached {
            Reached::NotYet => Standing::OnItsWay,
            _ if enough => Standing::LeftAlone,
            Reached::Yes => Standing::Drifted,
            // It may be that nothing comes of writing it, whoever undoes it: not at once, and not without
            // end.
            Reached::Written | Reached::Failed => Standing::OnItsWay,
        }
    }

    /// What a workload was set to, as far as it got there.
    pub fn set_to(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>) -> Option<&Cpuset> {
        let kept = self.of(cgroup, cgroup_id).filter(|kept| kept.reached != Reached::Failed);
        kept.map(|kept| &kept.goal)
    }

    /// Could it not be brought to its goal when that was last tried?
    pub fn has_failed(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>) -> bool {
        self.of(cgroup, cgroup_id).is_some_and(|kept| kept.reached == Reached::Failed)
    }

    /// Was it put somewhere else than where it is now? Then what it has is somebody else's choice, however
    /// good.
    pub fn is_away(&self, cgroup: &CgroupPath, cgroup_id: Option<u64>, now: (&CpuSet, &NodeSet)) -> bool {
        let kept = self.of(cgroup, cgroup_id).filter(|kept| kept.reached == Reached::Yes);
        kept.is_some_and(|Kept { goal: Cpuset { cpus, mems }, .. }| {
            cpus.as_ref().is_some_and(|cpus| cpus != now.0) || mems.as_ref().is_some_and(|mems| mems != now.1)
        })
    }

    /// Nanoseconds until a workload that is left alone may be put back again.
    pub fn left_alone_for(&self, cgroup: &CgroupPath, now_ns: u64) -> u64 {
        let repairs = self.0.get(cgroup).map_or(&[][..], |kept| &kept.repairs);
        let first = repairs.iter().find(|at| is_recent(**at, now_ns));
        first.map_or(0, |first| first.saturating_add(WINDOW_NS).saturating_sub(now_ns))
    }

    /// Somebody writes these on our behalf, now or in a moment: what they are meanwhile is no drift.
    pub fn expect<'a>(&mut self, cgroups: impl IntoIterator<Item = &'a CgroupPath>) {
        for cgroup in cgroups {
            if let Some(kept) = self.0.get_mut(cgroup) {
                kept.reached = Reached::NotYet;
            }
        }
    }

    /// Begins anew, because somebody has read the configuration again: what was left alone is put back.
    pub fn forgive(&mut self) {
        for kept in self.0.values_mut() {
            kept.repairs.clear();
        }
    }

    /// Notes a decision that was carried out, and what became of its steps. `unfinished` are workloads with
    /// more to do than one plan may. Returns what became of whose drift.
    pub fn note(
        &mut self,
        decision: &Decision,
        outcomes: &[Outcome],
        unfinished: &BTreeSet<CgroupPath>,
        now_ns: u64,
    ) -> Vec<(CgroupPath, DriftFate)> {
        // Who is not seen for a moment does not begin anew.
        self.0.retain(|cgroup, kept| decision.targets.contains_key(cgroup) || kept.repairs(now_ns) > 0);
        let mut written = written(outcomes);
        let mut fates = Vec::new();
        for (cgroup, target) in &decision.targets {
            let fresh = || Kept {
                cgroup_id: target.cgroup_id,
                goal: target.cpuset.clone(),
                reached: Reached::NotYet,
                repairs: Vec::new(),
                left_alone: false,
            };
            let kept = self.0.entry(cgroup.clone()).or_insert_with(fresh);
            if kept.cgroup_id != target.cgroup_id {
                *kept = fresh();
            } else if kept.goal != target.cpuset {
                // Another goal, but the same who fights for this cpuset.
                (kept.goal, kept.reached) = (target.cpuset.clone(), Reached::NotYet);
            }
            let is_repair = target.standing == Standing::Drifted
                || (target.standing == Standing::OnItsWay && kept.reached == Reached::Written);
            let became = match written.remove(cgroup) {
                _ if unfinished.contains(cgroup) => Some(Reached::NotYet),
                Some(true) if is_repair => Some(Reached::Yes),
                Some(true) => Some(Reached::Written),
                Some(false) => Some(Reached::Failed),
                None => (target.standing == Standing::InPlace).then_some(Reached::Yes),
            };
            kept.reached = became.unwrap_or(kept.reached);
            if is_repair && became.is_some() {
                kept.repairs.retain(|at| is_recent(*at, now_ns));
                kept.repairs.push(now_ns);
                let failed = became == Some(Reached::Failed);
                let fate = if failed { DriftFate::Failed } else { DriftFate::Repaired };
                fates.push((cgroup.clone(), fate));
            }
            let left_alone = target.standing == Standing::LeftAlone;
            if left_alone && !kept.left_alone {
                fates.push((cgroup.clone(), DriftFate::LeftAlone));
            }
            kept.left_alone = left_alone;
        }
        fates
    }
}

/// Workloads whose cpuset was to be written, and whether all of that was done.
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

//! Times and goals of corrections.
//!
//! A correction without effect (another program writes the same files, pages that cannot move) must not be
//! repeated in every turn: a workload is not brought to the same goal again within the policy's cool-down.
//! Another goal is another correction: a workload that gets exclusive CPUs must not wait a minute for them. A
//! mere improvement waits for the cool-down whatever the goal was. Changes by other programs have their own
//! rule ([`Drift`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    drift::Drift, move_history::MoveHistory, partition_attempts::PartitionAttempts, target::CpusetTarget,
};
use crate::{
    hosted::Cpuset,
    plan::{Action, Plan},
    policy::Policy,
    workload::CgroupPath,
};

/// Past corrections of each workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Monotonic time of the last correction, in nanoseconds.
    corrected: BTreeMap<CgroupPath, u64>,
    /// Kernel ids of those cgroups: a recreated cgroup at the same path is another workload.
    #[serde(default)]
    ids: BTreeMap<CgroupPath, u64>,
    /// Goals of the corrections; absent for a correction that an earlier version recorded.
    #[serde(default)]
    goals: BTreeMap<CgroupPath, Cpuset>,
    /// Known targets, and how often they were restored.
    pub drift: Drift,
    /// Partitions that were begun, with their outcomes.
    #[serde(default)]
    pub partitions: PartitionAttempts,
    /// Workloads that were moved to a better place.
    #[serde(default)]
    pub rebalance: MoveHistory,
}

impl History {
    /// Records that the plan was carried out, or tried, to bring cgroups to these targets.
    pub fn note(&mut self, plan: &Plan, targets: &BTreeMap<CgroupPath, CpusetTarget>, now_ns: u64) {
        // A new partition does not start a cool-down.
        let partition =
            |action: &Action| matches!(action, Action::SetPartition { .. } | Action::SetExclusive { .. });
        for step in plan.steps.iter().filter(|step| !partition(&step.action)) {
            let cgroup = step.action.cgroup();
            self.corrected.insert(cgroup.clone(), now_ns);
            let target = targets.get(cgroup);
            match target.and_then(|target| target.cgroup_id) {
                Some(id) => self.ids.insert(cgroup.clone(), id),
                None => self.ids.remove(cgroup),
            };
            match target {
                Some(target) => self.goals.insert(cgroup.clone(), target.cpuset.clone()),
                None => self.goals.remove(cgroup),
            };
            self.rebalance.carried(cgroup);
        }
    }

    /// Forgets the goals of these cgroups: a runtime has set them on the daemon's behalf since.
    pub fn forget(&mut self, cgroups: &BTreeSet<CgroupPath>) {
        self.corrected.retain(|cgroup, _| !cgroups.contains(cgroup));
        self.ids.retain(|cgroup, _| !cgroups.contains(cgroup));
        self.goals.retain(|cgroup, _| !cgroups.contains(cgroup));
    }

    /// Forgets corrections that no longer delay anything.
    pub fn prune(&mut self, policy: &Policy, now_ns: u64) {
        self.corrected.retain(|_, at| remaining(*at, policy, now_ns).is_some());
        self.ids.retain(|cgroup, _| self.corrected.contains_key(cgroup));
        self.goals.retain(|cgroup, _| self.corrected.contains_key(cgroup));
    }

    /// Reason why the workload in the cgroup with this kernel id may not be brought to this goal now.
    pub fn cooling_towards(
        &self,
        workload: &CgroupPath,
        id: Option<u64>,
        goal: &Cpuset,
        policy: &Policy,
        now_ns: u64,
    ) -> Option<String> {
        let is_same = self.goals.get(workload).is_none_or(|tried| tried == goal);
        self.cooling(workload, id, policy, now_ns).filter(|_| is_same)
    }

    /// Reason why the workload in the cgroup with this kernel id may not be moved to a better place now: it
    /// was corrected, to any goal.
    pub fn cooling(
        &self,
        workload: &CgroupPath,
        id: Option<u64>,
        policy: &Policy,
        now_ns: u64,
    ) -> Option<String> {
        if self.ids.get(workload).copied().zip(id).is_some_and(|(then, now)| then != now) {
            return None;
        }
        let left = remaining(*self.corrected.get(workload)?, policy, now_ns)?;
        let seconds = left.div_ceil(1_000_000_000);
        if self.drift.has_failed(workload, id) {
            return Some(format!("to correct it has failed; it is tried again in {seconds} s"));
        }
        Some(format!("it was corrected already; the cool-down of {} ends in {seconds} s", policy.cool_down))
    }
}

/// Nanoseconds left of the cool-down. A time in the future, as after a clock restart, delays nothing.
fn remaining(at_ns: u64, policy: &Policy, now_ns: u64) -> Option<u64> {
    let passed = now_ns.checked_sub(at_ns)?;
    policy.cool_down.as_nanos().checked_sub(passed).filter(|left| *left > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Action, Outcome, OutcomeResult, Step},
        policy::HumanDuration,
        turn::DriftStatus,
    };

    const SECOND: u64 = 1_000_000_000;

    fn goal(cpus: &str) -> Cpuset {
        Cpuset { cpus: cpus.parse().ok(), mems: None }
    }

    /// A correction of `/a` and what it was to bring about.
    fn correction(cpus: &str, cgroup_id: Option<u64>) -> (Plan, BTreeMap<CgroupPath, CpusetTarget>) {
        let path = CgroupPath::new("/a");
        let action = Action::SetCpus { cgroup: path.clone(), cpus: cpus.parse().unwrap() };
        let plan = Plan { steps: vec![Step { action, reason: String::new() }], ..Plan::default() };
        let target = CpusetTarget { cgroup_id, cpuset: goal(cpus), standing: DriftStatus::OnItsWay };
        (plan, [(path, target)].into())
    }

    #[test]
    fn another_goal_is_another_correction_but_an_improvement_waits() {
        let policy = Policy { cool_down: HumanDuration::from_secs(60), ..Policy::default() };
        let path = CgroupPath::new("/a");
        let mut history = History::default();
        for (at, cpus) in [(100, "0-3"), (110, "0-1"), (120, "0-3")] {
            let (plan, targets) = correction(cpus, Some(7));
            history.note(&plan, &targets, at * SECOND);
            let towards = |cpus, id, after: u64| {
                history.cooling_towards(&path, id, &goal(cpus), &policy, (at + after) * SECOND).is_some()
            };
            let other = if cpus == "0-1" { "0-3" } else { "0-1" };
            assert_eq!([0, 59, 60].map(|after| towards(cpus, Some(7), after)), [true, true, false]);
            assert!(!towards(other, Some(7), 0) && !towards(cpus, Some(8), 0), "{at}");
            assert!(history.cooling(&path, Some(7), &policy, (at + 59) * SECOND).is_some());
        }
        // As an earlier version has recorded it.
        let text = r#"{"corrected":{"/a":100000000000},"drift":{}}"#;
        let history: History = serde_json::from_str(text).unwrap();
        assert!(history.cooling_towards(&path, None, &goal("0-3"), &policy, 110 * SECOND).is_some());
    }

    #[test]
    fn failed_correction_is_reported_as_failed() {
        let policy = Policy { cool_down: HumanDuration::from_secs(60), ..Policy::default() };
        let path = CgroupPath::new("/a");
        for (result, said) in [
            (
                OutcomeResult::Failed { error: "no".into() },
                "to correct it has failed; it is tried again in 50 s",
            ),
            (
                OutcomeResult::Applied { read_back: "0".into() },
                "it was corrected already; the cool-down of 1m ends in 50 s",
            ),
        ] {
            let (plan, targets) = correction("0", Some(7));
            let mut history = History::default();
            history.note(&plan, &targets, 100 * SECOND);
            let outcomes: Vec<_> = plan
                .steps
                .iter()
                .map(|step| Outcome { step: step.clone(), result: result.clone() })
                .collect();
            history.drift.note(&targets, &outcomes, &BTreeSet::new(), 100 * SECOND);
            assert_eq!(history.cooling(&path, Some(7), &policy, 110 * SECOND).as_deref(), Some(said));
        }
    }

    #[test]
    fn a_workload_is_left_alone_for_the_cool_down() {
        let policy = Policy { cool_down: HumanDuration::from_secs(60), ..Policy::default() };
        let path = CgroupPath::new("/a");
        let (plan, targets) = correction("0", Some(7));
        let mut history = History::default();
        assert_eq!(history.cooling(&path, Some(7), &policy, 0), None);

        history.note(&plan, &targets, 100 * SECOND);
        for (now, cooling) in [(99, false), (100, true), (159, true), (160, false), (10_000, false)] {
            for (id, cooling) in [(Some(7), cooling), (None, cooling), (Some(8), false)] {
                let why = history.cooling(&path, id, &policy, now * SECOND);
                assert_eq!(why.is_some(), cooling, "{id:?} at {now} s");
            }
        }
        let reason = history.cooling(&path, Some(7), &policy, 110 * SECOND).unwrap();
        assert!(reason.contains("1m") && reason.contains("50 s"), "{reason}");
        assert_eq!(history.cooling(&CgroupPath::new("/b"), Some(7), &policy, 110 * SECOND), None);

        history.prune(&policy, 120 * SECOND);
        assert_ne!(history, History::default());
        history.prune(&policy, 200 * SECOND);
        assert_eq!(history, History::default());
        // An unknown kernel id cools as its path does.
        history.note(&plan, &correction("0", None).1, 300 * SECOND);
        assert!(history.cooling(&path, Some(8), &policy, 300 * SECOND).is_some());
    }
}

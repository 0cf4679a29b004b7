//! Differences of two decisions from the same input.
//!
//! Texts are not compared: reasons are for people, and may change between versions. Steps are compared by
//! their actions, and their order counts, since a plan is carried out in order.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hosted::Cpuset,
    plan::{Action, Plan},
    rebalance,
    turn::{CpusetTarget, Decision, Refusal, TurnOutput},
    workload::CgroupPath,
};

/// Recorded output of a turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedOutput {
    /// The decision.
    pub decision: Decision,
    /// Planned moves to better places; `None` if none were asked for.
    pub rebalanced: Option<rebalance::RebalanceTurn>,
}

impl From<TurnOutput> for RecordedOutput {
    fn from(taken: TurnOutput) -> Self {
        Self { decision: taken.decision, rebalanced: taken.rebalanced.map(|(turn, _)| turn) }
    }
}

/// Differences of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnDifference {
    /// Recorded steps that are not planned now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Action>,
    /// Planned steps that were not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new: Vec<Action>,
    /// True if the common steps are in another order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reordered: bool,
    /// Recorded refusals that are not made now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_longer_refused: Vec<Refusal>,
    /// Present refusals that were not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub newly_refused: Vec<Refusal>,
    /// Different targets by workload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub goals: BTreeMap<CgroupPath, GoalChange>,
    /// Other differing parts: `groups`, `in-place`, `aims`, `standing`, `partitions`, `rebalance`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub otherwise: BTreeSet<String>,
}

/// Target of a workload then and now; `null` without a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoalChange {
    /// The recorded target.
    pub recorded: Option<Cpuset>,
    /// The present target.
    pub now: Option<Cpuset>,
}

/// The differences; `None` if there are none.
pub fn differences(recorded: &RecordedOutput, now: &RecordedOutput) -> Option<TurnDifference> {
    let (then, today) = (&recorded.decision, &now.decision);
    let mut found = TurnDifference {
        no_longer_refused: refusals_beside(then, today),
        newly_refused: refusals_beside(today, then),
        goals: goals(then, today),
        ..TurnDifference::default()
    };
    (found.gone, found.new, found.reordered) = steps(&then.plan, &today.plan);
    let standing = |decision: &Decision| -> Vec<_> {
        decision.targets.iter().map(|(cgroup, target)| (cgroup.clone(), target.standing)).collect()
    };
    let without =
        |decision: &Decision| -> Vec<CgroupPath> { decision.without_partition.keys().cloned().collect() };
    let otherwise = [
        ("groups", then.plan.groups != today.plan.groups),
        ("in-place", then.in_place != today.in_place),
        ("aims", then.aims != today.aims),
        ("standing", standing(then) != standing(today)),
        ("partitions", then.partitions != today.partitions || without(then) != without(today)),
        ("rebalance", wordless(recorded.rebalanced.as_ref()) != wordless(now.rebalanced.as_ref())),
    ];
    let differs = otherwise.into_iter().filter(|(_, differs)| *differs);
    found.otherwise = differs.map(|(name, _)| name.to_owned()).collect();
    (found != TurnDifference::default()).then_some(found)
}

/// Entries of `one` that `other` lacks.
fn refusals_beside(one: &Decision, other: &Decision) -> Vec<Refusal> {
    let had: BTreeSet<_> = other.refused.iter().map(|it| (&it.workload, it.cause)).collect();
    one.refused.iter().filter(|it| !had.contains(&(&it.workload, it.cause))).cloned().collect()
}

fn goals(then: &Decision, now: &Decision) -> BTreeMap<CgroupPath, GoalChange> {
    let all: BTreeSet<&CgroupPath> = then.targets.keys().chain(now.targets.keys()).collect();
    let cpuset = |target: Option<&CpusetTarget>| target.map(|target| target.cpuset.clone());
    let changes = all.into_iter().map(|cgroup| {
        let (recorded, now) = (then.targets.get(cgroup), now.targets.get(cgroup));
        (cgroup.clone(), GoalChange { recorded: cpuset(recorded), now: cpuset(now) })
    });
    changes.filter(|(_, change)| change.recorded != change.now).collect()
}

/// Removed steps, added steps, and whether the others are in another order. The same step may occur twice.
fn steps(then: &Plan, now: &Plan) -> (Vec<Action>, Vec<Action>, bool) {
    let (then, now) = (actions(then), actions(now));
    if then == now {
        return (Vec::new(), Vec::new(), false);
    }
    let (gone, kept) = beside(&then, &now);
    let (new, still) = beside(&now, &then);
    let owned = |actions: Vec<&Action>| actions.into_iter().cloned().collect();
    (owned(gone), owned(new), kept != still)
}

fn actions(plan: &Plan) -> Vec<&Action> {
    plan.steps.iter().map(|step| &step.action).collect()
}

/// Splits `one` into steps that `other` has less often, and the rest. Steps are found by their cgroup, which
/// has few.
fn beside<'a>(one: &[&'a Action], other: &[&'a Action]) -> (Vec<&'a Action>, Vec<&'a Action>) {
    let mut left: BTreeMap<&CgroupPath, Vec<&Action>> = BTreeMap::new();
    for action in other {
        left.entry(action.cgroup()).or_default().push(action);
    }
    one.iter().partition(|action| {
        let same = left.get_mut(action.cgroup());
        let at = same.as_ref().and_then(|same| same.iter().position(|it| it == *action));
        match (same, at) {
            (Some(same), Some(at)) => {
                same.swap_remove(at);
                false
            }
            _ => true,
        }
    })
}

/// The step without its text.
fn wordless(turn: Option<&rebalance::RebalanceTurn>) -> Option<rebalance::RebalanceTurn> {
    let mut turn = turn?.clone();
    turn.report.moves.iter_mut().for_each(|one| one.reason.clear());
    turn.report.left.iter_mut().for_each(|one| one.reason.clear());
    turn.report.degraded.clear();
    Some(turn)
}

//! A better place for workloads that run.
//!
//! Problem: a place that was right when it was given is not right for ever. Memory that was allocated
//! elsewhere stays there, a node fills up while another is empty, a device is beside other CPUs. Moving
//! costs: every byte is copied, caches are cold, and a plan that is wrong is undone at the same price. Idea:
//! find a few moves that together fix the host, each of them only if what it saves is more than it costs, on
//! figures that are good enough to believe.
//!
//! Terminology. A workload *settles* on a node when its CPUs and its memory are there: the CPUs may go to the
//! memory, the memory to the CPUs, or both elsewhere. A *group* is what has to be done together: one workload
//! that settles, or two that *exchange* their CPUs as whole sets. A workload is *ailing* when its remote
//! traffic is above the upper threshold, and from then on until it is below the lower one; or when its
//! devices are beside none of its CPUs. A node is *short* of memory, or of CPU time, likewise.
//!
//! The currency is the CPU second ([`worth`]): what a place costs is the CPU time that is lost there within
//! the horizon, waiting for far memory and for devices, for memory that has to come back because a node was
//! short of it, or for a CPU that others use. What a move costs is the CPU time that copying, cold caches and
//! the writes take. A group is worth it when it saves more than twice what it costs.
//!
//! The search ([`search`]) is greedy: the best group of each ailing workload, and of these the one with the
//! lowest `QoS` class and the fewest bytes; then again on the host as it will be. No workload moves twice in
//! a plan, none moves that was moved within the cool-down, and none returns within the guard to a node that
//! it left ([`past`]): so that a plan that was carried out leaves nothing to be planned.
//!
//! Must never: move what is not ours, break up an exclusive set, exceed at any point of the plan what a node
//! has of CPUs or memory, leave a node short that was not, or move a byte above the budget. Cost: (ailing, at
//! most 32) x nodes x (workloads of a node) groups to weigh, as often as there are moves.

mod course;
mod evidence;
mod gather;
mod past;
mod report;
mod search;
mod state;
mod view;
mod worth;

pub use self::{
    course::Verdict,
    gather::{Gathered, gather},
    past::Past,
    report::{Cpus, Figures, LeftAs, Move, REBALANCE_SCHEMA_VERSION, RebalanceReport},
    search::{Pace, plan},
    view::{Ailment, CpusHeld, Held, Host, Mover, Room},
};

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    decide::{Decision, Inputs, pins},
    place::Allocations,
    workload::CgroupPath,
};

/// A plan for a host that nobody has looked at before. `bytes_per_turn` is what the daemon would move at
/// once.
pub fn once(inputs: &Inputs<'_>, allocations: &mut Allocations, bytes_per_turn: u64) -> RebalanceReport {
    pins::hold_of_others(inputs, allocations);
    let past = Past::default();
    let gathered = gather(inputs, allocations, &past, |_| None);
    let settings = &inputs.policy.rebalance;
    let pace = Pace::usual(bytes_per_turn, inputs.policy.interval);
    let budget = past.budget(settings, inputs.now_ns);
    let mut report = plan(&gathered.host, &gathered.movers, settings, budget, pace);
    report.left.extend(gathered.left);
    report.left.sort_by(|one, other| one.workload.cmp(&other.workload));
    report
}

/// What one turn of the daemon did about it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// What is planned.
    pub report: RebalanceReport,
    /// Its moves have begun.
    pub begun: bool,
    /// What became of moves that were under way.
    pub verdicts: BTreeMap<CgroupPath, Verdict>,
}

/// When the turn after one should come, as far as moves ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextTurn {
    /// Moves have begun, which the next decision carries out.
    pub carries_out: bool,
    /// Workloads of which a further sample would tell whether they are to be moved.
    pub undecided: BTreeSet<CgroupPath>,
}

/// Looks after moves that are under way, and plans further ones, which begin if they may: the next decision
/// then carries them out. Whoever this decision does something about, or refuses, is not moved.
pub fn turn(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    past: &mut Past,
    decision: &Decision,
    bytes_per_turn: u64,
    may_begin: bool,
) -> (Turn, NextTurn) {
    let settings = &inputs.policy.rebalance;
    past.prune(settings, inputs.now_ns, |cgroup| inputs.workloads.iter().any(|one| one.cgroup == *cgroup));
    let refused: BTreeMap<_, _> =
        decision.refused.iter().map(|refusal| (&refusal.workload, refusal.reason.as_str())).collect();
    let corrected: BTreeSet<_> = decision.plan.steps.iter().map(|step| step.action.cgroup()).collect();
    let busy = |cgroup: &CgroupPath| {
        let why = |text: &str| Some(text.to_owned());
        match refused.get(cgroup) {
            Some(reason) => why(reason),
            None if past.is_underway(cgroup) => why("it is being moved, and watched after that"),
            None if corrected.contains(cgroup) => why("it is being corrected"),
            None if inputs.self_placed.contains_key(cgroup) => {
                inputs.self_placed.get(cgroup).map(|one| one.reason.clone())
            }
            None if !decision.in_place.contains(cgroup) => why("it has no place yet"),
            None => {
                let id = inputs.sample.cgroup_id(cgroup);
                inputs.history.cooling(cgroup, id, inputs.policy, inputs.now_ns)
            }
        }
    };
    let gathered = gather(inputs, allocations, past, busy);
    let verdicts = past.follow(inputs, allocations, &gathered, decision);
    past.see(&gathered, settings);
    let pace = Pace::usual(bytes_per_turn, inputs.policy.interval);
    let budget = past.budget(settings, inputs.now_ns);
    let mut report = plan(&gathered.host, &gathered.movers, settings, budget, pace);
    // What is to go back is free only when it has gone.
    let goes_back = verdicts.values().any(|verdict| *verdict == Verdict::Reverted);
    let begun = may_begin && !goes_back;
    if begun {
        past.begin(inputs, allocations, &report.moves);
    }
    report.left.extend(gathered.left);
    report.left.sort_by(|one, other| one.workload.cmp(&other.workload));
    let next = NextTurn { carries_out: begun && !report.moves.is_empty(), undecided: gathered.undecided };
    (Turn { report, begun, verdicts }, next)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;

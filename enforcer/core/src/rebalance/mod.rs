//! A better place for workloads that run.
//!
//! Problem: a place that was right when it was given does not stay right. Memory that was allocated elsewhere
//! stays there, a node fills up while another is empty, a device is near other CPUs. Moving costs: every byte
//! is copied, caches are cold, and undoing a wrong plan costs the same again. Idea: find a few moves that
//! together fix the host. Each of them saves more than it costs, by figures with enough evidence.
//!
//! Terminology. A workload *settles* on a node when its CPUs and its memory are there: the CPUs may go to the
//! memory, the memory to the CPUs, or both elsewhere. A *group* is done as a whole: one workload that
//! settles, or two that *exchange* their CPUs as whole sets. A workload is *ailing* from the time its remote
//! traffic rises above the upper threshold until it falls below the lower one, or while its devices are near
//! none of its CPUs. A node is *short* of memory or CPU time by the same hysteresis.
//!
//! The currency is the CPU second ([`worth`]). A place costs the CPU time that is lost there within the
//! horizon: waiting for far memory or devices, for memory that returns from disk because a node was short of
//! it, or for a CPU that other workloads use. A move costs the CPU time of copying, cold caches and writes. A
//! group is worth it when it saves more than twice its cost.
//!
//! The search ([`search`]) is greedy. It takes the best group of each ailing workload, and of these the one
//! with the lowest `QoS` class and the fewest bytes; then it continues on the host after that group. No
//! workload moves twice in a plan, none moves within its cool-down, and none returns within the guard to a
//! node that it left ([`MoveHistory`]). After a plan was carried out there is nothing left to plan.
//!
//! Invariants: a plan moves only workloads that the daemon places, keeps exclusive sets whole, at no point
//! exceeds the CPUs or memory of a node, makes no node short, and stays within the byte budget. Cost:
//! (ailing, at most 32) x nodes x (workloads of a node) groups to weigh for each move.

mod evidence;
mod gather;
mod in_flight;
mod report;
mod search;
mod state;
mod view;
mod worth;

pub use self::{
    gather::{Gathered, gather},
    in_flight::MoveVerdict,
    report::{REBALANCE_SCHEMA_VERSION, RebalanceReport, UnmovedWorkload},
    search::{MoveSpeed, plan},
    view::{Ailment, CpusHeld, FreeResources, HostState, Mover, NodeShare},
};
pub use crate::turn::{Cpus, Figures, Move, MoveHistory};

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    decide::taken,
    turn::{Decision, Inputs},
    workload::CgroupPath,
};
use numa_placement::{Allocations, settle_overflow};

/// A plan for a host without earlier measurements. `bytes_per_turn` is the most that one turn of the daemon
/// moves.
pub fn once(inputs: &Inputs<'_>, allocations: &mut Allocations, bytes_per_turn: u64) -> RebalanceReport {
    taken::withhold_of_others(inputs, allocations);
    let past = MoveHistory::default();
    let gathered = gather(inputs, allocations, &past, |_| None);
    let settings = &inputs.policy.rebalance;
    let pace = MoveSpeed::usual(bytes_per_turn, inputs.policy.interval);
    let budget = past.budget(settings, inputs.now_ns);
    let mut report = plan(&gathered.host, &gathered.movers, settings, budget, pace);
    report.left.extend(gathered.left);
    report.left.sort_by(|one, other| one.workload.cmp(&other.workload));
    report
}

/// What one turn of the daemon planned, began and judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebalanceTurn {
    /// The plan.
    pub report: RebalanceReport,
    /// True if its moves have begun.
    pub begun: bool,
    /// Outcomes of moves that were in progress.
    pub verdicts: BTreeMap<CgroupPath, MoveVerdict>,
}

/// When the next turn should come, as far as moves ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextTurn {
    /// True if moves have begun; the next decision carries them out.
    pub carries_out: bool,
    /// Workloads for which one more sample would decide whether to move them.
    pub undecided: BTreeSet<CgroupPath>,
}

/// Judges moves in progress and plans further ones, which begin if they may; the next decision carries them
/// out. Workloads that this decision changes or refuses are not moved.
pub fn turn(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    past: &mut MoveHistory,
    decision: &Decision,
    bytes_per_turn: u64,
    may_begin: bool,
) -> (RebalanceTurn, NextTurn) {
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
    let verdicts = past.check_moves(allocations, &gathered, decision, inputs.now_ns);
    let ailing = gathered.movers.iter().filter(|mover| mover.ails.contains(&Ailment::Remote));
    past.see(ailing.map(|mover| mover.cgroup.clone()).collect(), state::short(&gathered.host, settings));
    let pace = MoveSpeed::usual(bytes_per_turn, inputs.policy.interval);
    let budget = past.budget(settings, inputs.now_ns);
    let mut report = plan(&gathered.host, &gathered.movers, settings, budget, pace);
    // CPUs of a workload that is to go back are free only after it has gone.
    let goes_back = verdicts.values().any(|verdict| *verdict == MoveVerdict::Reverted);
    let begun = may_begin && !goes_back;
    if begun {
        past.begin(inputs.inventory, inputs.containers, allocations, &report.moves, inputs.now_ns);
    }
    if begun || goes_back {
        settle_overflow(inputs.inventory, allocations);
    }
    report.left.extend(gathered.left);
    report.left.sort_by(|one, other| one.workload.cmp(&other.workload));
    let next = NextTurn { carries_out: begun && !report.moves.is_empty(), undecided: gathered.undecided };
    (RebalanceTurn { report, begun, verdicts }, next)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;

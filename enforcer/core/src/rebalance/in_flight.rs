//! Moves in progress: the target of a workload, whether it got there, and whether the move was worth it.
//!
//! A move outlives the turn that planned it: pages move within a budget, and figures need an interval.
//! Meanwhile the workload *aims* at its new grant, which counts for decisions instead of the old one. Once
//! there it is watched: if after [`WATCHED_NS`] its remote share has not fallen by half of the expected
//! amount, it goes back with its whole group to the old grant, and its cool-down is doubled. If another
//! workload has taken the old place, it stays.
//!
//! Invariant: an unreachable aim ends. After [`LONGEST_NS`], or when the decision finds that the aim is no
//! longer available, the aim is given up, and the ordinary decision places the workload from where it is. A
//! reached move of a workload that then falls idle ends after the same time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    gather::Gathered,
    view::Mover,
    worth::{Footprint, lost_per_second, remote_ratio},
};
use crate::{
    hosted::Containers,
    turn::{Cpus, Decision, Figures, InFlightMove, Move, MoveHistory},
    workload::CgroupPath,
};
use numa_placement::{Allocations, Grant, Holder, Inventory, MemoryResource};
use numa_topology::{id::NodeId, set::NodeSet};

/// Time after which a workload that has reached its place must fare better.
const WATCHED_NS: u64 = 30_000_000_000;
/// Time within which a workload must have reached its place.
const LONGEST_NS: u64 = 300_000_000_000;
/// Excess over the expected remote share that makes a move a failure, if it had another reason.
const TOLERANCE: f64 = 0.1;
/// Part of the expected fall of the remote share that must have come.
const LEAST_SAVED: f64 = 0.5;

/// Judges the move by the present remote share. A move for another reason is not expected to lower the
/// share, but it must not exceed the expectation either.
fn judge(plan: &Move, remote: f64) -> MoveVerdict {
    let (before, expected) = (plan.now.remote_ratio, plan.then.remote_ratio);
    let came = before.zip(expected).is_none_or(|(before, expected)| {
        if expected < before {
            before - remote >= (before - expected) * LEAST_SAVED
        } else {
            remote <= expected + TOLERANCE
        }
    });
    if came { MoveVerdict::Held } else { MoveVerdict::Reverted }
}

/// Outcome of a move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveVerdict {
    /// The expected improvement came.
    Held,
    /// The improvement did not come: the workload goes back.
    Reverted,
    /// The improvement did not come, and the old place is taken.
    Stays,
    /// The place was not reached in time, or the aim is no longer available.
    GivenUp,
    /// The place was reached, but the workload has run too little to tell.
    Idle,
}

impl MoveHistory {
    /// Begins the moves of a plan. From then on the allocations contain the new grants.
    pub fn begin(
        &mut self,
        inventory: &Inventory,
        containers: &Containers,
        allocations: &mut Allocations,
        moves: &[Move],
        now_ns: u64,
    ) {
        let containers: BTreeMap<&CgroupPath, &Holder> = containers.cgroups().collect();
        let holder = |cgroup: &CgroupPath| {
            containers.get(cgroup).map_or_else(|| Holder::cgroup(cgroup), |holder| (*holder).clone())
        };
        for one in moves {
            let holder = holder(&one.workload);
            let Some(had) = allocations.get(&holder).cloned() else { continue };
            let group = moves.iter().filter(|other| other.group == one.group);
            let underway = InFlightMove {
                grant: granted(inventory, &had, one),
                gathers: gathered(&had, one),
                group: group.map(|other| other.workload.clone()).collect(),
                began_ns: now_ns,
                reached_ns: None,
                returns: false,
                plan: one.clone(),
                holder,
                had,
            };
            allocations.give(underway.holder.clone(), underway.grant.clone());
            self.note(one, now_ns);
            self.underway.insert(one.workload.clone(), underway);
        }
    }

    /// Checks the moves in progress; returns their outcomes.
    pub fn check_moves(
        &mut self,
        allocations: &mut Allocations,
        gathered: &Gathered<'_>,
        decision: &Decision,
        now_ns: u64,
    ) -> BTreeMap<CgroupPath, MoveVerdict> {
        let mut verdicts = BTreeMap::new();
        for (cgroup, one) in &mut self.underway {
            let in_place = decision.in_place.contains(cgroup) && one.gathers.is_none();
            if in_place && one.reached_ns.is_none() {
                one.reached_ns = Some(now_ns);
            }
            let since = |then: u64| now_ns.saturating_sub(then);
            let verdict = match one.reached_ns {
                _ if !is_given(allocations, one) => Some(MoveVerdict::GivenUp),
                None if since(one.began_ns) > LONGEST_NS => Some(MoveVerdict::GivenUp),
                Some(_) if one.returns => Some(MoveVerdict::Held),
                Some(reached) if since(reached) >= WATCHED_NS => {
                    let mover = gathered.movers.iter().find(|mover| mover.cgroup == *cgroup);
                    let verdict = mover.and_then(|mover| mover.remote).map(|remote| judge(&one.plan, remote));
                    verdict.or_else(|| (since(reached) >= LONGEST_NS).then_some(MoveVerdict::Idle))
                }
                _ => None,
            };
            verdicts.extend(verdict.map(|verdict| (cgroup.clone(), verdict)));
        }
        let reverted = verdicts.iter().filter(|(_, verdict)| **verdict == MoveVerdict::Reverted);
        let reverted: Vec<CgroupPath> = reverted.map(|(cgroup, _)| cgroup.clone()).collect();
        for cgroup in reverted {
            let group = self.revert(allocations, gathered, &cgroup, now_ns);
            if group.is_empty() {
                verdicts.insert(cgroup, MoveVerdict::Stays);
            }
            verdicts.extend(group.into_iter().map(|member| (member, MoveVerdict::Reverted)));
        }
        // The way back of these workloads has begun just now.
        self.underway.retain(|cgroup, one| !verdicts.contains_key(cgroup) || one.began_ns == now_ns);
        verdicts
    }

    /// Sends a workload and its group back to their old grants if those are free. Returns the workloads that
    /// go back.
    fn revert(
        &mut self,
        allocations: &mut Allocations,
        gathered: &Gathered<'_>,
        cgroup: &CgroupPath,
        now_ns: u64,
    ) -> Vec<CgroupPath> {
        let Some(one) = self.underway.get(cgroup) else { return Vec::new() };
        let group = one.group.clone();
        if one.returns {
            // Already sent back with another member of its group.
            return group;
        }
        let count = self.reverts.entry(cgroup.clone()).or_default();
        *count = count.saturating_add(1);
        let members: Vec<InFlightMove> =
            group.iter().filter_map(|one| self.underway.get(one)).cloned().collect();
        let is_free = |one: &InFlightMove| {
            allocations.iter().all(|(holder, grant)| {
                members.iter().any(|member| member.holder == *holder)
                    || grant.exclusive.is_disjoint(&one.had.exclusive)
            })
        };
        let has_room = |one: &InFlightMove| {
            one.plan.bytes_from.iter().all(|(node, bytes)| {
                let room = gathered.host.rooms.get(node).and_then(|room| room.available_bytes);
                room.is_some_and(|room| room >= *bytes)
            })
        };
        if members.len() < group.len() || !members.iter().all(|one| is_free(one) && has_room(one)) {
            return Vec::new();
        }
        for one in members {
            let back = back(
                &one.plan,
                gathered.movers.iter().find(|mover| mover.cgroup == one.plan.workload),
                gathered,
            );
            let mut had = one.had.clone();
            had.reason =
                format!("back where it was: {} did not lose less CPU time on node {}", cgroup, one.plan.to);
            allocations.give(one.holder.clone(), had.clone());
            self.note(&back, now_ns);
            let gathers = one
                .plan
                .bytes_from
                .iter()
                .max_by_key(|(_, bytes)| **bytes)
                .map(|(node, _)| (NodeSet::from_iter([one.plan.to]), *node));
            let returning = InFlightMove {
                had: one.grant.clone(),
                grant: had,
                gathers,
                began_ns: now_ns,
                reached_ns: None,
                returns: true,
                plan: back,
                ..one.clone()
            };
            self.underway.insert(one.plan.workload.clone(), returning);
        }
        group
    }
}

/// Is the aim still granted? The decision checks each aim anew, and places the workload elsewhere if it is
/// not available.
fn is_given(allocations: &Allocations, one: &InFlightMove) -> bool {
    allocations
        .get(&one.holder)
        .is_some_and(|has| has.exclusive == one.grant.exclusive && has.mems == one.grant.mems)
}

/// The reverse move, for the account of bytes and nodes.
fn back(one: &Move, mover: Option<&Mover>, gathered: &Gathered<'_>) -> Move {
    let now = mover.map_or(one.then, |mover| {
        let standing = Footprint::of(mover);
        Figures {
            remote_ratio: mover.remote.map(|_| remote_ratio(mover, &standing, &gathered.host)),
            lost: lost_per_second(mover, &standing, &gathered.host),
        }
    });
    Move {
        to: one.cpus_from.nodes.first().unwrap_or(one.to),
        cpus_from: one.cpus_to.clone().unwrap_or_else(|| one.cpus_from.clone()),
        cpus_to: Some(one.cpus_from.clone()),
        bytes_from: if one.bytes > 0 { BTreeMap::from([(one.to, one.bytes)]) } else { BTreeMap::new() },
        now,
        then: one.now,
        ..one.clone()
    }
}

/// The old grant, on the node of the move. Several memory nodes are all kept if that node is among them.
fn granted(inventory: &Inventory, had: &Grant, one: &Move) -> Grant {
    let to = NodeSet::from_iter([one.to]);
    let mut grant = Grant { reason: one.reason.clone(), ..had.clone() };
    if let Some(Cpus { exclusive, .. }) = &one.cpus_to {
        if let Some(shared) = &mut grant.shared {
            let kept = inventory.reserved_cpus.union(&inventory.isolated_cpus);
            let there = inventory.node(one.to).map(|node| node.cpus.difference(&kept));
            shared.scope = there.unwrap_or_default();
            (shared.fallback_cpus, shared.fallback_memory) = (None, Vec::new());
        } else {
            grant.exclusive = exclusive.clone();
        }
    }
    if !keeps_nodes(had, one) {
        grant.mems = to.clone();
    }
    for claim in grant.memory.iter_mut().filter(|claim| claim.resource == MemoryResource::Memory) {
        if !claim.zone.contains(one.to) || !keeps_nodes(had, one) {
            claim.zone = to.clone();
        }
        claim.by_node = BTreeMap::from([(one.to, claim.bytes)]);
    }
    grant
}

fn keeps_nodes(had: &Grant, one: &Move) -> bool {
    had.mems.len() > 1 && had.mems.contains(one.to)
}

/// Pages that a change of the memory nodes alone does not move.
fn gathered(had: &Grant, one: &Move) -> Option<(NodeSet, NodeId)> {
    let from: NodeSet = one.bytes_from.keys().copied().collect();
    (one.bytes > 0 && keeps_nodes(had, one)).then_some((from, one.to))
}

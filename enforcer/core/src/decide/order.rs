//! The order of the steps that move one workload.
//!
//! Problem: writing `cpuset.mems` from {0} to {1} makes the kernel move every page at once, which
//! holds up all cgroup changes of the host, and CPUs that move first allocate on a node that is not
//! allowed. Idea: widen the memory nodes to old and new (moves nothing), move the CPUs, move the
//! pages in small batches, then narrow the nodes (the kernel sweeps up the rest).
//!
//! The kernel moves all pages of a node to one node, with or without room there ([`crate::page_migration`]);
//! the moves before that go in parts, to as many nodes as needed. Room is requested for all pages that may
//! move ([`room_bytes`]); pages that stayed behind are moved for the part that surely can be ([`own_bytes`]).
//!
//! Invariants: no step writes an empty set, narrows before it widens, writes without a change, or moves a
//! page out of a GPU's memory. The kernel's rules: `cpuset_migrate_mm` in kernel/cgroup/cpuset.c,
//! Documentation/admin-guide/cgroup-v2.rst.

use std::{cmp::Reverse, collections::BTreeMap};

use super::parts::{PagePart, WithoutRoom, split};
use crate::{
    hosted::Cpuset,
    model::{movable_bytes, own_bytes, room_bytes},
    plan::{Action, Step},
    sample::NodeBytes,
    words,
    workload::CgroupPath,
};
use numa_placement::Grant;
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Present state and goal of one workload.
#[derive(Debug, Clone)]
pub struct PlacementChange<'a> {
    /// Cgroup of the workload.
    pub cgroup: &'a CgroupPath,
    /// CPUs it may use now.
    pub cpus: &'a CpuSet,
    /// Nodes it may allocate on now.
    pub mems: &'a NodeSet,
    /// Its memory by node.
    pub bytes_by_node: Option<&'a BTreeMap<NodeId, NodeBytes>>,
    /// Bytes that each node can give; a node with an unknown amount is absent.
    pub room: BTreeMap<NodeId, u64>,
    /// Bytes of anonymous memory that may stay on other nodes when the cpuset is right.
    pub negligible_bytes: u64,
    /// The goal.
    pub goal: Goal,
}

/// Goal of a workload, with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Goal {
    /// CPUs and memory nodes; an absent set is left as it is.
    pub cpuset: Cpuset,
    /// Memory nodes of these that were added because it ran short: pages may stay there, and none are sent
    /// there.
    pub added: NodeSet,
    /// CPUs of these that it has exclusively.
    pub exclusive: CpuSet,
    /// Pages that its memory nodes alone do not move, with their targets, in order.
    pub gathers: Vec<Gathering>,
    /// Nodes of GPU memory that it may use: they stay allowed, and their pages stay there.
    pub gpus: NodeSet,
    /// The reason in one sentence.
    pub reason: String,
}

/// Pages that go from nodes that a workload may keep using to one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathering {
    /// Source nodes.
    pub from: NodeSet,
    /// Target node.
    pub to: NodeId,
    /// Most bytes to move; absent if the target has room for all.
    pub most_bytes: Option<u64>,
}

impl Goal {
    /// The sets of a grant; `taken` are the exclusive CPUs of all.
    pub fn of(grant: &Grant, taken: &CpuSet) -> Self {
        let (cpuset, exclusive) = (Cpuset::of(grant, taken), grant.exclusive.clone());
        Self { cpuset, exclusive, reason: grant.why().into_owned(), ..Self::default() }
    }

    /// The same, with the nodes of GPU memory in `gpus` that it may use now. Nothing is placed there, and no
    /// placement takes them away: memory that is allocated there is meant for the GPU.
    #[must_use]
    pub fn keep_gpu_memory(mut self, now: &NodeSet, gpus: &NodeSet) -> Self {
        if let Some(mems) = &mut self.cpuset.mems {
            mems.extend(&now.intersection(gpus));
        }
        self.gpus = gpus.clone();
        self
    }
}

impl PlacementChange<'_> {
    fn goal_cpus(&self) -> &CpuSet {
        self.goal.cpuset.cpus.as_ref().unwrap_or(self.cpus)
    }

    fn goal_mems(&self) -> &NodeSet {
        self.goal.cpuset.mems.as_ref().unwrap_or(self.mems)
    }

    /// Where the pages of these nodes go, with so many bytes on each: the largest amount first, each to
    /// the node of the goal with most room left, and as much of it as that node has room for. What has no
    /// room on any of them goes to the roomiest one all the same.
    fn spread(&self, from: &BTreeMap<NodeId, u64>) -> Vec<PagePart> {
        let goal = self.goal_mems().difference(&self.goal.gpus);
        let own = goal.difference(&self.goal.added);
        let to = if own.is_empty() { goal } else { own };
        let mut sources: Vec<(NodeId, u64)> = from.iter().map(|(node, bytes)| (*node, *bytes)).collect();
        sources.sort_by_key(|(node, bytes)| (Reverse(*bytes), *node));
        split(sources, &to, &mut self.room.clone(), WithoutRoom::Go)
    }
}

/// The steps in order; empty if the workload is in place or the goal is empty.
pub fn steps(change: &PlacementChange<'_>) -> Vec<Step> {
    let (cpus, mems) = (change.goal_cpus(), change.goal_mems());
    let ordinary = mems.difference(&change.goal.gpus);
    if ordinary.is_empty() || cpus.is_empty() {
        return Vec::new();
    }
    if change.cpus == cpus && change.mems == mems {
        let pinned = change.goal.cpuset.mems.is_some();
        let left = if pinned { left_behind(change) } else { Vec::new() };
        return left.into_iter().chain(gather(change)).collect();
    }
    let before = widen(change).into_iter().chain(set_cpus(change));
    before.chain(move_pages(change)).chain(gather(change)).chain(narrow(change)).collect()
}

fn widen(change: &PlacementChange<'_>) -> Option<Step> {
    let union = change.mems.union(change.goal_mems());
    (union != *change.mems).then(|| Step {
        reason: format!(
            "memory nodes {} become {union}, so that pages can move to {}: {}",
            change.mems,
            change.goal_mems(),
            change.goal.reason
        ),
        action: Action::SetMems { cgroup: change.cgroup.clone(), mems: union },
    })
}

fn set_cpus(change: &PlacementChange<'_>) -> Option<Step> {
    let cpus = change.goal_cpus();
    (change.cpus != cpus).then(|| Step {
        reason: format!("CPUs {} become {cpus}: {}", change.cpus, change.goal.reason),
        action: Action::SetCpus { cgroup: change.cgroup.clone(), cpus: cpus.clone() },
    })
}

fn move_pages(change: &PlacementChange<'_>) -> Vec<Step> {
    let Some(bytes) = change.bytes_by_node else {
        let from = change.mems.difference(change.goal_mems()).difference(&change.goal.gpus);
        let unknown = change.spread(&from.iter().map(|node| (node, 0)).collect());
        let step = |PagePart { to, from, most_bytes }: PagePart| {
            let from: NodeSet = from.into_keys().collect();
            let reason =
                format!("memory on {}, of an amount not known, goes to node {to}", words::nodes(&from));
            page_move(change, from, (to, most_bytes), reason)
        };
        return unknown.into_iter().map(step).collect();
    };
    page_moves(change, &away(change, bytes, room_bytes), "")
}

/// Moves pages that stayed behind a right cpuset: a write of `cpuset.mems` could not move them.
fn left_behind(change: &PlacementChange<'_>) -> Vec<Step> {
    change.bytes_by_node.map_or_else(Vec::new, |bytes| {
        page_moves(change, &stayed_behind(change, bytes), "were left behind on ")
    })
}

/// Nodes outside of the goal whose pages move, with the bytes that may come from each.
pub(super) fn leaving(change: &PlacementChange<'_>) -> BTreeMap<NodeId, u64> {
    let Some(bytes) = change.bytes_by_node else { return BTreeMap::new() };
    let is_in_place = change.cpus == change.goal_cpus() && change.mems == change.goal_mems();
    match (is_in_place, &change.goal.cpuset.mems) {
        (true, Some(_)) => stayed_behind(change, bytes),
        (true, None) => BTreeMap::new(),
        (false, _) => away(change, bytes, room_bytes),
    }
}

/// Nodes outside of a right cpuset with the bytes that can move from them; empty if these are negligible.
/// Page cache stays: it does not follow its readers.
fn stayed_behind(change: &PlacementChange<'_>, bytes: &BTreeMap<NodeId, NodeBytes>) -> BTreeMap<NodeId, u64> {
    let own = |node: &NodeId| bytes.get(node).map_or(0, own_bytes);
    let mut away = away(change, bytes, movable_bytes);
    away.retain(|node, _| own(node) > 0);
    let total = away.keys().fold(0u64, |sum, node| sum.saturating_add(own(node)));
    if total == 0 || total < change.negligible_bytes { BTreeMap::new() } else { away }
}

/// Moves these pages to the nodes that take them.
fn page_moves(change: &PlacementChange<'_>, away: &BTreeMap<NodeId, u64>, stayed: &str) -> Vec<Step> {
    let step = |PagePart { to, from, most_bytes }: PagePart| {
        let size = words::size(sum(&from));
        let from: NodeSet = from.into_keys().collect();
        let reason = if stayed.is_empty() {
            format!("{size} on {} go to node {to}", words::nodes(&from))
        } else {
            format!("{size} {stayed}{} and go to node {to}", words::nodes(&from))
        };
        page_move(change, from, (to, most_bytes), reason)
    };
    change.spread(away).into_iter().map(step).collect()
}

fn sum(bytes: &BTreeMap<NodeId, u64>) -> u64 {
    bytes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// Pages on nodes that it may keep using, with targets on others of them.
fn gather<'a>(change: &'a PlacementChange<'_>) -> impl Iterator<Item = Step> + 'a {
    change.goal.gathers.iter().filter_map(|Gathering { from, to, most_bytes }| {
        let held = change
            .bytes_by_node?
            .iter()
            .filter(|(node, _)| from.contains(**node) && *node != to && !change.goal.gpus.contains(**node));
        let total = held.fold(0u64, |sum, (_, bytes)| sum.saturating_add(movable_bytes(bytes)));
        let size = most_bytes.filter(|most| *most < total).map_or_else(
            || words::size(total),
            |most| format!("{} of {}", words::size(most), words::size(total)),
        );
        let reason = format!("{size} on {} go to node {to}: {}", words::nodes(from), change.goal.reason);
        let (cgroup, from) = (change.cgroup.clone(), from.clone());
        let action = Action::MovePages { cgroup, from, to: *to, most_bytes: *most_bytes };
        (total > 0).then_some(Step { action, reason })
    })
}

fn narrow(change: &PlacementChange<'_>) -> Option<Step> {
    let mems = change.goal_mems();
    let widened = change.mems.union(mems);
    (widened != *mems).then(|| Step {
        reason: format!("memory nodes {widened} are narrowed to {mems}: {}", change.goal.reason),
        action: Action::SetMems { cgroup: change.cgroup.clone(), mems: mems.clone() },
    })
}

/// Nodes outside of the goal with their bytes, without memory of GPUs.
fn away(
    change: &PlacementChange<'_>,
    bytes: &BTreeMap<NodeId, NodeBytes>,
    count: impl Fn(&NodeBytes) -> u64,
) -> BTreeMap<NodeId, u64> {
    let stay = change.goal_mems().union(&change.goal.gpus);
    let counted = bytes.iter().map(|(node, bytes)| (*node, count(bytes)));
    counted.filter(|(node, bytes)| !stay.contains(*node) && *bytes > 0).collect()
}

fn page_move(
    change: &PlacementChange<'_>,
    from: NodeSet,
    (to, most_bytes): (NodeId, Option<u64>),
    reason: String,
) -> Step {
    Step { action: Action::MovePages { cgroup: change.cgroup.clone(), from, to, most_bytes }, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where pages of these nodes go, `from>to`, with so many GiB of room on nodes 0 to 3.
    fn moves(goal: &str, added: &str, held: &[(u32, u64)], room: [u64; 4]) -> Vec<String> {
        let (cpus, mems) = ("0-1".parse().unwrap(), "0-3".parse().unwrap());
        let cgroup = CgroupPath::new("/a");
        let gib =
            |(node, gib): &(u32, u64)| (NodeId(*node), NodeBytes { anon: gib << 30, ..NodeBytes::default() });
        let bytes = held.iter().map(gib).collect();
        let cpuset = Cpuset { cpus: Some("0-1".parse().unwrap()), mems: Some(goal.parse().unwrap()) };
        let change = PlacementChange {
            cgroup: &cgroup,
            cpus: &cpus,
            mems: &mems,
            bytes_by_node: Some(&bytes),
            room: (0..).map(NodeId).zip(room.map(|gib| gib << 30)).collect(),
            negligible_bytes: 0,
            goal: Goal { cpuset, added: added.parse().unwrap(), ..Goal::default() },
        };
        let moved = |step: Step| match step.action {
            Action::MovePages { from, to, most_bytes, .. } => {
                let part = most_bytes.map_or_else(String::new, |most| format!(" {}", most >> 30));
                Some(format!("{from}>{to}{part}"))
            }
            _ => None,
        };
        steps(&change).into_iter().filter_map(moved).collect()
    }

    #[test]
    fn pages_spread_over_the_nodes_of_the_goal_by_room_and_never_to_an_added_one() {
        for (goal, added, held, room, expected) in [
            ("0-1", "", &[(2, 10), (3, 10)][..], [50, 50, 0, 0], vec!["2>0", "3>1"]),
            ("0-1", "", &[(2, 100)], [15, 90, 0, 0], vec!["2>1 90", "2>0"]),
            ("0-1", "", &[(2, 12), (3, 4)], [3, 60, 0, 0], vec!["2-3>1"]),
            ("0-1", "", &[(2, 10), (3, 8)], [9, 9, 0, 0], vec!["2>0 9", "2-3>1"]),
            // Without room for all, what is left goes where the most could be had.
            ("0-1", "", &[(2, 100)], [5, 90, 0, 0], vec!["2>1 90", "2>0 5", "2>0"]),
            ("0-1", "", &[(2, 20), (3, 5)], [100, 60, 0, 0], vec!["2-3>0"]),
            ("0-1", "0", &[(2, 20), (3, 5)], [100, 60, 0, 0], vec!["2-3>1"]),
            ("1", "", &[(0, 1)], [9, 0, 9, 9], vec!["0>1"]),
        ] {
            assert_eq!(moves(goal, added, held, room), expected, "{goal} without {added}");
        }
    }
}

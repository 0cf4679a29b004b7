//! The order of the steps that move one workload.
//!
//! Problem: writing `cpuset.mems` from {0} to {1} makes the kernel move every page at once, which
//! holds up all cgroup changes of the host, and CPUs that move first allocate on a node that is not
//! allowed. Idea: widen the memory nodes to old and new (moves nothing), move the CPUs, move the
//! pages in small batches, then narrow the nodes (the kernel sweeps up the rest).
//!
//! Never: an empty set, a narrowing before its widening, a write that changes nothing. The kernel's
//! side of it: `cpuset_migrate_mm` in kernel/cgroup/cpuset.c, Documentation/admin-guide/cgroup-v2.rst.

use std::collections::BTreeMap;

use crate::{
    id::NodeId,
    model::accessed_bytes,
    place::{Cpuset, Grant},
    plan::{Action, Step},
    sample::NodeBytes,
    set::{CpuSet, NodeSet},
    words,
    workload::CgroupPath,
};

/// Where one workload is, and where it shall be.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    /// Its cgroup.
    pub cgroup: &'a CgroupPath,
    /// CPUs it may use now.
    pub cpus: &'a CpuSet,
    /// Nodes it may allocate on now.
    pub mems: &'a NodeSet,
    /// Where its memory is.
    pub bytes_by_node: Option<&'a BTreeMap<NodeId, NodeBytes>>,
    /// Anonymous memory that may be left on other nodes when the cpuset is as it should be.
    pub negligible_bytes: u64,
    /// Where it shall be.
    pub goal: Goal,
}

/// Where a workload shall be, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Goal {
    /// CPUs and memory nodes; what is absent is left as it is.
    pub cpuset: Cpuset,
    /// CPUs of these that nobody else shall have.
    pub exclusive: CpuSet,
    /// Pages that its memory nodes leave where they are, and the node that they are to go to.
    pub gathers: Option<(NodeSet, NodeId)>,
    /// In one sentence.
    pub reason: String,
}

impl Goal {
    /// What a grant pins, when `taken` are the exclusive CPUs of all.
    pub fn of(grant: &Grant, taken: &CpuSet) -> Self {
        let (cpuset, exclusive) = (Cpuset::of(grant, taken), grant.exclusive.clone());
        Self { cpuset, exclusive, gathers: None, reason: grant.why().into_owned() }
    }
}

impl Change<'_> {
    fn goal_cpus(&self) -> &CpuSet {
        self.goal.cpuset.cpus.as_ref().unwrap_or(self.cpus)
    }

    fn goal_mems(&self) -> &NodeSet {
        self.goal.cpuset.mems.as_ref().unwrap_or(self.mems)
    }
}

/// The steps in order; none when the workload is in place or the goal is empty.
pub fn steps(change: &Change<'_>) -> Vec<Step> {
    let (cpus, mems) = (change.goal_cpus(), change.goal_mems());
    let Some(to) = mems.first().filter(|_| !cpus.is_empty()) else { return Vec::new() };
    if change.cpus == cpus && change.mems == mems {
        let pinned = change.goal.cpuset.mems.is_some();
        return left_behind(change, to).filter(|_| pinned).into_iter().chain(gather(change)).collect();
    }
    let steps = [widen(change), set_cpus(change), move_pages(change, to), gather(change), narrow(change)];
    steps.into_iter().flatten().collect()
}

fn widen(change: &Change<'_>) -> Option<Step> {
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

fn set_cpus(change: &Change<'_>) -> Option<Step> {
    let cpus = change.goal_cpus();
    (change.cpus != cpus).then(|| Step {
        reason: format!("CPUs {} become {cpus}: {}", change.cpus, change.goal.reason),
        action: Action::SetCpus { cgroup: change.cgroup.clone(), cpus: cpus.clone() },
    })
}

fn move_pages(change: &Change<'_>, to: NodeId) -> Option<Step> {
    let Some(bytes) = change.bytes_by_node else {
        let from = change.mems.difference(change.goal_mems());
        let reason = format!("memory on {}, of an amount not known, goes to node {to}", words::nodes(&from));
        return (!from.is_empty()).then(|| page_move(change, from, to, reason));
    };
    let (from, total) = away(change, bytes, accessed_bytes);
    let reason = format!("{} on {} go to node {to}", words::size(total), words::nodes(&from));
    (total > 0).then(|| page_move(change, from, to, reason))
}

/// The cpuset is right but pages stayed behind: those that a write of `cpuset.mems` could not move.
/// Page cache is left: it does not follow its readers.
fn left_behind(change: &Change<'_>, to: NodeId) -> Option<Step> {
    let (from, total) = away(change, change.bytes_by_node?, |bytes| bytes.anon);
    let reason =
        format!("{} were left behind on {} and go to node {to}", words::size(total), words::nodes(&from));
    (total > 0 && total >= change.negligible_bytes).then(|| page_move(change, from, to, reason))
}

/// Pages on nodes that it may keep using, which belong on one of them.
fn gather(change: &Change<'_>) -> Option<Step> {
    let (from, to) = change.goal.gathers.as_ref()?;
    let held = change.bytes_by_node?.iter().filter(|(node, _)| from.contains(**node) && *node != to);
    let total = held.fold(0u64, |sum, (_, bytes)| sum.saturating_add(bytes.anon));
    let reason =
        format!("{} on {} go to node {to}: {}", words::size(total), words::nodes(from), change.goal.reason);
    (total > 0).then(|| page_move(change, from.clone(), *to, reason))
}

fn narrow(change: &Change<'_>) -> Option<Step> {
    let mems = change.goal_mems();
    let widened = change.mems.union(mems);
    (widened != *mems).then(|| Step {
        reason: format!("memory nodes {widened} are narrowed to {mems}: {}", change.goal.reason),
        action: Action::SetMems { cgroup: change.cgroup.clone(), mems: mems.clone() },
    })
}

/// Nodes outside the goal with bytes on them, and how many bytes.
fn away(
    change: &Change<'_>,
    bytes: &BTreeMap<NodeId, NodeBytes>,
    count: impl Fn(&NodeBytes) -> u64,
) -> (NodeSet, u64) {
    let outside =
        bytes.iter().filter(|(node, bytes)| !change.goal_mems().contains(**node) && count(bytes) > 0);
    outside.fold((NodeSet::new(), 0u64), |(mut nodes, total), (node, bytes)| {
        nodes.insert(*node);
        (nodes, total.saturating_add(count(bytes)))
    })
}

fn page_move(change: &Change<'_>, from: NodeSet, to: NodeId, reason: String) -> Step {
    Step { action: Action::MovePages { cgroup: change.cgroup.clone(), from, to }, reason }
}

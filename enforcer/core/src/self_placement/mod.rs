//! Side effects of a cpuset write: memory policies and CPU affinities that processes have set themselves.
//!
//! Problem: at each write of `cpuset.mems` the kernel rewrites the memory policies of all tasks in the cgroup
//! and below it, by position and for good (`mpol_rebind_nodemask`, mm/mempolicy.c). At each write of
//! `cpuset.cpus` it rewrites their affinities, which Linux 6.1 and older do not remember. A database that
//! binds its memory allocates on another node afterwards, until it is restarted. Idea: one function
//! ([`hindrance`]) computes what a sequence of writes would leave of them, and every writer asks it before.
//!
//! Terminology. A thread is *pinned* when it may run on fewer CPUs than its cgroup. A policy *names* nodes
//! unless it is relative to the cpuset (`MPOL_F_RELATIVE_NODES`), which follows the cpuset by definition.
//!
//! Limits. A policy of shared memory that no process maps, a home node (`set_mempolicy_home_node(2)`) and the
//! weights of an interleaving are in no file. `MPOL_PREFERRED` and `MPOL_PREFERRED_MANY` keep their nodes
//! since Linux 5.14; 5.10 rewrites the former like the others.
//!
//! Invariant: nothing is computed from values that were not read. Cost: one look at each thread and each
//! distinct policy.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    memory_policy::{MemoryPolicy, PolicyMode},
    page_migration::remapped,
    words,
    workload::CgroupPath,
};
use numa_topology::{
    id::{Id, NodeId},
    set::{CpuSet, IdSet, NodeSet},
};

/// Handling of workloads with processes that placed themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SelfPlacement {
    /// A workload is left alone, with the reason, if a write would change its memory policies or pinned
    /// threads.
    #[default]
    Respect,
    /// A workload is placed anyway. Affinities are given back as far as the new CPUs allow, and by `restore`;
    /// memory policies are not, and `restore` names them.
    Override,
}

/// Rule by which the kernel changes the nodes of a policy with the cpuset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NodesFlag {
    /// `MPOL_F_STATIC_NODES`: the requested nodes are remembered.
    Static,
    /// `MPOL_F_RELATIVE_NODES`: the nodes are positions in the cpuset.
    Relative,
}

/// A memory policy as a process has set it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnPolicy {
    policy: MemoryPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flag: Option<NodesFlag>,
}

impl OwnPolicy {
    /// Parses the part of a `numa_maps` line behind the address; `None` if the policy names no nodes.
    pub fn parse_start(text: &str) -> Option<Self> {
        let policy = MemoryPolicy::parse_start(text).ok().filter(|policy| !policy.nodes.is_empty())?;
        let head = text.split(':').next().unwrap_or_default();
        let has = |flag: &str| head.contains(flag);
        let flag = match (has("static"), has("relative")) {
            (true, _) => Some(NodesFlag::Static),
            (_, true) => Some(NodesFlag::Relative),
            _ => None,
        };
        Some(Self { policy, flag })
    }

    /// The part that the kernel never changes.
    fn mode(&self) -> (PolicyMode, Option<NodesFlag>) {
        (self.policy.mode, self.flag)
    }

    /// Its nodes after the memory nodes of the cpuset changed from `from` to `to` (`mpol_rebind_policy`).
    fn after(&self, nodes: &NodeSet, from: &NodeSet, to: &NodeSet) -> NodeSet {
        match (self.policy.mode, self.flag) {
            (PolicyMode::Preferred | PolicyMode::PreferredMany, _) | (_, Some(NodesFlag::Relative)) => {
                nodes.clone()
            }
            (_, Some(NodesFlag::Static)) => {
                let left = self.policy.nodes.intersection(to);
                if left.is_empty() { to.clone() } else { left }
            }
            // By position (`bitmap_remap`, lib/bitmap.c).
            _ => nodes.iter().map(|node| remapped(node, from, to)).collect(),
        }
    }

    /// The policy after the cpuset had these memory nodes in turn; the first are its present ones.
    fn changed_by(&self, mems: &[NodeSet]) -> Option<NodeSet> {
        let (first, last) = (mems.first()?, mems.last()?);
        if self.flag == Some(NodesFlag::Relative) || mems.len() < 2 {
            return None;
        }
        let named = &self.policy.nodes;
        let mut nodes = named.clone();
        for pair in mems.windows(2) {
            if let [from, to] = pair {
                nodes = self.after(&nodes, from, to);
            }
        }
        let goes = !named.intersection(first).is_subset(last);
        (goes || nodes != *named).then_some(nodes)
    }
}

impl fmt::Display for OwnPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.policy.to_string();
        let (mode, nodes) = text.rsplit_once(':').unwrap_or((&text, ""));
        let flag = match self.flag {
            Some(NodesFlag::Static) => "=static",
            Some(NodesFlag::Relative) => "=relative",
            None => "",
        };
        write!(f, "{mode}{flag}:{nodes}")
    }
}

/// Settings of a thread itself. The policies of a process are with its first thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfPlacedThread {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Start time in ticks after boot: another thread with the same number has another one.
    pub start_ticks: u64,
    /// Name, which the thread chooses itself.
    pub command: String,
    /// CPUs that it may run on; recorded only where it is pinned to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Distinct policies that name nodes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub policies: BTreeSet<OwnPolicy>,
}

impl SelfPlacedThread {
    /// Is it this thread, and not a later one with the same number?
    pub fn is(&self, other: &Self) -> bool {
        self.tid == other.tid && self.start_ticks == other.start_ticks
    }

    /// The CPUs that it is pinned to in a cgroup that may run on `of_cgroup`.
    pub fn pinned(&self, of_cgroup: &CpuSet) -> Option<&CpuSet> {
        self.cpus.as_ref().filter(|cpus| !cpus.is_empty() && *cpus != of_cgroup && cpus.is_subset(of_cgroup))
    }

    /// Has it pinned itself anew since it was recorded like this, as it is `seen` now? What a cpuset left of
    /// a pin is part of it.
    pub fn is_repinned(&self, seen: &Self) -> bool {
        let has_all = |pin: &CpuSet| self.cpus.as_ref().is_some_and(|recorded| pin.is_subset(recorded));
        self.is(seen) && seen.cpus.as_ref().is_some_and(|pin| !has_all(pin))
    }

    /// Records the CPUs of the thread as it is `seen` now, if it has pinned itself anew.
    pub fn follow_pin(&mut self, seen: &Self) {
        if self.is_repinned(seen) {
            self.cpus.clone_from(&seen.cpus);
        }
    }

    /// Name in messages.
    pub fn name(&self) -> String {
        if self.pid == self.tid {
            format!("process {} ({:?})", self.pid, self.command)
        } else {
            format!("thread {} of process {} ({:?})", self.tid, self.pid, self.command)
        }
    }
}

/// The threads of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupThreads {
    /// Path of the cgroup.
    pub cgroup: CgroupPath,
    /// Configured CPUs; `None` if inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_cpus: Option<CpuSet>,
    /// Configured memory nodes; `None` if inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_mems: Option<NodeSet>,
    /// Effective CPUs.
    pub cpus: CpuSet,
    /// Effective memory nodes.
    pub mems: NodeSet,
    /// Threads that were read.
    pub threads: Vec<SelfPlacedThread>,
    /// Number of threads that were not read, because there are too many.
    #[serde(default)]
    pub left_out: usize,
    /// Number of threads with memory policies that may not be read.
    #[serde(default)]
    pub unreadable: usize,
}

/// Writes to one cgroup, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpusetWrites {
    /// CPUs.
    pub cpus: Vec<CpuSet>,
    /// Memory nodes.
    pub mems: Vec<NodeSet>,
    /// Pages that are moved as well: from these nodes to that one.
    pub moves: Vec<(NodeSet, NodeId)>,
}

impl CpusetWrites {
    /// Do the writes only move pages, and leave the cpuset as it is?
    pub fn moves_only(&self) -> bool {
        self.cpus.is_empty() && self.mems.is_empty()
    }
}

/// The CPUs that threads of these cgroups are pinned to.
pub fn pinned_cpus(tree: &[CgroupThreads]) -> CpuSet {
    let pins = tree.iter().flat_map(|one| one.threads.iter().filter_map(|thread| thread.pinned(&one.cpus)));
    pins.fold(CpuSet::new(), |all, cpus| all.union(cpus))
}

/// The reason why these writes to the first cgroup would change settings that processes in it, or below it,
/// have made; `None` if all settings stay. A cgroup comes before those below it.
pub fn hindrance(tree: &[CgroupThreads], writes: &CpusetWrites) -> Option<String> {
    let mut reached: Vec<(&CgroupThreads, CpusetWrites)> = Vec::new();
    for one in tree {
        let above = reached.iter().rev().find(|(other, _)| one.cgroup.is_within(&other.cgroup));
        let own = match above {
            None => writes.clone(),
            Some((_, above)) => CpusetWrites {
                cpus: below(&above.cpus, one.own_cpus.as_ref()),
                mems: below(&above.mems, one.own_mems.as_ref()),
                moves: above.moves.clone(),
            },
        };
        if let Some(reason) = one.hindrance(&own) {
            return Some(reason);
        }
        reached.push((one, own));
    }
    None
}

/// Effective sets of a cgroup when the one above it has these, one after the other.
fn below<T: Id>(above: &[IdSet<T>], own: Option<&IdSet<T>>) -> Vec<IdSet<T>> {
    let effective = |above: &IdSet<T>| {
        let both = own.map(|own| own.intersection(above)).filter(|both| !both.is_empty());
        both.unwrap_or_else(|| above.clone())
    };
    above.iter().map(effective).collect()
}

impl CgroupThreads {
    fn hindrance(&self, writes: &CpusetWrites) -> Option<String> {
        let mems: Vec<NodeSet> = [self.mems.clone()].into_iter().chain(writes.mems.iter().cloned()).collect();
        for thread in &self.threads {
            for policy in &thread.policies {
                let (Some(nodes), Some(last)) = (policy.changed_by(&mems), mems.last()) else { continue };
                let becomes = if nodes == policy.policy.nodes {
                    format!("would leave it no memory on {}", words::nodes(&nodes.difference(last)))
                } else {
                    format!("would make the kernel rewrite it to {}", words::nodes(&nodes))
                };
                return Some(format!(
                    "{} has a memory policy of its own, {policy}: cpuset.mems = {last} {becomes}",
                    thread.name()
                ));
            }
            if let Some(reason) = against_policy(thread, &writes.moves) {
                return Some(reason);
            }
        }
        let last = writes.cpus.last()?;
        let goes =
            |thread: &&SelfPlacedThread| thread.pinned(&self.cpus).is_some_and(|cpus| !cpus.is_subset(last));
        let mut pinned = self.threads.iter().filter(goes);
        let first = pinned.next()?;
        let others = match pinned.count() {
            0 => String::new(),
            others => format!(", and so have {} more of the cgroup", words::count(others, "thread")),
        };
        let cpus = first.cpus.as_ref()?;
        Some(format!(
            "{} has pinned itself to CPUs {cpus}{others}: cpuset.cpus = {last} would take them away",
            first.name()
        ))
    }
}

/// The reason why pages must not be moved: `move_pages(2)` checks no policy, so policies that name the pages'
/// present nodes are checked here.
fn against_policy(thread: &SelfPlacedThread, moves: &[(NodeSet, NodeId)]) -> Option<String> {
    let absolute = || thread.policies.iter().filter(|policy| policy.flag != Some(NodesFlag::Relative));
    moves.iter().find_map(|(from, to)| {
        let named = |policy: &&OwnPolicy| !policy.policy.nodes.is_disjoint(from);
        let policy = absolute().find(named)?;
        Some(format!(
            "{} has a memory policy of its own, {policy}: its pages would be moved from {} to node {to} against it",
            thread.name(),
            words::nodes(from)
        ))
    })
}

/// New CPUs of a thread when its cgroup may run on `to`: the remaining part of its own pinning; `None` if it
/// is not pinned or nothing remains. `recorded` is its affinity before the first write.
pub fn kept_pin(
    now: &SelfPlacedThread,
    recorded: Option<&SelfPlacedThread>,
    from: &CpuSet,
    to: &CpuSet,
) -> Option<CpuSet> {
    let original = recorded.filter(|recorded| recorded.is(now)).and_then(|recorded| recorded.cpus.as_ref());
    let rewritten = |original: &&CpuSet| {
        let left = original.intersection(from);
        now.cpus.as_ref().is_none_or(|cpus| cpus == from || *cpus == left)
    };
    // A thread that has pinned itself anew since has made a new choice.
    let wanted = original.filter(rewritten).or_else(|| now.pinned(from))?;
    let left = wanted.intersection(to);
    (!left.is_empty() && left != *to).then_some(left)
}

/// Settings that processes had and lack `now`, one sentence each: they cannot be given back. `recorded` is of
/// the time before the first write, `before` of the time before the latest ones; `is_whole` is true if
/// `recorded` is complete.
///
/// The kernel rewrites the nodes of a policy and never its mode. A recorded policy with a mode that was gone
/// before was replaced by the process itself, and a policy with a new mode was set since. Static and relative
/// policies follow the cpuset by definition, and are never lost.
pub fn lost(
    recorded: &[SelfPlacedThread],
    before: &[SelfPlacedThread],
    is_whole: bool,
    now: &[SelfPlacedThread],
) -> Vec<String> {
    let fresh = before.iter().filter(|thread| !recorded.iter().any(|recorded| recorded.is(thread)));
    let mut lost = Vec::new();
    for thread in recorded.iter().chain(fresh) {
        // The thread ended with its settings intact.
        let Some(found) = now.iter().find(|one| one.is(thread)) else { continue };
        let seen = before.iter().find(|one| one.is(thread)).map(|one| &one.policies);
        let has = |policies: &BTreeSet<OwnPolicy>, mode| policies.iter().any(|policy| policy.mode() == mode);
        let replaced = |policy: &&OwnPolicy| is_whole && seen.is_some_and(|seen| !has(seen, policy.mode()));
        let set = thread.policies.iter().filter(|policy| !replaced(policy));
        let since = seen.into_iter().flatten().filter(|policy| !has(&thread.policies, policy.mode()));
        let lasting = set.chain(since).filter(|policy| policy.flag.is_none());
        let gone: BTreeSet<&OwnPolicy> = lasting.filter(|policy| !found.policies.contains(policy)).collect();
        if !gone.is_empty() {
            let gone: Vec<String> = gone.into_iter().map(ToString::to_string).collect();
            let has: Vec<String> = found.policies.iter().map(ToString::to_string).collect();
            let has = if has.is_empty() { "none that names nodes".to_owned() } else { has.join(", ") };
            lost.push(format!(
                "{}: its memory policy {} was rewritten by the kernel when cpuset.mems was written, it has {has} \
                 now; only the process itself can set it again: restart it",
                thread.name(),
                gone.join(", ")
            ));
        }
    }
    lost
}

//! Method that carries a round down, and the amount that it is asked for.
//!
//! Problem: `move_pages(2)` asks the cpuset for each page. The kernel's other methods do not, or not on every
//! kernel: DAMON moves to any node it is given, reclaim chooses by its own order of nodes, and reclaim takes
//! pages by its own lists and not those that were found cold.
//!
//! Idea: another backend is used for a round of a workload only if facts that are read for this round rule
//! out every side effect ([`obstacle`]); else `move_pages` does it. The request is limited to what was found
//! cold and is there ([`ask`]). The result is measured by the place of memory before and after
//! ([`MemoryShift`]), never by the call's return value.
//!
//! Cost: one pass over the nodes. Invariant: no request names a node that the cpuset does not allow.

use std::collections::BTreeMap;

use super::{
    NodeMemory, PageFlow,
    amount::headroom,
    target::{below, rank},
};
use crate::{
    model::{accessed_bytes, page_cache_bytes},
    parse::numa_stat::ByNode,
    policy::DemotionBackend,
};
use numa_topology::{Topology, id::NodeId, set::NodeSet};

/// Of a reclaim request, one part in so many may be files that the kernel can only drop.
const FILES: u64 = 16;
/// Rounds without effect after which a backend is not used.
const IN_VAIN: u32 = 3;

/// Result of a trial of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendProbe {
    /// It works.
    Sound,
    /// It moved so many bytes of a scratch cgroup to nodes that its cpuset does not allow.
    PastCpusets(u64),
    /// It does not work, for this reason.
    Unusable(String),
}

/// State of a workload at the beginning of a round, as far as a backend needs it.
#[derive(Debug, Clone, Copy)]
pub struct BackendPreconditions<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Nodes that its cpuset allows now.
    pub allowed: &'a NodeSet,
    /// Result of the backend's trial.
    pub probe: &'a BackendProbe,
    /// The kernel's own demotion is on.
    pub kernel_demotes: bool,
    /// Number of cgroups below its own.
    pub cgroups_below: usize,
    /// There is swap, and its cgroup may use it.
    pub may_swap: bool,
    /// Successive rounds in which much was requested and nothing went down.
    pub in_vain: u32,
    /// Its memory by node.
    pub memory: &'a ByNode,
}

/// Reason why a backend is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendObstacle {
    /// It does not work on this host.
    Unusable(String),
    /// Its preconditions could not be read, or it could not be called, for this workload.
    Unknown(String),
    /// The kernel's demotion is off: reclaim moves nothing, and drops files.
    DemotionOff,
    /// The backend does not check the cpuset, which does not allow these nodes.
    Forbidden(NodeSet),
    /// The backend does not reach this number of cgroups below the workload's own.
    CgroupsBelow(usize),
    /// Reclaim would swap out pages that are on slow memory already.
    Swap,
    /// Reclaim would drop so many bytes of files, which have no slower node to go to.
    Files(u64),
    /// Much was requested in several rounds, and nothing went down.
    InVain,
}

impl BackendObstacle {
    /// The reason as part of a sentence.
    pub fn words(&self) -> String {
        match self {
            Self::Unusable(reason) | Self::Unknown(reason) => reason.clone(),
            Self::DemotionOff => {
                "the kernel's demotion is off, without which reclaim drops files and moves nothing".into()
            }
            Self::Forbidden(nodes) => {
                format!("the workload may not use node {nodes}, and the kernel would not ask")
            }
            Self::CgroupsBelow(count) => format!("{count} of its cgroups are below its own"),
            Self::Swap => "there is swap, to which reclaim would take what is on slow memory".into(),
            Self::Files(bytes) => {
                format!("reclaim would drop {bytes} bytes of files that are on slow memory already")
            }
            Self::InVain => format!("nothing went down in {IN_VAIN} rounds in which it was asked for much"),
        }
    }

    /// Does it hold for every workload of this host?
    pub fn is_of_the_host(&self) -> bool {
        matches!(self, Self::Unusable(_) | Self::DemotionOff)
    }
}

/// The obstacle for a backend that must move `bytes` of these flows.
pub fn obstacle(
    backend: DemotionBackend,
    of: &BackendPreconditions<'_>,
    flows: &[PageFlow],
    bytes: u64,
) -> Option<BackendObstacle> {
    if backend == DemotionBackend::MovePages {
        return None;
    }
    if let BackendProbe::Unusable(reason) = of.probe {
        return Some(BackendObstacle::Unusable(reason.clone()));
    }
    if of.in_vain >= IN_VAIN {
        return Some(BackendObstacle::InVain);
    }
    let reclaims = backend == DemotionBackend::Reclaim;
    if reclaims && !of.kernel_demotes {
        return Some(BackendObstacle::DemotionOff);
    }
    if of.cgroups_below > 0 {
        return Some(BackendObstacle::CgroupsBelow(of.cgroups_below));
    }
    // Reclaim picks the node itself; on a kernel that was seen to respect cpusets, among the allowed nodes.
    let picked = match of.probe {
        BackendProbe::PastCpusets(_) if reclaims => slower(of.topology, of.allowed),
        _ => NodeSet::new(),
    };
    let reached = flows.iter().map(|flow| flow.to).chain(picked.iter());
    let forbidden: NodeSet = reached.filter(|node| !of.allowed.contains(*node)).collect();
    if !forbidden.is_empty() {
        return Some(BackendObstacle::Forbidden(forbidden));
    }
    if reclaims && of.may_swap {
        return Some(BackendObstacle::Swap);
    }
    let files = files_at_stake(of);
    (reclaims && files > bytes / FILES).then_some(BackendObstacle::Files(files))
}

/// Bytes to request from reclaim: of each flow no more than is `there`, and in total no more than every node
/// that reclaim may choose has room for, because its choice is unknown.
pub fn ask(
    of: &BackendPreconditions<'_>,
    flows: &[PageFlow],
    there: &BTreeMap<NodeId, u64>,
    rooms: &BTreeMap<NodeId, NodeMemory>,
) -> u64 {
    let cold = flows.iter().map(|flow| flow.bytes.min(there.get(&flow.from).copied().unwrap_or(0)));
    let cold = cold.fold(0, u64::saturating_add);
    let slower = slower(of.topology, of.allowed);
    let room = slower.iter().filter(|node| of.allowed.contains(*node)).map(|node| {
        let room = rooms.get(&node);
        room.map_or(0, headroom)
    });
    cold.min(room.min().unwrap_or(0))
}

/// Nodes that are slower than the fastest of these: possible targets of the kernel's demotion.
pub fn slower(topology: &Topology, nodes: &NodeSet) -> NodeSet {
    let rank = |node| rank(topology, node);
    let Some(fastest) = nodes.iter().filter_map(rank).min() else { return NodeSet::new() };
    let all = topology.nodes.iter().map(|node| node.id);
    all.filter(|node| rank(*node).is_some_and(|rank| rank > fastest)).collect()
}

/// Bytes of files on nodes without an allowed slower node: reclaim would drop them. tmpfs is not dropped.
fn files_at_stake(of: &BackendPreconditions<'_>) -> u64 {
    let there = of.memory.iter().filter(|(node, _)| below(of.topology, **node, of.allowed).is_none());
    there.fold(0, |sum, (_, bytes)| sum.saturating_add(page_cache_bytes(bytes)))
}

/// Shift of a workload's memory between two readings of `memory.numa_stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryShift {
    /// Bytes that went from the upper nodes to the lower ones: the gain of the latter, at most the loss of
    /// the former.
    pub down: u64,
    /// Bytes gained by nodes that the cpuset does not allow.
    pub outside: u64,
    /// Bytes of files that are on no node any more.
    pub dropped: u64,
}

impl MemoryShift {
    /// Shift of memory that was to go from the `upper` to the `lower` nodes.
    pub fn between(
        before: &ByNode,
        after: &ByNode,
        upper: &NodeSet,
        lower: &NodeSet,
        allowed: &NodeSet,
    ) -> Self {
        let on = |of: &ByNode, node: NodeId| of.get(&node).map_or(0, accessed_bytes);
        let gained = |node: NodeId| on(after, node).saturating_sub(on(before, node));
        let lost = |node: NodeId| on(before, node).saturating_sub(on(after, node));
        let all = |nodes: &mut dyn Iterator<Item = u64>| nodes.fold(0, u64::saturating_add);
        let down = all(&mut lower.iter().map(gained)).min(all(&mut upper.iter().map(lost)));
        let outside =
            all(&mut after.keys().filter(|node| !allowed.contains(**node)).map(|node| gained(*node)));
        let files = |of: &ByNode| all(&mut of.values().map(|bytes| bytes.file));
        Self { down, outside, dropped: files(before).saturating_sub(files(after)) }
    }
}

#[cfg(test)]
mod tests;

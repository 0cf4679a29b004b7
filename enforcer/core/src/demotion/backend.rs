//! Who may carry a round down, and how much is asked of whom.
//!
//! Problem: `move_pages(2)` asks the cpuset for each page. The kernel's other ways do not, or not on every
//! kernel: DAMON moves wherever it is told to, reclaim wherever its own order of nodes says, and what reclaim
//! takes is what its lists say and not what was found cold.
//!
//! Idea: another backend is used for a round of a workload only where nothing that it does not ask for can go
//! wrong, by facts that are read for this round ([`obstacle`]); else `move_pages` does it. It is asked for no
//! more than what was found cold and is there ([`ask`]), and what came of it is told by where memory is
//! before and after ([`Shift`]), never by what the call returned.
//!
//! Cost: one pass over the nodes. Must never name a node that the cpuset does not allow.

use std::collections::BTreeMap;

use super::{
    Flow, Room,
    amount::headroom,
    target::{below, rank},
};
use crate::{
    id::NodeId,
    model::{accessed_bytes, page_cache_bytes},
    parse::numa_stat::ByNode,
    policy::DemotionBackend,
    set::NodeSet,
    topology::Topology,
};

/// Of what reclaim is asked for, one part in so many may be files that it can only drop.
const FILES: u64 = 16;
/// Rounds in vain after which a backend is left alone.
const IN_VAIN: u32 = 3;

/// What trying a backend came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// It can be used.
    Sound,
    /// It took so many bytes of a scratch cgroup to nodes that its cpuset does not allow.
    PastCpusets(u64),
    /// It cannot be used, and why not.
    Unusable(String),
}

/// A workload when a round begins.
#[derive(Debug, Clone, Copy)]
pub struct Footing<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Nodes that its cpuset allows now.
    pub allowed: &'a NodeSet,
    /// What trying the backend came to.
    pub probe: &'a Probe,
    /// The kernel's own demotion is on.
    pub kernel_demotes: bool,
    /// Cgroups below its own.
    pub cgroups_below: usize,
    /// There is swap, and its cgroup may use it.
    pub may_swap: bool,
    /// Rounds in succession in which the backend was asked for much and nothing went down.
    pub in_vain: u32,
    /// Where its memory is.
    pub memory: &'a ByNode,
}

/// Why a backend is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It cannot be used on this host.
    Unusable(String),
    /// What it is allowed by could not be read, or it could not be asked, for this workload.
    Unknown(String),
    /// Reclaim moves nothing, and drops files, while the kernel's demotion is off.
    DemotionOff,
    /// The cpuset does not allow these nodes, and nobody would ask.
    Forbidden(NodeSet),
    /// Cgroups below the workload's own would not be asked, or not be moved.
    CgroupsBelow(usize),
    /// What is on slow memory already would be swapped out.
    Swap,
    /// So many bytes of files are where nothing slower is allowed, and would be dropped.
    Files(u64),
    /// It was asked for much, again and again, and nothing went down.
    InVain,
}

impl Obstacle {
    /// As part of a sentence.
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

    /// Is it so for every workload of this host?
    pub fn is_of_the_host(&self) -> bool {
        matches!(self, Self::Unusable(_) | Self::DemotionOff)
    }
}

/// What stands in the way of a backend that is to move `bytes` of these flows.
pub fn obstacle(backend: DemotionBackend, of: &Footing<'_>, flows: &[Flow], bytes: u64) -> Option<Obstacle> {
    if backend == DemotionBackend::MovePages {
        return None;
    }
    if let Probe::Unusable(reason) = of.probe {
        return Some(Obstacle::Unusable(reason.clone()));
    }
    if of.in_vain >= IN_VAIN {
        return Some(Obstacle::InVain);
    }
    let reclaims = backend == DemotionBackend::Reclaim;
    if reclaims && !of.kernel_demotes {
        return Some(Obstacle::DemotionOff);
    }
    if of.cgroups_below > 0 {
        return Some(Obstacle::CgroupsBelow(of.cgroups_below));
    }
    // Reclaim picks the node itself; on a kernel that was seen to keep to cpusets among those that are
    // allowed.
    let picked = match of.probe {
        Probe::PastCpusets(_) if reclaims => slower(of.topology, of.allowed),
        _ => NodeSet::new(),
    };
    let reached = flows.iter().map(|flow| flow.to).chain(picked.iter());
    let forbidden: NodeSet = reached.filter(|node| !of.allowed.contains(*node)).collect();
    if !forbidden.is_empty() {
        return Some(Obstacle::Forbidden(forbidden));
    }
    if reclaims && of.may_swap {
        return Some(Obstacle::Swap);
    }
    let files = files_at_stake(of);
    (reclaims && files > bytes / FILES).then_some(Obstacle::Files(files))
}

/// Bytes that reclaim is asked for: no more of each flow than is `there` of it, and no more in all than every
/// node that it may choose has room for, because nobody knows which it takes.
pub fn ask(
    of: &Footing<'_>,
    flows: &[Flow],
    there: &BTreeMap<NodeId, u64>,
    rooms: &BTreeMap<NodeId, Room>,
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

/// Nodes of the machine that are slower than the fastest of these: where the kernel's demotion may take pages
/// from them.
pub fn slower(topology: &Topology, nodes: &NodeSet) -> NodeSet {
    let rank = |node| rank(topology, node);
    let Some(fastest) = nodes.iter().filter_map(rank).min() else { return NodeSet::new() };
    let all = topology.nodes.iter().map(|node| node.id);
    all.filter(|node| rank(*node).is_some_and(|rank| rank > fastest)).collect()
}

/// Files on nodes below which nothing is allowed: reclaim has nowhere to take these. tmpfs is not dropped.
fn files_at_stake(of: &Footing<'_>) -> u64 {
    let there = of.memory.iter().filter(|(node, _)| below(of.topology, **node, of.allowed).is_none());
    there.fold(0, |sum, (_, bytes)| sum.saturating_add(page_cache_bytes(bytes)))
}

/// How the memory of a workload shifted between two looks at `memory.numa_stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shift {
    /// Bytes that went from the upper nodes to the lower ones: what the latter gained, and no more than the
    /// former lost.
    pub down: u64,
    /// Bytes that nodes gained which the cpuset does not allow.
    pub outside: u64,
    /// Bytes of files that are nowhere any more.
    pub dropped: u64,
}

impl Shift {
    /// Of memory that was to go from the `upper` to the `lower` nodes.
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

//! Commands that bring the pages of a workload to their target.
//!
//! Problem: a write of `cpuset.mems` moves only pages of the nodes that it takes away, and all pages of such
//! a node to the one other node that its position in the set chooses ([`crate::page_migration`]): a node
//! without room, memory of a GPU, or a node that is there for the kernel. Idea: several sequences of commands
//! lead to the same cpuset. Each is simulated on the figures, and the first that brings every page to a node
//! near the CPUs with room for it is advised: the write alone, a larger set before it, or a sweep of each
//! process (migratepages(8)) from one node to another and the write afterwards.
//!
//! Invariants: no node is sent more than it can give, and a node with unknown room nothing; no page comes to
//! memory of a GPU or leaves it; the amount that stays far from the CPUs is too little for a finding. Pages
//! of one node are never split: a command cannot. Cost: at most four sequences for each advised place.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Asked, Obstacle, ObstacleKind, bounds};
use crate::{model::movable_bytes, page_migration::NodePages, words};
use numa_topology::{id::NodeId, set::NodeSet};

/// A sweep: each process moves its pages from some nodes to another one.
type Sweep = (NodeSet, NodeId);

/// Target of the pages.
pub(super) struct Way<'a> {
    /// Final memory nodes.
    pub(super) mems: &'a NodeSet,
    /// Nodes that must not have pages in the end, with their movable bytes.
    pub(super) outside: (NodeSet, u64),
    /// The best targets among the final nodes.
    pub(super) best: &'a NodeSet,
    /// Nodes near the final CPUs: pages there are right.
    pub(super) near: &'a NodeSet,
    /// Memory nodes that are there for the kernel alone.
    pub(super) for_kernel: &'a NodeSet,
}

/// Commands in this order, except that the last write comes after the first sweeps.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// Memory nodes to write.
    pub(super) writes: Vec<NodeSet>,
    /// Sweeps before the last write.
    pub(super) swept_first: Vec<Sweep>,
    /// Sweeps after it.
    pub(super) swept: Vec<Sweep>,
    /// Bytes that arrive on each node.
    pub(super) comes: BTreeMap<NodeId, u64>,
}

/// Writes, and the nodes to sweep before the last of them and after it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sequence {
    writes: Vec<NodeSet>,
    before: NodeSet,
    after: NodeSet,
}

impl Asked<'_> {
    /// The commands that bring its pages there.
    pub(super) fn route(&self, way: &Way<'_>) -> Result<Route, Obstacle> {
        let begins = self.pages(way);
        let routes =
            self.sequences(way).into_iter().map(|sequence| self.carried_out(&begins, way, &sequence));
        let mut found = routes.filter(|(_, ends)| self.is_right(&begins, ends, way));
        found.next().map(|(route, _)| route).ok_or_else(|| self.no_room(&begins, way))
    }

    /// Its pages, and the room of each node beside earlier remedies.
    fn pages(&self, way: &Way<'_>) -> NodePages {
        let machine = &self.inputs.inventory.machine;
        let bytes = self.figures.bytes_by_node.iter().flatten();
        let held = bytes.map(|(node, bytes)| (*node, movable_bytes(bytes))).collect();
        let available = |node: NodeId| self.inputs.sample.nodes.get(&node)?.available_bytes();
        let along = self.may_come_along(&way.near.union(way.best));
        let taken = |node: NodeId| self.earlier.coming_to(node).saturating_add(along);
        let left = |node: NodeId| Some((node, available(node)?.saturating_sub(taken(node))));
        // Pages that come to memory of a GPU are seen, and refused, whatever room is there.
        let gpus = machine.gpu_memory_nodes().iter().map(|node| (node, u64::MAX)).collect::<Vec<_>>();
        let room = machine.ordinary_memory_nodes().iter().filter_map(left).chain(gpus).collect();
        NodePages { held, room, came: BTreeMap::new() }
    }

    /// The sequences that end with these memory nodes, the simplest first.
    fn sequences(&self, way: &Way<'_>) -> Vec<Sequence> {
        let from = way.outside.0.clone();
        let far = from.difference(way.near);
        let changed = way.mems != self.mems;
        let last = || if changed { vec![way.mems.clone()] } else { Vec::new() };
        if self.is_process() {
            return vec![Sequence { after: far, ..Sequence::default() }];
        }
        if !self.inputs.sample.moves_pages_by_cpuset() {
            return vec![Sequence { writes: last(), after: far, ..Sequence::default() }];
        }
        // The kernel moves what is on nodes that are in force before a write and not after it
        // (`update_nodemasks_hier`, kernel/cgroup/cpuset.c): what else is far has to be allowed first.
        let behind = if changed { far.difference(self.mems) } else { far };
        let behind = behind.difference(way.mems);
        let above = bounds(self.inputs, self.workload).and_then(|bounds| bounds.mems);
        let may_be_allowed = above.is_some_and(|above| behind.is_subset(&above));
        // Pages on nodes that are there for the kernel stay allowed, and a write may bring others there.
        let kept = || if from.is_empty() { NodeSet::new() } else { way.for_kernel.clone() };
        let (allowed, after) =
            if may_be_allowed { (behind.clone(), kept()) } else { (NodeSet::new(), behind.union(&kept())) };
        let wider = way.mems.union(self.mems).union(&allowed);
        let by_way_of = |wider: NodeSet| {
            if wider == *self.mems || wider == *way.mems { last() } else { vec![wider, way.mems.clone()] }
        };
        let direct = if allowed.is_empty() { last() } else { by_way_of(wider.clone()) };
        let mut sequences = vec![
            Sequence { writes: direct, after: after.clone(), ..Sequence::default() },
            Sequence { writes: by_way_of(wider), after, ..Sequence::default() },
            Sequence { writes: last(), before: from.clone(), ..Sequence::default() },
            Sequence { writes: by_way_of(way.mems.union(self.mems)), before: from, ..Sequence::default() },
        ];
        sequences.dedup();
        sequences
    }

    /// The commands of a sequence, and the final places of the pages.
    fn carried_out(&self, begins: &NodePages, way: &Way<'_>, sequence: &Sequence) -> (Route, NodePages) {
        let mut pages = begins.clone();
        let moves = self.inputs.sample.moves_pages_by_cpuset();
        let mut has = self.mems;
        let (last, first) = sequence.writes.split_last().unzip();
        for mems in first.into_iter().flatten() {
            if moves {
                pages.migrate(has, mems);
            }
            has = mems;
        }
        let swept_first = swept(&mut pages, &sequence.before, way.best);
        if let Some(mems) = last.filter(|_| moves) {
            pages.migrate(has, mems);
        }
        let swept = swept(&mut pages, &sequence.after, way.best);
        let comes = pages.came.iter().filter(|(node, _)| way.mems.contains(**node));
        let comes = comes.map(|(node, bytes)| (*node, *bytes)).collect();
        (Route { writes: sequence.writes.clone(), swept_first, swept, comes }, pages)
    }

    /// Are its pages near its CPUs, but for what is no finding, and those of GPUs where they were? Pages that
    /// are right already stay: between sets of one size the kernel moves those too, once for each thread.
    fn is_right(&self, begins: &NodePages, ends: &NodePages, way: &Way<'_>) -> bool {
        let gpus = self.inputs.inventory.machine.gpu_memory_nodes();
        let held = |pages: &NodePages, node: NodeId| pages.held.get(&node).copied().unwrap_or(0);
        let right = way.near.union(way.best).union(&gpus);
        let far = ends.held.iter().filter(|(node, _)| !right.contains(**node));
        let far = far.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let moved = ends.came.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let none_is_shifted = moved <= way.outside.1;
        none_is_shifted
            && self.is_negligible(far)
            && gpus.iter().all(|node| held(begins, node) == held(ends, node))
    }

    /// Names the nodes that would need room.
    fn no_room(&self, begins: &NodePages, way: &Way<'_>) -> Obstacle {
        let (from, comes) = &way.outside;
        let along = match self.may_come_along(&way.near.union(way.best)) {
            0 => String::new(),
            along => format!(
                " beside {} of page cache that would come along as far as processes map it, which is not known",
                words::size(along)
            ),
        };
        let give = |node: NodeId| {
            let has = begins
                .room
                .get(&node)
                .map_or_else(|| "an unknown amount".to_owned(), |has| words::size(*has));
            let earlier =
                self.earlier.in_words(node).map_or_else(String::new, |earlier| format!(" beside {earlier}"));
            format!("{has}{earlier}{along}")
        };
        let reason = if let Some(node) = way.best.first().filter(|_| way.best.len() == 1) {
            let gives = give(node);
            format!("{} would have to come to node {node}, which can give {gives}", words::size(*comes))
        } else {
            let gives = way.best.iter().map(|node| format!("node {node} can give {}", give(node)));
            format!(
                "{} on {} would have to come to {}, and the pages of a node go to one other node: {}",
                words::size(*comes),
                words::nodes(from),
                words::nodes(way.best),
                gives.collect::<Vec<_>>().join(", ")
            )
        };
        Obstacle::new(ObstacleKind::NoRoom, reason)
    }
}

/// Brings the pages of these nodes to the best ones, the largest amount first and each amount to the node
/// with most room; an amount without room on any of them stays.
fn swept(pages: &mut NodePages, from: &NodeSet, best: &NodeSet) -> Vec<Sweep> {
    let held = |pages: &NodePages, node: NodeId| pages.held.get(&node).copied().unwrap_or(0);
    let mut sources: Vec<(u64, NodeId)> =
        from.iter().filter(|node| !best.contains(*node)).map(|node| (held(pages, node), node)).collect();
    sources.retain(|(bytes, _)| *bytes > 0);
    sources.sort_by_key(|(bytes, node)| (Reverse(*bytes), *node));
    let mut sweeps = BTreeMap::<NodeId, NodeSet>::new();
    for (bytes, node) in sources {
        let roomiest = best.iter().max_by_key(|target| (pages.room_on(*target), Reverse(*target)));
        if let Some(target) = roomiest.filter(|target| pages.room_on(*target) >= bytes) {
            pages.migrate(&NodeSet::from_iter([node]), &NodeSet::from_iter([target]));
            sweeps.entry(target).or_default().insert(node);
        }
    }
    sweeps.into_iter().map(|(target, from)| (from, target)).collect()
}

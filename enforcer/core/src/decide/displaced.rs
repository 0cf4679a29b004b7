//! Pages of containers that are away from home.
//!
//! Problem: a container whose shared CPUs were given away runs on other nodes as long as that lasts. What it
//! was promised at home it keeps, so its memory nodes are both, and nothing would move its pages to its CPUs.
//! Idea: they follow as far as the nodes near its CPUs have room, those of the farthest nodes first; when it
//! returns its memory nodes are those of its home again, and the pages with them.
//!
//! Terminology: the *room* of a node is what is available there, less what is promised there and not in use
//! yet. What containers that are away have there is no promise, and takes as much of what could be promised.
//!
//! Invariants: no node is sent more than its room, by all containers of a decision together; while a node has
//! room for [`LEAST_PART`], no pages stay away for want of it, in parts and on several nodes if need be.
//! Cost: the account of memory once for each decision in which a container is away with pages at home.

use std::{
    cell::OnceCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::order::Gathering;
use crate::{
    decide::Inputs,
    id::NodeId,
    model::{WorkloadModel, movable_bytes},
    place::{Allocations, Grant, Holder, MemoryClaim, MemoryResource, ZoneAccount},
    sample::NodeSample,
    set::{CpuSet, NodeSet},
    workload::Workload,
};

/// Less than this is not worth a step of its own.
const LEAST_PART: u64 = 1 << 20;

/// What is left of the room of each node while one container after the other takes of it.
pub(super) struct RoomAway<'a> {
    inputs: &'a Inputs<'a>,
    allocations: &'a Allocations,
    taken: &'a CpuSet,
    room: OnceCell<BTreeMap<NodeId, u64>>,
}

impl<'a> RoomAway<'a> {
    /// The room of all nodes, when `taken` are the exclusive CPUs of all.
    pub(super) fn new(inputs: &'a Inputs<'a>, allocations: &'a Allocations, taken: &'a CpuSet) -> Self {
        Self { inputs, allocations, taken, room: OnceCell::new() }
    }

    /// Where pages of a container go; nowhere of one that is at home, or has nothing that could follow.
    pub(super) fn follows(&mut self, grant: &Grant, figures: Option<&WorkloadModel>) -> Vec<Gathering> {
        let Some((away, near)) = self.away(grant, figures) else { return Vec::new() };
        let (inputs, allocations) = (self.inputs, self.allocations);
        self.room.get_or_init(|| room(inputs, allocations));
        let Some(room) = self.room.get_mut() else { return Vec::new() };
        let mut parts = Vec::new();
        let mut whole = BTreeMap::<NodeId, NodeSet>::new();
        for (from, mut left) in away {
            let roomiest = |room: &BTreeMap<NodeId, u64>| {
                let near = near.iter().filter_map(|node| Some((node, *room.get(&node)?)));
                near.max_by_key(|(node, room)| (*room, Reverse(*node)))
            };
            while left > 0
                && let Some((to, has)) = roomiest(room).filter(|(_, has)| *has >= left.min(LEAST_PART))
            {
                let part = left.min(has);
                room.insert(to, has - part);
                left -= part;
                if left == 0 {
                    whole.entry(to).or_default().insert(from);
                } else {
                    parts.push(Gathering { from: NodeSet::from_iter([from]), to, most_bytes: Some(part) });
                }
            }
        }
        let whole = whole.into_iter().map(|(to, from)| Gathering { from, to, most_bytes: None });
        parts.into_iter().chain(whole).collect()
    }

    /// Nodes with pages of a container that are far from the CPUs that it has now, the farthest first, with
    /// their bytes, and the nodes near these CPUs.
    fn away(&self, grant: &Grant, figures: Option<&WorkloadModel>) -> Option<(Vec<(NodeId, u64)>, NodeSet)> {
        grant.shared.as_ref()?.refuge.as_ref()?;
        let bytes = figures?.bytes_by_node.as_ref()?;
        let mems = grant.mems(self.taken);
        let machine = &self.inputs.inventory.machine;
        let cpu_nodes = machine.nodes_of(&grant.cpus(self.taken));
        let near = machine.near_memory_nodes(&cpu_nodes).intersection(&mems);
        let far = mems.difference(&near).difference(&machine.gpu_memory_nodes());
        let held = bytes.iter().filter(|(node, bytes)| far.contains(**node) && bytes.anon > 0);
        let mut away: Vec<(NodeId, u64)> = held.map(|(node, bytes)| (*node, bytes.anon)).collect();
        let all = away.iter().fold(0u64, |all, (_, bytes)| all.saturating_add(*bytes));
        if away.is_empty() || all < self.inputs.policy.thresholds.min_memory.0 {
            return None;
        }
        let distance = |node: NodeId| {
            let distances = cpu_nodes.iter().filter_map(|from| machine.distance(from, node));
            distances.min().unwrap_or(u32::MAX)
        };
        away.sort_by_key(|(node, bytes)| (Reverse(distance(*node)), Reverse(*bytes), *node));
        Some((away, near))
    }
}

/// The room of each node.
fn room(inputs: &Inputs<'_>, allocations: &Allocations) -> BTreeMap<NodeId, u64> {
    let available = |node: NodeId| inputs.sample.nodes.get(&node).and_then(NodeSample::available_bytes);
    let figures = figures(inputs);
    let (mut unused, mut guests) = (BTreeMap::<NodeId, u64>::new(), BTreeMap::<NodeId, u64>::new());
    let add = |sums: &mut BTreeMap<NodeId, u64>, node: NodeId, bytes: u64| {
        let sum = sums.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    };
    for (holder, grant) in allocations.iter().filter(|(holder, _)| !holder.is_apart()) {
        let held: BTreeMap<NodeId, u64> = figures.get(holder).map_or_else(BTreeMap::new, |figures| {
            let bytes = figures.bytes_by_node.iter().flatten();
            bytes.map(|(node, bytes)| (*node, movable_bytes(bytes))).collect()
        });
        let ordinary = |claim: &&MemoryClaim| claim.resource == MemoryResource::Memory;
        let mut promised_on = BTreeSet::new();
        for claim in grant.memory.iter().filter(ordinary) {
            promised_on.extend(claim.zone.iter());
            let uses =
                claim.zone.iter().filter_map(|node| held.get(&node)).fold(0u64, |a, b| a.saturating_add(*b));
            let open = claim.bytes.saturating_sub(uses);
            for node in claim.zone.iter() {
                // What the other nodes of the zone can give for it need not come from this one.
                let others = claim.zone.iter().filter(|other| *other != node).filter_map(available);
                let others = others.fold(0u64, u64::saturating_add);
                add(&mut unused, node, open.saturating_sub(others));
            }
        }
        if grant.shared.as_ref().is_some_and(|shared| shared.refuge.is_some()) {
            let beside = held.iter().filter(|(node, _)| !promised_on.contains(*node));
            beside.for_each(|(node, bytes)| add(&mut guests, *node, *bytes));
        }
    }
    let account = ZoneAccount::new(inputs.inventory, allocations, |_| false);
    let of = |sums: &BTreeMap<NodeId, u64>, node: NodeId| sums.get(&node).copied().unwrap_or(0);
    let room = |node: NodeId| {
        let promised_to_none = account.free(&NodeSet::from_iter([node]), MemoryResource::Memory);
        let now = available(node).unwrap_or(0).saturating_sub(of(&unused, node));
        (node, now.min(promised_to_none.saturating_sub(of(&guests, node))))
    };
    inputs.inventory.nodes.iter().map(|node| room(node.id)).collect()
}

/// Figures of those who hold something, as far as they were seen.
fn figures<'a>(inputs: &Inputs<'a>) -> BTreeMap<Holder, &'a WorkloadModel> {
    let containers: BTreeMap<_, _> = inputs.containers.cgroups().collect();
    let of = |workload: &'a Workload| {
        let cgroup = &workload.cgroup;
        let holder =
            containers.get(cgroup).map_or_else(|| Holder::cgroup(cgroup), |holder| (*holder).clone());
        Some((holder, inputs.model.of(workload)?))
    };
    inputs.workloads.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests;

//! Pages of containers that are away from home.
//!
//! Problem: a container whose shared CPUs were given away runs on other nodes as long as that lasts. What it
//! was promised at home it keeps, so its memory nodes are both, and nothing would move its pages to its CPUs.
//! Idea: they follow as far as the nodes near its CPUs have memory that is available now and promised to no
//! other container; when it returns its memory nodes are those of its home again, and the pages with them.
//!
//! Invariant: pages of a node follow as a whole or not at all, so that a move ends. Cost: the account of
//! memory, once for each container that is away with a promise and has pages at home.

use crate::{
    decide::Inputs,
    id::NodeId,
    model::WorkloadModel,
    place::{Allocations, Grant, MemoryResource, ZoneAccount},
    sample::NodeSample,
    set::{CpuSet, NodeSet},
};

/// The nodes whose pages go to a node near its CPUs; none for a container that is at home, or has nothing
/// that could follow.
pub(super) fn follows(
    inputs: &Inputs<'_>,
    allocations: &Allocations,
    grant: &Grant,
    figures: Option<&WorkloadModel>,
    taken: &CpuSet,
) -> Option<(NodeSet, NodeId)> {
    grant.shared.as_ref()?.refuge.as_ref()?;
    let bytes = figures?.bytes_by_node.as_ref()?;
    let mems = grant.mems(taken);
    let machine = &inputs.inventory.machine;
    let near = machine.near_memory_nodes(&machine.nodes_of(&grant.cpus(taken))).intersection(&mems);
    let far = mems.difference(&near).difference(&machine.gpu_memory_nodes());
    let mut away: Vec<(NodeId, u64)> = bytes
        .iter()
        .filter(|(node, bytes)| far.contains(**node) && bytes.anon > 0)
        .map(|(node, bytes)| (*node, bytes.anon))
        .collect();
    let all = away.iter().fold(0u64, |all, (_, bytes)| all.saturating_add(*bytes));
    if away.is_empty() || all < inputs.policy.thresholds.min_memory.0 {
        return None;
    }
    let account = ZoneAccount::new(inputs.inventory, allocations, |_| false);
    let room = |node: NodeId| {
        let promised_to_none = account.free(&NodeSet::from_iter([node]), MemoryResource::Memory);
        let available = inputs.sample.nodes.get(&node).and_then(NodeSample::available_bytes);
        available.map_or(0, |available| available.min(promised_to_none))
    };
    let (to, mut left) = near
        .iter()
        .map(|node| (node, room(node)))
        .max_by_key(|(node, room)| (*room, std::cmp::Reverse(*node)))?;
    away.sort_by_key(|(node, bytes)| (std::cmp::Reverse(*bytes), *node));
    let mut from = NodeSet::new();
    for (node, bytes) in away {
        if bytes <= left {
            left -= bytes;
            from.insert(node);
        }
    }
    (!from.is_empty()).then_some((from, to))
}

#[cfg(test)]
mod tests;

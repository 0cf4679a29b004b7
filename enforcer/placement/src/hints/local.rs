//! Memory that is local to CPU nodes, as hints count it.
//!
//! Problem: hints name sets of CPU nodes, but memory may also be on memory-only nodes, CPU nodes may have
//! none, and GPU memory is not for workloads. Idea: the memory of a CPU node is its own and that of the
//! nearest memory-only nodes, in *levels*: only DRAM first, then HBM too, then slower memory too. Each level
//! is tried until one has a preferred place.
//!
//! Invariants: sets contain only nodes with ordinary memory; each level includes the previous one; the last
//! level includes all near memory. Memory that is near no CPU node is in no level, and is used if nothing
//! nearer is left ([`LocalMemory::others`]).

use super::{Mask, NodeIndex, positions};
use crate::Inventory;
use numa_topology::{MemoryClass, Topology, id::NodeId, set::NodeSet};

/// Memory nodes by CPU node and level.
#[derive(Debug, Clone)]
pub(super) struct LocalMemory {
    /// By level, then by position of the CPU node.
    levels: Vec<Vec<NodeSet>>,
    /// Nodes that may hold ordinary memory.
    everywhere: NodeSet,
}

impl LocalMemory {
    /// Local memory of these CPU nodes, if memory may be on `everywhere`.
    pub(super) fn new(inventory: &Inventory, nodes: &NodeIndex, everywhere: NodeSet) -> Self {
        let mut levels: Vec<Vec<NodeSet>> = Vec::new();
        let (machine, locality) = (&inventory.machine, &inventory.locality);
        let near: Vec<(NodeId, usize, &NodeSet)> = everywhere
            .iter()
            .map(|memory| (memory, order(machine, memory), locality.near_cpu_nodes(memory)))
            .collect();
        for level in 0..=SLOW {
            if level > 0 && !near.iter().any(|(_, order, _)| *order == level) {
                continue;
            }
            let of_node = |id: &NodeId| {
                let local = near.iter().filter(|(_, order, near)| *order <= level && near.contains(*id));
                local.map(|(memory, ..)| *memory).collect()
            };
            levels.push(nodes.ids().iter().map(of_node).collect());
        }
        Self { levels, everywhere }
    }

    /// Local memory as the kubelet counts it: each node has its own.
    pub(super) fn of_each_node(nodes: &NodeIndex, everywhere: NodeSet) -> Self {
        let own = nodes.ids().iter().map(|id| std::iter::once(*id).collect()).collect();
        Self { levels: vec![own], everywhere }
    }

    /// Number of levels, at least one.
    pub(super) const fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Memory nodes by position of the CPU node; the last level if `level` does not exist.
    pub(super) fn level(&self, level: usize) -> &[NodeSet] {
        self.levels.get(level).or_else(|| self.levels.last()).map_or(&[], Vec::as_slice)
    }

    /// Memory that is local to these CPU nodes.
    pub(super) fn zone(&self, level: usize, mask: Mask) -> NodeSet {
        let mut zone = NodeSet::new();
        positions(mask).filter_map(|at| self.level(level).get(at)).for_each(|own| zone.extend(own));
        zone
    }

    /// Nodes that may hold ordinary memory.
    pub(super) const fn everywhere(&self) -> &NodeSet {
        &self.everywhere
    }

    /// The nodes outside the zone: DRAM before HBM before slower memory, then by distance to the CPU nodes.
    pub(super) fn others(&self, machine: &Topology, zone: &NodeSet, cpu_nodes: &NodeSet) -> Vec<NodeId> {
        let mut others: Vec<(usize, u32, NodeId)> = self
            .everywhere
            .difference(zone)
            .iter()
            .map(|id| (order(machine, id), distance(machine, cpu_nodes, id), id))
            .collect();
        others.sort_unstable();
        others.into_iter().map(|(.., id)| id).collect()
    }
}

/// Position of memory that is used last.
const SLOW: usize = 2;

fn order(machine: &Topology, id: NodeId) -> usize {
    match machine.node(id).and_then(numa_topology::Node::memory_class) {
        Some(MemoryClass::Dram) => 0,
        Some(MemoryClass::HighBandwidth) => 1,
        Some(MemoryClass::Slow) | None => SLOW,
    }
}

/// Distance from the nearest of the CPU nodes.
fn distance(machine: &Topology, cpu_nodes: &NodeSet, to: NodeId) -> u32 {
    let known = cpu_nodes.iter().filter_map(|from| machine.distance(from, to));
    known.min().unwrap_or(u32::MAX)
}

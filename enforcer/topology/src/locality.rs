//! Whether a node may hold ordinary memory of workloads, and which CPUs its memory is local to.
//!
//! Problem: GPU memory looks like any other node, a memory-only node has no CPUs that show its location, and
//! several CPU nodes may be equally near to it. Code paths that answer separately answer differently. Idea:
//! one answer, from the reports of firmware and kernel, for all paths.
//!
//! Which CPU nodes the memory of a node is local to:
//! 1. The node itself, if it has CPUs.
//! 2. GPU memory: the node of the GPU's PCI device if known. This is for placing the GPU: its pages are
//!    neither near nor far.
//! 3. The only CPU node, if there is just one.
//! 4. The best initiators by HMAT that have CPUs, else the CPU nodes at the least distance; all of them in a
//!    tie. Without HMAT initiators and without evidence for slower or faster memory, it is the memory of a
//!    socket, for example of one with offline CPUs. If its distance is not below that to another CPU node
//!    with memory, it is as remote as that node's memory: local to none.
//!
//! Among several candidate nodes, a lower id is never a reason.
//!
//! Invariants: the answer contains only CPU nodes; memory-only nodes with the same kind, distances and HMAT
//! get the same answer. An unknown distance never makes a node near.
//! Cost: some passes over the distances for each memory-only node; [`Locality`] caches the answers.

use std::collections::BTreeMap;

use super::{MemoryKind, Node, Topology};
use crate::{id::NodeId, set::NodeSet};

/// Position of a node's memory in the order of speed, fastest first: position of its memory tier (0 if the
/// kernel has at most one tier), then its class.
pub type MemoryRank = (usize, MemoryClass);

/// Speed class of ordinary memory, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryClass {
    /// High-bandwidth memory beside the ordinary memory.
    HighBandwidth,
    /// Ordinary memory on a memory controller.
    Dram,
    /// PMEM, CXL, and memory-only nodes of unknown kind.
    Slow,
}

impl MemoryKind {
    /// May workloads have ordinary memory of this kind? Not of a GPU: its driver manages that memory.
    pub const fn takes_ordinary_memory(self) -> bool {
        !matches!(self, Self::Gpu | Self::None)
    }
}

impl Node {
    /// May workloads have ordinary memory on this node? A node of unknown size may hold some.
    pub fn takes_ordinary_memory(&self) -> bool {
        self.mem_total_bytes != Some(0) && self.kind.takes_ordinary_memory()
    }

    /// Does it lack memory that the kernel can use for itself? False if unknown.
    pub fn is_movable_only(&self) -> bool {
        self.normal_memory == Some(false)
    }

    /// Speed class of its ordinary memory. A node with CPUs has DRAM, regardless of other evidence.
    pub fn memory_class(&self) -> Option<MemoryClass> {
        let class = match self.kind {
            MemoryKind::Hbm if self.cpus.is_empty() => MemoryClass::HighBandwidth,
            MemoryKind::Pmem | MemoryKind::Cxl | MemoryKind::Unknown if self.cpus.is_empty() => {
                MemoryClass::Slow
            }
            _ => MemoryClass::Dram,
        };
        self.takes_ordinary_memory().then_some(class)
    }
}

impl Topology {
    /// Nodes that may hold ordinary memory of workloads.
    pub fn ordinary_memory_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| node.takes_ordinary_memory()).map(|node| node.id).collect()
    }

    /// Nodes with GPU memory.
    pub fn gpu_memory_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| node.kind == MemoryKind::Gpu).map(|node| node.id).collect()
    }

    /// Rank of the node's memory; none if it holds no ordinary memory.
    pub fn memory_rank(&self, id: NodeId) -> Option<MemoryRank> {
        Some((self.memory_tier(id).unwrap_or(0), self.node(id)?.memory_class()?))
    }

    /// Position of the node's memory tier, if the kernel has several.
    pub fn memory_tier(&self, id: NodeId) -> Option<usize> {
        let several = self.memory_tiers.len() > 1;
        self.memory_tiers.iter().position(|tier| several && tier.nodes.contains(id))
    }

    /// These nodes by [`Self::memory_rank`], then by id, without those that hold no ordinary memory.
    pub fn fastest_first(&self, nodes: &NodeSet) -> Vec<NodeId> {
        let mut ranked: Vec<_> = nodes.iter().filter_map(|id| Some((self.memory_rank(id)?, id))).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, id)| id).collect()
    }

    /// CPU nodes that the node's memory is local to; empty for memory that is local to none.
    pub fn near_cpu_nodes(&self, memory: NodeId) -> NodeSet {
        let Some(node) = self.node(memory) else { return NodeSet::new() };
        if !node.cpus.is_empty() {
            return NodeSet::from_iter([memory]);
        }
        let all = self.cpu_nodes();
        let of_device = node.closest_cpu_node.filter(|id| node.kind == MemoryKind::Gpu && all.contains(*id));
        if let Some(of_device) = of_device {
            return NodeSet::from_iter([of_device]);
        }
        if all.len() == 1 {
            return all;
        }
        let initiators = node.hmat.as_ref().map(|hmat| hmat.initiators.intersection(&all));
        let named = initiators.filter(|initiators| !initiators.is_empty());
        if let Some(named) = named {
            let (near, _) = self.nearest(&named, memory);
            return if near.is_empty() { named } else { near };
        }
        let (near, distance) = self.nearest(&all, memory);
        let like_a_socket = matches!(node.kind, MemoryKind::Dram | MemoryKind::Unknown | MemoryKind::None);
        if like_a_socket && self.other_socket(&near).is_some_and(|other| distance >= other) {
            return NodeSet::new();
        }
        near
    }

    /// Sets `closest_cpu_node` of each memory-only node with memory local to exactly one CPU node. An
    /// existing value for GPU memory stays: only its device determines it.
    pub fn note_closest_cpu_nodes(&mut self) {
        let near = |node: &Node| {
            let near = self.near_cpu_nodes(node.id);
            near.first().filter(|_| node.cpus.is_empty() && near.len() == 1)
        };
        let closest: Vec<_> = self.nodes.iter().map(near).collect();
        for (node, closest) in self.nodes.iter_mut().zip(closest) {
            node.closest_cpu_node = closest;
        }
    }

    /// Ordinary memory nodes that are local to one of these CPU nodes. A CPU node without local memory has
    /// the nearest memory nodes, all of them in a tie.
    pub fn near_memory_nodes(&self, cpu_nodes: &NodeSet) -> NodeSet {
        Locality::new(self).near_memory_nodes(self, cpu_nodes)
    }

    /// CPU nodes for a workload that may use the nodes `allowed`: those with CPUs among them, else the CPU
    /// nodes that their memory is local to.
    pub fn cpu_nodes_of(&self, allowed: &NodeSet) -> NodeSet {
        let named = self.cpu_nodes().intersection(allowed);
        if named.is_empty() { Locality::new(self).homes(allowed) } else { named }
    }

    /// These memory nodes. If all of them have only movable memory, also the nearest of `allowed` with memory
    /// for the kernel itself: without it fork(2) and pipe(2) fail (`cpusets_insane_config` of
    /// `mm/page_alloc.c`). Unchanged if there is no such node.
    pub fn with_kernel_memory(&self, mems: NodeSet, allowed: &NodeSet) -> NodeSet {
        let is_movable = |id: &NodeId| self.node(*id).is_some_and(Node::is_movable_only);
        if mems.is_empty() || !mems.iter().all(|id| is_movable(&id)) {
            return mems;
        }
        let normal = allowed.intersection(&self.ordinary_memory_nodes());
        let normal = normal.iter().filter(|id| !is_movable(id));
        let distance = |to: NodeId| mems.iter().filter_map(|from| self.either_distance(from, to)).min();
        let nearest = normal.min_by_key(|id| (distance(*id).unwrap_or(u32::MAX), *id));
        mems.union(&nearest.into_iter().collect())
    }

    /// The nodes of `mems` that are there only for the kernel: pages belong on `near`, and these nodes have
    /// only movable memory.
    pub fn kernel_only(&self, mems: &NodeSet, near: &NodeSet) -> NodeSet {
        let for_pages = mems.intersection(near);
        self.with_kernel_memory(for_pages.clone(), mems).difference(&for_pages)
    }

    /// Distance from CPUs to memory, else in the other direction.
    fn either_distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        self.distance(from, to).or_else(|| self.distance(to, from))
    }

    /// The nodes at the least known distance, and that distance.
    fn nearest(&self, nodes: &NodeSet, memory: NodeId) -> (NodeSet, u32) {
        let known = nodes.iter().filter_map(|id| Some((id, self.either_distance(id, memory)?)));
        let known: Vec<(NodeId, u32)> = known.collect();
        let least = known.iter().map(|(_, distance)| *distance).min().unwrap_or(u32::MAX);
        (known.into_iter().filter(|(_, distance)| *distance == least).map(|(id, _)| id).collect(), least)
    }

    /// The least distance from one of these CPU nodes to the memory of another CPU node.
    fn other_socket(&self, from: &NodeSet) -> Option<u32> {
        let with_memory = self.cpu_nodes().intersection(&self.ordinary_memory_nodes());
        let others = |one: NodeId| with_memory.iter().filter(move |other| *other != one);
        from.iter()
            .flat_map(|one| others(one).filter_map(move |other| self.either_distance(one, other)))
            .min()
    }
}

/// For each node, the CPU nodes that its memory is local to, and whether it takes ordinary memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locality {
    near: BTreeMap<NodeId, NodeSet>,
    /// For CPU nodes, the ordinary memory nodes that are local to them.
    local: BTreeMap<NodeId, NodeSet>,
    /// For CPU nodes without local ordinary memory, the nearest memory nodes.
    nearest: BTreeMap<NodeId, NodeSet>,
    ordinary: NodeSet,
    gpus: NodeSet,
}

impl Locality {
    /// Computes the locality of a machine.
    pub fn new(machine: &Topology) -> Self {
        let near = machine.nodes.iter().map(|node| (node.id, machine.near_cpu_nodes(node.id)));
        let near: BTreeMap<NodeId, NodeSet> = near.collect();
        let ordinary = machine.ordinary_memory_nodes();
        let local_to = |cpus: NodeId| {
            let is_local = |memory: &NodeId| near.get(memory).is_some_and(|near| near.contains(cpus));
            (cpus, ordinary.iter().filter(is_local).collect())
        };
        let local: BTreeMap<NodeId, NodeSet> = machine.cpu_nodes().iter().map(local_to).collect();
        let without = local.iter().filter(|(_, local)| local.is_empty());
        let nearest = without.map(|(cpus, _)| (*cpus, machine.nearest(&ordinary, *cpus).0)).collect();
        Self { near, local, nearest, ordinary, gpus: machine.gpu_memory_nodes() }
    }

    /// [`Topology::near_memory_nodes`] from the cached answers; `machine` is the machine given to
    /// [`Self::new`].
    pub fn near_memory_nodes(&self, machine: &Topology, cpu_nodes: &NodeSet) -> NodeSet {
        self.near_memory_of(machine, cpu_nodes, &self.ordinary)
    }

    /// The same for a workload that may have memory only on the nodes `allowed`: CPUs without local memory
    /// have the nearest of these nodes, and equally near ones. Local memory is near whether allowed or not.
    pub fn near_memory_of(&self, machine: &Topology, cpu_nodes: &NodeSet, allowed: &NodeSet) -> NodeSet {
        let ordinary = &self.ordinary;
        let mut near = NodeSet::new();
        let of_nodes = cpu_nodes.iter().filter_map(|cpus| Some((cpus, self.local.get(&cpus)?)));
        for (cpus, local) in of_nodes {
            let Some(nearest) = self.nearest.get(&cpus) else {
                near.extend(local);
                continue;
            };
            let (of_allowed, most) = machine.nearest(&ordinary.intersection(allowed), cpus);
            let is_as_near = |memory: &NodeId| {
                machine.either_distance(*memory, cpus).is_some_and(|distance| distance <= most)
            };
            let as_near: NodeSet = ordinary.iter().filter(is_as_near).collect();
            near.extend(if of_allowed.is_empty() { nearest } else { &as_near });
        }
        near
    }

    /// Is this memory the nearest to the CPUs of a node without local memory?
    fn is_nearest(&self, memory: NodeId, cpus: NodeId) -> bool {
        self.nearest.get(&cpus).is_some_and(|nearest| nearest.contains(memory))
    }

    /// [`Topology::near_cpu_nodes`].
    pub fn near_cpu_nodes(&self, memory: NodeId) -> &NodeSet {
        static NONE: NodeSet = NodeSet::new();
        self.near.get(&memory).unwrap_or(&NONE)
    }

    /// Is ordinary memory on this node local to one of the CPU nodes, or the nearest to one without local
    /// memory? [`Topology::near_memory_nodes`] returns the same nodes.
    pub fn is_near(&self, memory: NodeId, cpu_nodes: &NodeSet) -> bool {
        !self.gpus.contains(memory)
            && (cpu_nodes.contains(memory)
                || !self.near_cpu_nodes(memory).is_disjoint(cpu_nodes)
                || cpu_nodes.iter().any(|cpus| self.is_nearest(memory, cpus)))
    }

    /// Is ordinary memory on this node near to none of the CPU nodes? False for GPU memory: its pages are
    /// there for the GPU.
    pub fn is_far(&self, memory: NodeId, cpu_nodes: &NodeSet) -> bool {
        !self.gpus.contains(memory) && !self.is_near(memory, cpu_nodes)
    }

    /// [`Self::is_near`] for the CPUs of one node.
    pub fn is_near_to(&self, memory: NodeId, cpus: NodeId) -> bool {
        !self.gpus.contains(memory)
            && (memory == cpus || self.near_cpu_nodes(memory).contains(cpus) || self.is_nearest(memory, cpus))
    }

    /// [`Self::is_far`] from the CPUs of one node.
    pub fn is_far_from(&self, memory: NodeId, cpus: NodeId) -> bool {
        !self.gpus.contains(memory) && !self.is_near_to(memory, cpus)
    }

    /// Is it GPU memory, which is neither near nor far?
    pub fn is_gpu(&self, memory: NodeId) -> bool {
        self.gpus.contains(memory)
    }

    /// CPU nodes that ordinary memory on these nodes is local to.
    pub fn homes(&self, memory: &NodeSet) -> NodeSet {
        let mut homes = NodeSet::new();
        memory.difference(&self.gpus).iter().for_each(|node| homes.extend(self.near_cpu_nodes(node)));
        homes
    }
}

#[cfg(test)]
mod tests;

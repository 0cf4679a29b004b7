//! Attachment of memory to CPUs.
//!
//! The kind of a memory-only node is that of the topology; an unknown kind counts as slow: a container that
//! requires DRAM does not get it, and one that takes any kind does.

use std::collections::BTreeMap;

use crate::settings::MemoryTypes;
use numa_topology::{MemoryClass, MemoryKind, Node, Topology, id::NodeId, set::NodeSet};

/// Nodes by kind of their memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryNodes {
    /// Ordinary memory.
    pub dram: NodeSet,
    /// Slower memory: PMEM, CXL, and memory-only nodes of unknown kind.
    pub pmem: NodeSet,
    /// High-bandwidth memory.
    pub hbm: NodeSet,
}

impl MemoryNodes {
    /// The kinds of these nodes.
    pub fn of<'a>(nodes: impl Iterator<Item = &'a Node>) -> Self {
        let mut sorted = Self::default();
        for node in nodes {
            match node.memory_class() {
                Some(MemoryClass::Dram) => sorted.dram.insert(node.id),
                Some(MemoryClass::HighBandwidth) => sorted.hbm.insert(node.id),
                Some(MemoryClass::Slow) => sorted.pmem.insert(node.id),
                None => false,
            };
        }
        sorted
    }

    /// Nodes of these kinds.
    pub(crate) fn of_types(&self, types: MemoryTypes) -> NodeSet {
        let kinds = [(types.dram, &self.dram), (types.pmem, &self.pmem), (types.hbm, &self.hbm)];
        let mut nodes = NodeSet::new();
        kinds.into_iter().filter(|(wanted, _)| *wanted).for_each(|(_, kind)| nodes.extend(kind));
        nodes
    }

    /// All nodes.
    pub fn all(&self) -> NodeSet {
        self.of_types(MemoryTypes { dram: true, pmem: true, hbm: true })
    }

    /// Kinds of memory that exist.
    pub fn types(&self) -> MemoryTypes {
        MemoryTypes { dram: !self.dram.is_empty(), pmem: !self.pmem.is_empty(), hbm: !self.hbm.is_empty() }
    }
}

/// The CPU node that each memory-only node is attached to; for GPU memory that of its PCI device.
pub(super) fn attached_nodes(machine: &Topology) -> BTreeMap<NodeId, NodeId> {
    let with_cpus = || machine.nodes.iter().filter(|node| !node.cpus.is_empty());
    let mut hosts: Vec<NodeId> =
        with_cpus().filter(|node| node.takes_ordinary_memory()).map(|node| node.id).collect();
    if hosts.is_empty() {
        hosts = with_cpus().map(|node| node.id).collect();
    }
    let is_gpu = |node: &&Node| node.kind == MemoryKind::Gpu;
    let gpus = machine.nodes.iter().filter(is_gpu).filter_map(|gpu| Some((gpu.id, gpu.closest_cpu_node?)));
    let mut attached: BTreeMap<NodeId, NodeId> = gpus.collect();
    let mut load = BTreeMap::<(MemoryKind, NodeId), usize>::new();
    for node in machine.nodes.iter().filter(|node| node.cpus.is_empty() && node.takes_ordinary_memory()) {
        let initiators = node.hmat.as_ref().map(|hmat| &hmat.initiators);
        let named = |host: &NodeId| initiators.is_some_and(|initiators| initiators.contains(*host));
        let any_named = hosts.iter().any(named);
        let nearest = hosts.iter().copied().filter(|host| !any_named || named(host)).min_by_key(|host| {
            let distance = machine.distance(*host, node.id).unwrap_or(u32::MAX);
            (distance, load.get(&(node.kind, *host)).copied().unwrap_or(0), *host)
        });
        if let Some(host) = nearest {
            attached.insert(node.id, host);
            *load.entry((node.kind, host)).or_default() += 1;
        }
    }
    attached
}

//! Which nodes are local to which.

use std::collections::BTreeMap;

use crate::{id::NodeId, set::NodeSet, topology::Topology};

/// For each node, the CPU node that its memory is local to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locality(BTreeMap<NodeId, NodeId>);

impl Locality {
    /// The locality of a machine.
    pub fn new(machine: &Topology) -> Self {
        let home = |node: &crate::topology::Node| {
            let at = if node.cpus.is_empty() { node.closest_cpu_node? } else { node.id };
            Some((node.id, at))
        };
        Self(machine.nodes.iter().filter_map(home).collect())
    }

    /// The CPU node that memory on this node is local to; none where nothing says so.
    pub fn home(&self, memory: NodeId) -> Option<NodeId> {
        self.0.get(&memory).copied()
    }

    /// Is memory on this node local to one of the CPU nodes?
    pub fn is_local(&self, memory: NodeId, cpu_nodes: &NodeSet) -> bool {
        cpu_nodes.contains(memory) || self.home(memory).is_some_and(|home| cpu_nodes.contains(home))
    }

    /// The CPU nodes that memory on these nodes is local to.
    pub fn homes(&self, memory: &NodeSet) -> NodeSet {
        memory.iter().filter_map(|node| self.home(node)).collect()
    }
}

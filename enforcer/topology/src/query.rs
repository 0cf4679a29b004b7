//! Queries on a [`Topology`].
//!
//! All are linear scans: a machine has at most some hundred nodes and some thousand CPUs, and queries run per
//! workload and turn, not per page. Nothing is guessed: a distance that the kernel does not report is `None`,
//! and sorts after every known one.

use std::collections::BTreeMap;

use super::{Node, Topology};
use crate::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

impl Topology {
    /// The node with this id.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(self.position(id)?)
    }

    /// Position of a node in the list: equal to its id on almost every machine.
    fn position(&self, id: NodeId) -> Option<usize> {
        let is_at = |at: &usize| self.nodes.get(*at).is_some_and(|node| node.id == id);
        let at = usize::try_from(id.0).ok().filter(is_at);
        at.or_else(|| self.nodes.iter().position(|node| node.id == id))
    }

    /// The nodes that the CPUs belong to.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        self.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus)).map(|node| node.id).collect()
    }

    /// The online CPUs of the nodes.
    pub fn cpus_of(&self, nodes: &NodeSet) -> CpuSet {
        let members = self.nodes.iter().filter(|node| nodes.contains(node.id));
        members.fold(CpuSet::new(), |cpus, node| cpus.union(&node.cpus))
    }

    /// All nodes with at least one online CPU.
    pub fn cpu_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id).collect()
    }

    /// All nodes with memory; a node of unknown size counts as one.
    pub fn memory_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| node.mem_total_bytes != Some(0)).map(|node| node.id).collect()
    }

    /// All online CPUs.
    pub fn online_cpus(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// SLIT distance from one node to another; 10 is local.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        self.distances.get(self.position(from)?)?.get(self.position(to)?).copied().flatten()
    }

    /// Node of each online CPU.
    pub fn node_of_cpu(&self) -> BTreeMap<CpuId, NodeId> {
        self.cpus.iter().filter_map(|cpu| Some((cpu.id, cpu.node?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryKind, synth::Machine};

    fn two_sockets_and_cxl() -> Topology {
        Machine::new().sockets(2).cores(2).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build()
    }

    #[test]
    fn cpus_and_nodes_answer_for_each_other() {
        let machine = two_sockets_and_cxl();
        let cpus = machine.cpus_of(&"1-2".parse().unwrap());
        assert_eq!(cpus.to_string(), "2-3,6-7");
        assert_eq!(machine.nodes_of(&cpus).to_string(), "1");
        assert_eq!(machine.node_of_cpu().get(&CpuId(6)), Some(&NodeId(1)));
    }

    #[test]
    fn unknown_distance_is_none() {
        let mut machine = two_sockets_and_cxl();
        machine.distances[0][1] = None;
        assert_eq!(machine.distance(NodeId(0), NodeId(1)), None);
        assert_eq!(machine.distance(NodeId(0), NodeId(9)), None);
    }
}

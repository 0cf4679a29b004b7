//! NUMA nodes as columns of the kernel side's arrays.
//!
//! Ids of nodes may be sparse and large; the programs know the nodes with CPUs by their position in
//! ascending order of ids. Pure.

use std::collections::BTreeMap;

use enforcer_common::limit::{NODE_WORDS, NODES};
use numa_topology::{
    id::{CpuId, NodeId},
    set::NodeSet,
};

/// The nodes with CPUs, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeColumns(Vec<NodeId>);

impl NodeColumns {
    /// The nodes of these CPUs; those beyond [`NODES`] are left out.
    pub fn new(cpu_node: &BTreeMap<CpuId, NodeId>) -> Self {
        let mut nodes: Vec<NodeId> = cpu_node.values().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.truncate(NODES);
        Self(nodes)
    }

    /// How many there are; the kernel side has at least one.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Position of a node.
    pub fn index(&self, node: NodeId) -> Option<u16> {
        self.0.binary_search(&node).ok().and_then(|index| u16::try_from(index).ok())
    }

    /// The node at a position.
    pub fn node(&self, index: usize) -> Option<NodeId> {
        self.0.get(index).copied()
    }

    /// A set of nodes as the programs read it; `None` is every node.
    pub(super) fn mask(&self, nodes: Option<&NodeSet>) -> [u64; NODE_WORDS] {
        let Some(nodes) = nodes else { return [u64::MAX; NODE_WORDS] };
        let mut words = [0u64; NODE_WORDS];
        for index in nodes.iter().filter_map(|node| self.index(node)).map(usize::from) {
            if let Some(word) = words.get_mut(index / 64) {
                *word |= 1 << (index % 64);
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(nodes: &[u32]) -> NodeColumns {
        let cpus = nodes.iter().zip(0..).map(|(node, cpu)| (CpuId(cpu), NodeId(*node)));
        NodeColumns::new(&cpus.collect())
    }

    #[test]
    fn sparse_ids_have_neighbouring_positions() {
        let columns = columns(&[72, 0, 1023, 0]);
        assert_eq!(columns.count(), 3);
        assert_eq!([0, 72, 1023].map(|node| columns.index(NodeId(node))), [Some(0), Some(1), Some(2)]);
        assert_eq!(
            (columns.index(NodeId(1)), columns.node(2), columns.node(3)),
            (None, Some(NodeId(1023)), None)
        );
    }

    #[test]
    fn a_mask_has_a_bit_for_each_node_that_there_is() {
        let columns = columns(&(0..70).map(|index| index * 3).collect::<Vec<_>>());
        let mask = columns.mask(Some(&[NodeId(0), NodeId(1), NodeId(195)].into_iter().collect()));
        assert_eq!(mask[..3], [1, 2, 0]);
        assert_eq!(columns.mask(None), [u64::MAX; NODE_WORDS]);
        assert_eq!(columns.mask(Some(&NodeSet::new())), [0; NODE_WORDS]);
    }

    #[test]
    fn no_node_is_one_column() {
        assert_eq!(columns(&[]).count(), 1);
    }
}

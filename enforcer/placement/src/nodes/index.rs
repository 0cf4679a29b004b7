//! Positions of nodes in a mask.
//!
//! Ids may be sparse and large, and masks have 64 bits, so bit n stands for the n-th node of the list.

use super::{
    Mask, NodeDistances,
    masks::{FEW, MAX_ENUMERATED_NODES, positions},
};
use numa_topology::{Topology, id::NodeId, set::NodeSet};

/// Nodes that can be in a mask, at most [`NodeIndex::LARGEST`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIndex {
    /// Ascending ids.
    ids: Vec<NodeId>,
    /// Row and column n belong to `ids[n]`; empty if unknown.
    distances: Vec<Vec<u32>>,
    /// Maximum number of nodes with listed sets; above it, offers are thresholds.
    most_listed: usize,
}

impl NodeIndex {
    /// Maximum number of nodes in one mask.
    pub const LARGEST: usize = 64;

    /// An index of these nodes; nodes after the 64th are left out.
    pub fn new(nodes: &NodeSet) -> Self {
        let ids = nodes.iter().take(Self::LARGEST).collect();
        Self { ids, distances: Vec::new(), most_listed: FEW }
    }

    /// An index of these nodes with their distances, if all are known.
    pub fn of(machine: &Topology, nodes: &NodeSet) -> Self {
        let Self { ids, most_listed, .. } = Self::new(nodes);
        // Once for each node, not once for each pair: a lookup by id scans all nodes.
        let at = |id: &NodeId| machine.nodes.iter().position(|node| node.id == *id);
        let at: Option<Vec<usize>> = ids.iter().map(at).collect();
        let row = |row: &Vec<Option<u32>>, at: &[usize]| {
            at.iter().map(|to| row.get(*to).copied().flatten()).collect::<Option<Vec<u32>>>()
        };
        let distances = at.and_then(|at| {
            at.iter().map(|from| machine.distances.get(*from).and_then(|of| row(of, &at))).collect()
        });
        let distances = distances.unwrap_or_default();
        Self { ids, distances, most_listed }
    }

    /// The same index with distances as a kubelet reads them: each row has one value per node, and a kubelet
    /// uses node ids as positions. If a row is too short for that (a kubelet panics), by position.
    #[must_use]
    pub(crate) fn with_distances_by_id(self, machine: &Topology) -> Self {
        let row = |from: usize, row: &Vec<u32>| {
            let of = machine.nodes.iter().position(|node| Some(node.id) == self.ids.get(from).copied());
            let read = of.and_then(|of| machine.distances.get(of));
            let at = |to: usize, own: u32| {
                let id = self.ids.get(to).and_then(|id| usize::try_from(id.0).ok());
                id.and_then(|id| read?.get(id).copied().flatten()).unwrap_or(own)
            };
            row.iter().enumerate().map(|(to, own)| at(to, *own)).collect()
        };
        let distances = self.distances.iter().enumerate().map(|(from, own)| row(from, own)).collect();
        Self { distances, ..self }
    }

    /// The same nodes with listed sets if that is possible at all: for questions that amounts do not answer.
    #[must_use]
    pub fn with_lists(self) -> Self {
        Self { most_listed: MAX_ENUMERATED_NODES, ..self }
    }

    /// The same nodes without listed sets.
    #[cfg(test)]
    pub(crate) fn without_lists(self) -> Self {
        Self { most_listed: 0, ..self }
    }

    /// Are sets of these nodes listed? Else offers are thresholds.
    pub const fn is_listed(&self) -> bool {
        self.ids.len() <= self.most_listed
    }

    /// The same nodes with other distances: row and column n belong to the n-th node.
    #[must_use]
    pub fn with_distances(self, distances: Vec<Vec<u32>>) -> Self {
        Self { distances, ..self }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The nodes, ascending.
    pub fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    /// Distances by position; empty if unknown.
    pub fn distances(&self) -> &[Vec<u32>] {
        &self.distances
    }

    /// Distances between all nodes; `None` unless all are known.
    pub(crate) fn known_distances(&self) -> Option<NodeDistances<'_>> {
        NodeDistances::new(&self.distances, self.len())
    }

    /// The mask of all nodes.
    pub fn all(&self) -> Mask {
        match self.ids.len() {
            64.. => Mask::MAX,
            n => (1 << n) - 1,
        }
    }

    /// Position of a node.
    pub fn position(&self, node: NodeId) -> Option<usize> {
        let there = self.ids.get(node.0 as usize) == Some(&node);
        if there { Some(node.0 as usize) } else { self.ids.binary_search(&node).ok() }
    }

    /// The mask of these nodes; unknown nodes are left out.
    pub fn mask(&self, nodes: &NodeSet) -> Mask {
        if self.is_dense() {
            return nodes.low_word() & self.all();
        }
        nodes.iter().filter_map(|node| self.position(node)).fold(0, |mask, position| mask | 1 << position)
    }

    /// Is every id its own position, as on almost every machine?
    fn is_dense(&self) -> bool {
        self.ids.last().is_none_or(|last| last.0 as usize + 1 == self.ids.len())
    }

    /// The nodes of a mask.
    pub fn nodes(&self, mask: Mask) -> NodeSet {
        positions(mask).filter_map(|position| self.ids.get(position)).copied().collect()
    }
}

/// Makes masks of sets that may contain nodes outside the index.
///
/// Two hints are equal if they name the same nodes, including nodes that the machine does not have: each of
/// those gets its own position after the last node of the index.
#[derive(Debug, Clone)]
pub struct HintMasks<'a> {
    nodes: &'a NodeIndex,
    /// Nodes outside the index, in order of their positions after its last.
    others: Vec<NodeId>,
}

impl<'a> HintMasks<'a> {
    /// Masks over these nodes.
    pub const fn new(nodes: &'a NodeIndex) -> Self {
        Self { nodes, others: Vec::new() }
    }

    /// The mask of a set; none after more than [`NodeIndex::LARGEST`] different nodes.
    pub fn mask(&mut self, nodes: &NodeSet) -> Option<Mask> {
        nodes.iter().try_fold(0, |mask, node| Some(mask | 1 << self.position(node)?))
    }

    fn position(&mut self, node: NodeId) -> Option<usize> {
        if let Some(position) = self.nodes.position(node) {
            return Some(position);
        }
        let known = self.others.iter().position(|other| *other == node);
        let position = self.nodes.len() + known.unwrap_or(self.others.len());
        if position >= NodeIndex::LARGEST {
            return None;
        }
        if known.is_none() {
            self.others.push(node);
        }
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    #[test]
    fn positions_follow_the_ids_however_sparse() {
        let nodes = NodeIndex::new(&set("0,5,33,700"));
        assert_eq!(nodes.mask(&set("5,700")), 0b1010);
        assert_eq!(nodes.nodes(0b1010), set("5,700"));
        assert_eq!(nodes.all(), 0b1111);
        assert_eq!(NodeIndex::new(&set("0-99")).all(), Mask::MAX);
    }

    #[test]
    fn a_node_that_the_machine_does_not_have_makes_a_different_mask() {
        let nodes = NodeIndex::new(&set("2-3"));
        let mut masks = HintMasks::new(&nodes);
        assert_eq!(masks.mask(&set("")), Some(0));
        assert_eq!(masks.mask(&set("2-3")), Some(0b11));
        assert_eq!(masks.mask(&set("2,9")), Some(0b101));
        assert_eq!(masks.mask(&set("0,2,9")), Some(0b1101));
        assert_eq!(masks.mask(&set("2,9")), Some(0b101));
        assert_eq!(masks.mask(&set("100-161")), None);
    }
}

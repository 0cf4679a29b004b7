//! Targets of pages when the allowed memory nodes of a process change.
//!
//! Problem: a write of `cpuset.mems`, and `migratepages(8)`, name nodes to leave and nodes to go to, and read
//! as if pages could use room anywhere in the second set. They cannot: each left node has one target, by its
//! position, and the kernel allocates on that target alone. Pages without room there stay behind, and so do
//! those of the nodes that come after. Idea: compute the kernel's own rule (`do_migrate_pages`,
//! mm/mempolicy.c, with `bitmap_bit_remap`, lib/bitmap.c), so that advice and tests know the moves before a
//! command runs.
//!
//! Invariants: each left node has one pair, in the order in which the kernel moves them. Cost: the square of
//! the number of nodes at worst.

use std::collections::BTreeMap;

use numa_topology::{id::NodeId, set::NodeSet};

/// The node with the position in `to` that `node` has in `from`; a node outside of `from` stays. Positions
/// wrap around if `to` has fewer nodes.
pub(crate) fn remapped(node: NodeId, from: &NodeSet, to: &NodeSet) -> NodeId {
    let position = from.iter().take_while(|other| *other < node).count();
    let place = position.checked_rem(to.len()).filter(|_| from.contains(node));
    place.and_then(|place| to.iter().nth(place)).unwrap_or(node)
}

/// Nodes that pages leave when the allowed memory nodes `from` become `to`, each with its one target, in the
/// kernel's order: pages first go to nodes that no pages have yet to leave.
///
/// A node in both sets keeps its pages, unless the sets are of one size: then all positions move.
pub(crate) fn moves(from: &NodeSet, to: &NodeSet) -> Vec<(NodeId, NodeId)> {
    let all_move = from.len() == to.len();
    let leaves = from.iter().filter(|node| all_move || !to.contains(*node));
    let pairs: BTreeMap<NodeId, NodeId> =
        leaves.map(|node| (node, remapped(node, from, to))).filter(|(node, target)| node != target).collect();
    let mut waiting = from.clone();
    let mut order = Vec::new();
    loop {
        let mut left = pairs.iter().filter(|(node, _)| waiting.contains(**node)).peekable();
        if left.peek().is_none() {
            return order;
        }
        let mut chosen = None;
        for (node, target) in left {
            chosen = Some((*node, *target));
            if !waiting.contains(*target) {
                break;
            }
        }
        if let Some((node, target)) = chosen {
            waiting.remove(node);
            order.push((node, target));
        }
    }
}

/// Pages and room of each node while commands are carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodePages {
    /// Bytes by node that a migration moves.
    pub(crate) held: BTreeMap<NodeId, u64>,
    /// Available bytes of each node; a missing node has unknown room, and is sent nothing.
    pub(crate) room: BTreeMap<NodeId, u64>,
    /// Bytes that came to each node.
    pub(crate) came: BTreeMap<NodeId, u64>,
}

impl NodePages {
    /// Applies the kernel's moves for a change of the nodes `from` to `to`. Ends like the kernel at the first
    /// node without enough room on its target: as many pages as fit are moved.
    pub(crate) fn migrate(&mut self, from: &NodeSet, to: &NodeSet) {
        for (node, target) in moves(from, to) {
            if !self.bring(node, target) {
                return;
            }
        }
    }

    /// Available bytes of a node.
    pub(crate) fn room_on(&self, node: NodeId) -> u64 {
        self.room.get(&node).copied().unwrap_or(0)
    }

    /// Moves the pages of one node to another one as far as that has room; returns true if all of them went.
    fn bring(&mut self, node: NodeId, target: NodeId) -> bool {
        let held = self.held.get(&node).copied().unwrap_or(0);
        let part = held.min(self.room_on(target));
        let add = |of: &mut BTreeMap<NodeId, u64>, node: NodeId| {
            let bytes = of.entry(node).or_default();
            *bytes = bytes.saturating_add(part);
        };
        if part > 0 {
            self.held.insert(node, held - part);
            add(&mut self.held, target);
            add(&mut self.came, target);
            self.room.entry(target).and_modify(|room| *room -= part);
            self.room.entry(node).and_modify(|room| *room = room.saturating_add(part));
        }
        part == held
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    #[test]
    fn each_node_has_the_target_that_the_kernel_gives_it() {
        for (from, to, expected) in [
            ("0", "1", "0>1"),
            // The removed nodes, by their position in the old set, modulo the size of the new one.
            ("1", "0,2", "1>0"),
            ("0-2", "0,2", "1>2"),
            ("0-3", "0,2", "3>2 1>2"),
            ("0-3", "2-3", "1>3 0>2"),
            ("0-1,4", "0,4", "1>4"),
            // The examples of the kernel's own comment.
            ("2-4", "3-5", "4>5 3>4 2>3"),
            ("0-7", "3-5", "7>4 6>3 2>5 1>4 0>3"),
            // Sets of one size move all positions; a set with more nodes moves nothing.
            ("0-1", "1-2", "1>2 0>1"),
            ("1-2", "0-1", "1>0 2>1"),
            ("0-1", "0,2", "1>2"),
            ("0", "0-1", ""),
            ("0-1", "0-1", ""),
            ("2", "0-1", "2>0"),
            ("0-1", "", ""),
            ("", "0", ""),
        ] {
            let found = moves(&set(from), &set(to));
            let found: Vec<_> = found.iter().map(|(node, target)| format!("{node}>{target}")).collect();
            assert_eq!(found.join(" "), expected, "{from} becomes {to}");
        }
    }

    #[test]
    fn pages_without_room_stay_and_so_do_those_that_come_after() {
        let nodes = |bytes: [u64; 4]| (0..).map(NodeId).zip(bytes).collect::<BTreeMap<_, _>>();
        let mut pages =
            NodePages { held: nodes([0, 12, 0, 5]), room: nodes([3, 0, 60, 0]), ..NodePages::default() };
        pages.migrate(&set("1,3"), &set("0,2,4"));
        assert_eq!((pages.held, pages.room), (nodes([3, 9, 0, 5]), nodes([0, 3, 60, 0])));
        let mut pages =
            NodePages { held: nodes([0, 12, 0, 5]), room: nodes([3, 0, 60, 0]), ..NodePages::default() };
        pages.migrate(&set("0-1,3"), &set("0,2"));
        assert_eq!(pages.held, nodes([3, 0, 12, 2]), "3 goes to 0 by position, where 3 have room");
        assert_eq!(pages.came, [(NodeId(0), 3), (NodeId(2), 12)].into());
    }

    fn sets() -> impl Strategy<Value = NodeSet> {
        prop::collection::vec(0u32..12, 1..9).prop_map(|nodes| nodes.into_iter().map(NodeId).collect())
    }

    proptest! {
        /// Every left node goes to one node of the new set; one more allowed node moves nothing.
        #[test]
        fn what_is_left_goes_to_the_new_set(from in sets(), to in sets()) {
            let moves = moves(&from, &to);
            let left: NodeSet = moves.iter().map(|(node, _)| *node).collect();
            prop_assert_eq!(left.len(), moves.len());
            prop_assert!(from.difference(&to).is_subset(&left));
            prop_assert!(moves.iter().all(|(node, target)| to.contains(*target) && from.contains(*node)));
            prop_assert!(super::moves(&from, &from.union(&to)).is_empty());
        }
    }
}

//! Pages in parts: which of them go to which node, as far as each has room.
//!
//! Problem: the pages of one node may have room on several others together and on none of them alone. Idea:
//! each amount goes to the node with most room, as much of it as that has room for, and what is left to the
//! next one.
//!
//! Invariants: all parts of a source add up to no more than what it holds, and to all of it where what has no
//! room goes all the same; no part is smaller than [`LEAST_PART`], unless it is all that is left. A part that
//! is all that is left has no limit, so that what comes meanwhile goes along.

use std::{cmp::Reverse, collections::BTreeMap};

use numa_topology::{id::NodeId, set::NodeSet};

/// A part of a node's pages that is smaller than this is not worth a step of its own.
pub(super) const LEAST_PART: u64 = 1 << 20;

/// What nodes have room for.
pub(super) trait HasRoom {
    /// Bytes that may come to this node.
    fn room_on(&self, node: NodeId) -> u64;

    /// Takes so many of them.
    fn take(&mut self, node: NodeId, bytes: u64);
}

impl HasRoom for BTreeMap<NodeId, u64> {
    fn room_on(&self, node: NodeId) -> u64 {
        self.get(&node).copied().unwrap_or(0)
    }

    fn take(&mut self, node: NodeId, bytes: u64) {
        self.entry(node).and_modify(|room| *room = room.saturating_sub(bytes));
    }
}

/// What becomes of pages without room on any node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutRoom {
    /// They stay where they are.
    Stay,
    /// They go to the roomiest node: the kernel moves them in any case, and its choice knows nothing of room.
    Go,
}

/// Pages that go to one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PagePart {
    /// Where they go.
    pub(super) to: NodeId,
    /// The nodes that they are on, with their bytes.
    pub(super) from: BTreeMap<NodeId, u64>,
    /// So many bytes at most, where that node has no room for all.
    pub(super) most_bytes: Option<u64>,
}

/// Where the pages of these nodes go, with so many bytes on each, in this order; parts come first. Nodes of
/// `to` take them.
pub(super) fn split(
    sources: impl IntoIterator<Item = (NodeId, u64)>,
    to: &NodeSet,
    room: &mut impl HasRoom,
    without_room: WithoutRoom,
) -> Vec<PagePart> {
    let mut parts = Vec::new();
    let mut whole = BTreeMap::<NodeId, BTreeMap<NodeId, u64>>::new();
    for (from, mut left) in sources {
        let roomiest = |room: &_| {
            let each = to.iter().map(|node| (node, HasRoom::room_on(room, node)));
            each.max_by_key(|(node, room)| (*room, Reverse(*node)))
        };
        while let Some((target, has)) = roomiest(room) {
            let part = has.min(left);
            let is_small = part < left && part < LEAST_PART;
            if is_small && without_room == WithoutRoom::Stay {
                break;
            }
            room.take(target, part);
            if part == left || is_small {
                whole.entry(target).or_default().insert(from, left);
                break;
            }
            left -= part;
            parts.push(PagePart { to: target, from: [(from, part)].into(), most_bytes: Some(part) });
        }
    }
    let whole = whole.into_iter().map(|(to, from)| PagePart { to, from, most_bytes: None });
    parts.into_iter().chain(whole).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_has_no_room_stays_or_goes_to_the_roomiest_node() {
        let gib = |node, gib: u64| (NodeId(node), gib << 30);
        for (without_room, expected) in
            [(WithoutRoom::Stay, vec!["2>1 5", "2>0 3"]), (WithoutRoom::Go, vec!["2>1 5", "2>0 3", "2>0"])]
        {
            let mut room: BTreeMap<_, _> = [gib(0, 3), gib(1, 5)].into();
            let parts = split([gib(2, 10)], &"0-1".parse().unwrap(), &mut room, without_room);
            let found = parts.into_iter().map(|part| {
                let from: NodeSet = part.from.into_keys().collect();
                let most = part.most_bytes.map_or_else(String::new, |most| format!(" {}", most >> 30));
                format!("{from}>{}{most}", part.to)
            });
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }

    proptest! {
        #[test]
        fn no_node_is_sent_more_than_its_room_and_no_room_is_left_unused(
            sources in prop::collection::btree_map((4u32..8).prop_map(NodeId), 1u64..20, 0..4),
            room in prop::collection::btree_map((0u32..4).prop_map(NodeId), 0u64..20, 1..4),
        ) {
            let bytes = |map: &BTreeMap<NodeId, u64>| -> BTreeMap<NodeId, u64> {
                map.iter().map(|(node, part)| (*node, part * (LEAST_PART / 2))).collect()
            };
            let (sources, begins) = (bytes(&sources), bytes(&room));
            let to: NodeSet = begins.keys().copied().collect();
            let mut room = begins.clone();
            let parts = split(sources.clone(), &to, &mut room, WithoutRoom::Stay);
            let mut sent = BTreeMap::<NodeId, u64>::new();
            let mut gone = BTreeMap::<NodeId, u64>::new();
            for part in &parts {
                for (from, bytes) in &part.from {
                    *sent.entry(part.to).or_default() += bytes;
                    *gone.entry(*from).or_default() += bytes;
                }
            }
            for (node, has) in &begins {
                prop_assert_eq!(has - sent.get(node).copied().unwrap_or(0), room[node]);
            }
            let mut room = begins;
            for (node, held) in &sources {
                let left = held - gone.get(node).copied().unwrap_or(0);
                prop_assert!(left == 0 || sent_all(&room, &sent, left));
            }
            // What goes all the same is all of it.
            let parts = split(sources.clone(), &to, &mut room, WithoutRoom::Go);
            let all: u64 = parts.iter().flat_map(|part| part.from.values()).sum();
            prop_assert_eq!(all, sources.values().sum::<u64>());
        }
    }

    /// Has no node room for a part of what is left?
    fn sent_all(room: &BTreeMap<NodeId, u64>, sent: &BTreeMap<NodeId, u64>, left: u64) -> bool {
        room.iter().all(|(node, has)| has - sent.get(node).copied().unwrap_or(0) < left.min(LEAST_PART))
    }
}

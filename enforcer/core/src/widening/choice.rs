//! Choice of the memory node to add.
//!
//! Problem: the kernel falls back by distance and knows no policy. Given DRAM and PMEM at once it fills the
//! PMEM near the CPUs before the DRAM of the other socket. Idea: groups of nodes, of which one step takes
//! from one only. First the tier that the workload has, then faster ones, then slower ones if they are
//! allowed. Within a group the node with room for the growth of 2 s comes first, then the nearest, then the
//! one with most memory available.
//!
//! Invariants: a step adds one tier; an added node is allowed, has more than a tenth of its memory left, and
//! is no memory of GPUs; a movable-only node is never the only kind of memory (`pipe(2)` fails there).
//!
//! Cost: the groups are made once; a choice looks at each option once and allocates nothing.

use std::cmp::{Ordering, Reverse};

use super::NodeRoom;
use crate::turn::FallbackNode;
use numa_topology::{MemoryRank, Node, Topology, id::NodeId, set::NodeSet};

/// Seconds of growth that a node should have room for.
const AHEAD: u64 = 2;
/// A node needs more than one part in so many of its memory.
const PARTS: u64 = 10;

/// Nodes that may be added to `home` for a workload on CPUs of `cpu_nodes`, by group, then distance, then id.
/// Only nodes of `allowed`; slower ones only if `lower_tiers`.
pub fn spares(
    machine: &Topology,
    home: &NodeSet,
    cpu_nodes: &NodeSet,
    allowed: &NodeSet,
    lower_tiers: bool,
) -> Vec<FallbackNode> {
    let of_home = || machine.nodes.iter().filter(|node| home.contains(node.id));
    // The slowest tier that it has: another node of that tier is no step down.
    let Some(own) = of_home().filter_map(|node| machine.memory_rank(node.id)).max() else {
        return Vec::new();
    };
    let is_normal = |node: &Node| !node.is_movable_only();
    let has_normal = of_home().any(is_normal);
    let may = |node: &&Node| {
        allowed.contains(node.id)
            && !home.contains(node.id)
            && node.takes_ordinary_memory()
            && (has_normal || is_normal(node))
    };
    let mut ranked: Vec<(MemoryRank, FallbackNode)> = machine
        .nodes
        .iter()
        .filter(may)
        .filter_map(|node| Some((machine.memory_rank(node.id)?, node)))
        .filter(|(rank, _)| lower_tiers || *rank <= own)
        .map(|(rank, node)| {
            let far = cpu_nodes.iter().filter_map(|cpus| machine.distance(cpus, node.id)).min();
            (rank, FallbackNode { node: node.id, group: 0, distance: far.unwrap_or(u32::MAX) })
        })
        .collect();
    // Its own tier, then faster ones from the nearest on, then slower ones from the nearest on.
    ranked.sort_by_key(|(rank, spare)| {
        let step = match rank.cmp(&own) {
            Ordering::Equal => (0, None, None),
            Ordering::Less => (1, Some(Reverse(*rank)), None),
            Ordering::Greater => (2, None, Some(*rank)),
        };
        (step, spare.distance, spare.node)
    });
    let (mut group, mut before) = (0, own);
    for (rank, spare) in &mut ranked {
        group += u32::from(*rank != before);
        before = *rank;
        spare.group = group;
    }
    ranked.into_iter().map(|(_, spare)| spare).collect()
}

/// Has the node room for further pages?
pub(super) fn has_room(room: &NodeRoom) -> bool {
    room.available() > room.managed / PARTS
}

/// `mems` with the added nodes, while it fills up by `rate` bytes per second: one node, or with `all` every
/// node of a tier that has room. `None` if no node can be added.
pub(super) fn added(
    mems: &NodeSet,
    spares: &[FallbackNode],
    rate: u64,
    all: bool,
    room: &dyn Fn(NodeId) -> Option<NodeRoom>,
) -> Option<NodeSet> {
    let growth = rate.saturating_mul(AHEAD);
    // Order: does the room suffice for the growth, and how much is available.
    let fit = |spare: &FallbackNode| {
        let room = room(spare.node).filter(|_| !mems.contains(spare.node))?;
        let (least, available) = (room.managed / PARTS, room.available());
        has_room(&room).then_some((available.saturating_sub(growth) > least, available))
    };
    let group = spares.iter().filter(|spare| fit(spare).is_some()).map(|spare| spare.group).min()?;
    let of_group = spares.iter().filter(|spare| spare.group == group);
    let fitting = of_group.filter_map(|spare| Some((spare, fit(spare)?)));
    let mut wider = mems.clone();
    if all {
        for (spare, _) in fitting {
            wider.insert(spare.node);
        }
    } else {
        let best = fitting.min_by_key(|(spare, (lasts, available))| {
            (!lasts, spare.distance, u64::MAX - available, spare.node)
        });
        wider.insert(best?.0.node);
    }
    Some(wider)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use numa_topology::{MemoryKind, MemoryTier, synth::Machine};

    const GIB: u64 = 1 << 30;

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    /// Two sockets with DRAM (0, 1) and slower memory beside each (2, 3), at the distances of real PMEM.
    fn tiered() -> Topology {
        let mut machine = Machine::new().sockets(4).build();
        let rows = [[10, 21, 17, 28], [21, 10, 28, 17], [17, 28, 10, 28], [28, 17, 28, 10]];
        machine.distances = rows.map(|row| row.map(Some).to_vec()).to_vec();
        for node in machine.nodes.iter_mut().filter(|node| node.id.0 > 1) {
            node.kind = MemoryKind::Pmem;
        }
        machine.memory_tiers =
            [(4, "0-1"), (22, "2-3")].map(|(id, nodes)| MemoryTier { id, nodes: set(nodes) }).to_vec();
        machine
    }

    fn rooms(gib: [u64; 4]) -> BTreeMap<NodeId, NodeRoom> {
        let room = |gib: u64| NodeRoom { free: gib * GIB, managed: 100 * GIB, ..NodeRoom::default() };
        (0..).map(NodeId).zip(gib.map(room)).collect()
    }

    fn became(home: &str, allowed: &str, lower: bool, gib: [u64; 4], rate: u64, all: bool) -> String {
        let (machine, home) = (tiered(), set(home));
        let spares = spares(&machine, &home, &set("0"), &set(allowed), lower);
        let rooms = rooms(gib);
        let wider = added(&home, &spares, rate * GIB, all, &|node| rooms.get(&node).copied());
        wider.unwrap_or(home).to_string()
    }

    #[test]
    fn the_same_tier_comes_first_and_a_slower_one_only_where_it_may() {
        for (home, allowed, lower, gib, rate, all, expected) in [
            ("0", "0-3", true, [0, 50, 50, 50], 0, false, "0-1"),
            ("0", "0-3", true, [0, 10, 50, 50], 0, false, "0,2"),
            ("0", "0-3", false, [0, 10, 50, 50], 0, false, "0"),
            ("0", "0-1", true, [0, 10, 50, 50], 0, false, "0"),
            ("0", "0,3", true, [0, 50, 50, 50], 0, false, "0,3"),
            // Node 1 has no room for the growth of two seconds, but is the best there is.
            ("0", "0-3", true, [0, 50, 90, 90], 30, false, "0-1"),
            ("0", "0-3", true, [0, 50, 50, 50], 0, true, "0-1"),
            ("0", "0-3", true, [0, 10, 50, 50], 0, true, "0,2-3"),
            ("0-1", "0-3", true, [0, 0, 50, 50], 0, false, "0-2"),
            // From slow memory it goes to the other slow node, then up.
            ("2", "0-3", false, [50, 50, 0, 50], 0, false, "2-3"),
            ("2", "0-3", false, [50, 50, 0, 5], 0, false, "0,2"),
            ("0", "0-3", true, [0, 0, 0, 0], 0, true, "0"),
        ] {
            assert_eq!(became(home, allowed, lower, gib, rate, all), expected, "{home} of {allowed} {gib:?}");
        }
    }

    #[test]
    fn a_movable_node_needs_another_beside_it_and_a_gpu_is_none() {
        let mut machine = tiered();
        machine.nodes[3].normal_memory = Some(false);
        machine.nodes[2].kind = MemoryKind::Gpu;
        let of = |machine: &Topology, home: &str| -> NodeSet {
            spares(machine, &set(home), &set("0"), &set("0-3"), true).iter().map(FallbackNode::node).collect()
        };
        assert_eq!(of(&machine, "0").to_string(), "1,3");
        machine.nodes[1].normal_memory = Some(false);
        assert_eq!(of(&machine, "3").to_string(), "0");
        assert!(of(&machine, "9").is_empty(), "its memory is unknown");
    }

    proptest! {
        #[test]
        fn a_step_adds_what_is_allowed_of_one_tier(
            home in 1u32..16, allowed in 0u32..16, cpus in 0u32..4, lower: bool, all: bool,
            gib in proptest::array::uniform4(0u64..100), rate in 0u64..100,
        ) {
            let of = |bits: u32| (0..4).filter(|id| bits & (1 << id) != 0).map(NodeId).collect::<NodeSet>();
            let (machine, home, allowed) = (tiered(), of(home), of(allowed));
            let spares = spares(&machine, &home, &of(1 << cpus), &allowed, lower);
            let rooms = rooms(gib);
            let wider = added(&home, &spares, rate * GIB, all, &|node| rooms.get(&node).copied());
            let Some(wider) = wider else { return Ok(()) };
            let new = wider.difference(&home);
            prop_assert!(home.is_subset(&wider) && !new.is_empty() && new.is_subset(&allowed));
            prop_assert!(all || new.len() <= 1);
            let tiers = [of(0b0011), of(0b1100)].map(|tier| !tier.is_disjoint(&new));
            prop_assert!(tiers != [true, true], "two tiers in one step: {}", new);
            let has_slow = !home.is_disjoint(&of(0b1100));
            prop_assert!(lower || has_slow || !tiers[1]);
            for node in new.iter() {
                prop_assert!(rooms[&node].available() > rooms[&node].managed / 10);
            }
        }
    }
}

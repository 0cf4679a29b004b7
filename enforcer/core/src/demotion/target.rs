//! Targets of flows: down to the nearest node of a slower tier, up to the nearest of a faster one.
//!
//! The tiers are the kernel's (`memory_tiering`). If it has none, or one for all memory, the kind of memory
//! decides what is slow. No target lies outside of the workload's cpuset.

use numa_topology::{MemoryKind, Topology, id::NodeId, set::NodeSet};

/// Rank of a node's memory: 0 is the fastest. `None` for a node without ordinary memory: nothing moves out of
/// a GPU or into it.
pub fn rank(topology: &Topology, id: NodeId) -> Option<usize> {
    let node = topology.node(id).filter(|node| node.takes_ordinary_memory())?;
    if topology.memory_tiers.len() > 1 {
        return topology.memory_tier(id);
    }
    match node.kind {
        MemoryKind::Cxl => Some(1),
        MemoryKind::Pmem => Some(2),
        // Memory of an unknown kind is not taken for slow.
        _ => Some(0),
    }
}

/// The nearest of the `allowed` nodes that is slower than `from`; of several as near, the fastest.
pub fn below(topology: &Topology, from: NodeId, allowed: &NodeSet) -> Option<NodeId> {
    let own = rank(topology, from)?;
    let slower =
        allowed.iter().filter_map(|node| Some((node, rank(topology, node).filter(|rank| *rank > own)?)));
    let near = |to| topology.distance(from, to).unwrap_or(u32::MAX);
    slower.min_by_key(|(node, rank)| (near(*node), *rank, *node)).map(|(node, _)| node)
}

/// The nearest to `home` of the `allowed` nodes that is faster than `from`; of several as near, the fastest.
pub fn above(topology: &Topology, from: NodeId, allowed: &NodeSet, home: &NodeSet) -> Option<NodeId> {
    let own = rank(topology, from)?;
    let faster =
        allowed.iter().filter_map(|node| Some((node, rank(topology, node).filter(|rank| *rank < own)?)));
    let near = |to| {
        let from_home = home.iter().filter_map(|one| topology.distance(one, to)).min();
        from_home.or_else(|| topology.distance(from, to)).unwrap_or(u32::MAX)
    };
    faster.min_by_key(|(node, rank)| (near(*node), *rank, *node)).map(|(node, _)| node)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use numa_topology::{MemoryTier, synth::Machine};

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    /// Nodes 0 and 1 with CPUs, each with slow memory beside it: 2 and 3.
    fn machine() -> Topology {
        let machine = Machine::new().sockets(2).cores(2);
        let machine = machine.memory_only(NodeId(2), 64, MemoryKind::Pmem, NodeId(0));
        machine.memory_only(NodeId(3), 64, MemoryKind::Pmem, NodeId(1)).build()
    }

    #[test]
    fn down_goes_to_the_nearest_slower_node_that_is_allowed() {
        let machine = machine();
        for (from, allowed, expected) in [
            (0, "0-3", Some(2)),
            (1, "0-3", Some(3)),
            (0, "0-1,3", Some(3)),
            (0, "0-1", None),
            (2, "0-3", None),
            (9, "0-3", None),
        ] {
            let expected = expected.map(NodeId);
            assert_eq!(below(&machine, NodeId(from), &set(allowed)), expected, "{from} {allowed}");
        }
    }

    #[test]
    fn up_goes_to_the_workloads_cpus() {
        let machine = machine();
        assert_eq!(above(&machine, NodeId(2), &set("0-3"), &set("1")), Some(NodeId(1)));
        assert_eq!(above(&machine, NodeId(2), &set("0,2"), &set("1")), Some(NodeId(0)));
        assert_eq!(above(&machine, NodeId(2), &set("0-3"), &set("")), Some(NodeId(0)));
        assert_eq!(above(&machine, NodeId(2), &set("2-3"), &set("0")), None);
        assert_eq!(above(&machine, NodeId(0), &set("0-3"), &set("0")), None);
    }

    #[test]
    fn the_kernels_tiers_win_over_the_kinds() {
        let mut machine = machine();
        let tier = |id, nodes: &str| MemoryTier { id, nodes: set(nodes) };
        machine.memory_tiers = vec![tier(4, "0-1,3"), tier(22, "2")];
        assert_eq!(below(&machine, NodeId(1), &set("0-3")), Some(NodeId(2)));
        assert_eq!(above(&machine, NodeId(3), &set("0-3"), &set("0")), None);
        // One tier for all says nothing.
        machine.memory_tiers = vec![tier(4, "0-3")];
        assert_eq!(below(&machine, NodeId(1), &set("0-3")), Some(NodeId(3)));
    }

    proptest! {
        #[test]
        fn a_target_is_allowed_and_slower_or_faster(from in 0u32..5, words in 0u64..16, home in 0u64..16) {
            let machine = machine();
            let (from, allowed) = (NodeId(from), NodeSet::from_words(&[words]));
            let rank = |node| rank(&machine, node);
            if let Some(to) = below(&machine, from, &allowed) {
                prop_assert!(allowed.contains(to) && rank(to) > rank(from));
            }
            if let Some(to) = above(&machine, from, &allowed, &NodeSet::from_words(&[home])) {
                prop_assert!(allowed.contains(to) && rank(to) < rank(from));
            }
        }
    }
}

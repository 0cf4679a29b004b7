//! Machines for properties.

use numa_topology::{MemoryKind, Topology, id::NodeId, synth::Machine};
use proptest::prelude::*;

/// Small machines of many shapes: sockets of several nodes, nodes without memory, slower memory beside some.
pub(crate) fn any_machine() -> impl Strategy<Value = Topology> {
    let shape = (1u32..=3, 1u32..=2, 1u32..=3, 1u32..=2);
    let slow = proptest::collection::vec((0u32..6, prop::sample::select(vec![1u64, 4]), any::<bool>()), 0..3);
    let memless = proptest::collection::vec(prop::bool::weighted(0.2), 6);
    (shape, 1u64..=8, slow, memless).prop_map(|((sockets, nodes, cores, threads), gib, slow, memless)| {
        let machine = Machine::new().sockets(sockets).nodes_per_socket(nodes).cores(cores).threads(threads);
        let mut machine = machine.memory_gib(gib);
        for (index, (beside, gib, cxl)) in (0u32..).zip(slow) {
            let kind = if cxl { MemoryKind::Cxl } else { MemoryKind::Pmem };
            let beside = NodeId(beside % (sockets * nodes));
            machine = machine.memory_only(NodeId(20 + index), gib, kind, beside);
        }
        let mut machine = machine.build();
        let several = machine.nodes.len() > 1;
        for (node, memless) in machine.nodes.iter_mut().skip(1).zip(memless) {
            if memless && several && !node.cpus.is_empty() {
                (node.mem_total_bytes, node.mem_free_bytes) = (Some(0), Some(0));
                node.kind = MemoryKind::None;
            }
        }
        machine
    })
}

//! The machine: memory of its NUMA nodes, and how far they are from one another.

use std::collections::BTreeMap;

use enforcer_core::{audit::Audit, sample::NodeSample};
use numa_topology::id::NodeId;

use super::{
    family::{Family, FamilyOf, Scrape},
    number::to_f64,
    values,
};

const NODE_MEMORY_TOTAL: FamilyOf<1> =
    Family::gauge("numa_node_memory_total_bytes", ["numa_node"], "Memory of the NUMA node.");
const NODE_MEMORY_FREE: FamilyOf<1> =
    Family::gauge("numa_node_memory_free_bytes", ["numa_node"], "Free memory of the NUMA node.");
const NODE_ALLOCATIONS: FamilyOf<2> = Family::counter("numa_node_page_allocations_total",
    ["numa_node", "kind"],
    "Pages that were allocated on the NUMA node, by the kernel's own kinds: hit is as wanted, miss was wanted elsewhere, \
     foreign was wanted here and is elsewhere, local and other by the CPU of the task.",
)
.of(&[values::ALLOCATION]);
const DISTANCE: FamilyOf<2> = Family::gauge(
    "numa_distance",
    ["src_numa", "dst_numa"],
    "Distance between NUMA nodes as the firmware tells it; 10 is local.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[&NODE_MEMORY_TOTAL, &NODE_MEMORY_FREE, &NODE_ALLOCATIONS, &DISTANCE];

/// Names of `numastat`, and as labels.
const NUMASTAT: [(&str, &str); 6] = [
    ("numa_hit", "hit"),
    ("numa_miss", "miss"),
    ("numa_foreign", "foreign"),
    ("interleave_hit", "interleave"),
    ("local_node", "local"),
    ("other_node", "other"),
];

pub(super) fn put(audit: &Audit, nodes: &BTreeMap<NodeId, NodeSample>, scrape: &mut Scrape) {
    for (node, sample) in nodes {
        let node = node.to_string();
        scrape.put(&NODE_MEMORY_TOTAL, &[&node], sample.mem_total_bytes.map(to_f64));
        scrape.put(&NODE_MEMORY_FREE, &[&node], sample.mem_free_bytes.map(to_f64));
        for (file, kind) in NUMASTAT {
            let pages = sample.counters.get(file).copied();
            scrape.put(&NODE_ALLOCATIONS, &[&node, kind], pages.map(to_f64));
        }
    }
    let machine = &audit.topology;
    for from in &machine.nodes {
        for to in &machine.nodes {
            let labels = [from.id.to_string(), to.id.to_string()];
            scrape.put(&DISTANCE, &[&labels[0], &labels[1]], machine.distance(from.id, to.id).map(f64::from));
        }
    }
}

//! CPUs, memory nodes and caches of a machine in their published form.

use numa_topology::{Topology, set::CpuSet};

use super::fingerprint;
use crate::cluster::state::{InexactSource, KubeletProfile, MachineNode, MachineState};

/// The machine, and what about it makes predictions inexact.
pub(super) fn machine_state(
    machine: &Topology,
    kubelet: &KubeletProfile,
) -> (MachineState, Vec<InexactSource>) {
    let mut inexact = Vec::new();
    let mut add = |reason: &str| inexact.push(InexactSource::new("machine", reason));
    let nodes = machine.nodes.iter().map(|node| MachineNode {
        id: node.id,
        cpus: node.cpus.clone(),
        kind: node.kind,
    });
    let rows = machine.distances.iter().map(|row| row.iter().copied().collect::<Option<Vec<u32>>>());
    let distances = rows.collect::<Option<Vec<_>>>().unwrap_or_default();
    let is_on = |options: &std::collections::BTreeMap<String, String>, option: &str| {
        options.get(option).is_some_and(|value| value == "true")
    };
    if distances.is_empty() && is_on(&kubelet.topology_options, "prefer-closest-numa-nodes") {
        add("the kernel has no distances of NUMA nodes");
    }
    // The kubelet's uncore cache is an L3 cache.
    let caches: Vec<CpuSet> =
        machine.llcs.iter().filter(|cache| cache.level == 3).map(|cache| cache.cpus.clone()).collect();
    if caches.is_empty() && is_on(&kubelet.cpu_options, "prefer-align-cpus-by-uncorecache") {
        add("it has no L3 cache");
    }
    if machine.cpus.iter().any(|cpu| cpu.node.is_none()) {
        add("a CPU belongs to no NUMA node");
    }
    let mut cores: Vec<CpuSet> = Vec::new();
    let mut seen = CpuSet::new();
    for cpu in &machine.cpus {
        if !seen.contains(cpu.id) {
            seen.extend(&cpu.siblings);
            cores.push(cpu.siblings.clone());
        }
    }
    let mut state = MachineState {
        hash: String::new(),
        nodes: nodes.collect(),
        distances,
        sockets: machine.packages.iter().map(|package| package.cpus.clone()).collect(),
        cores,
        caches,
    };
    state.hash = fingerprint::of_json(&state);
    (state, inexact)
}

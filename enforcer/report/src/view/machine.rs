//! The machine in words that several faces show: what it has, which nodes are near which, what is set aside.

use std::collections::BTreeMap;

use numa_topology::{Node, Package, Topology, id::NodeId, set::NodeSet};

use crate::units;

/// `2 packages, 3 NUMA nodes, 64 CPUs, 128 GiB of memory`.
pub(crate) fn headline(machine: &Topology) -> String {
    let memory: Option<u64> =
        machine.nodes.iter().filter_map(|node| node.mem_total_bytes).reduce(u64::saturating_add);
    let packages = (machine.packages.is_empty() || named_packages(machine).next().is_some())
        .then(|| units::count(named_packages(machine).count(), "package"));
    let mut parts: Vec<String> = packages.into_iter().collect();
    parts.push(units::count(machine.nodes.len(), "NUMA node"));
    parts.push(units::count(machine.cpus.len(), "CPU"));
    parts.extend(memory.map(|memory| format!("{} of memory", units::bytes(memory))));
    parts.join(", ")
}

/// Packages that the kernel has an id for; where it has none, nodes are the top of the tree.
pub(crate) fn named_packages(machine: &Topology) -> impl Iterator<Item = &Package> {
    machine.packages.iter().filter(|package| package.id >= 0)
}

/// The CPU nodes that a node without CPUs is near to; empty where there are none, and for a node with CPUs.
pub(crate) fn nearest(machine: &Topology, node: &Node) -> String {
    let near = machine.near_cpu_nodes(node.id);
    if node.cpus.is_empty() && !near.is_empty() { units::nodes(&near) } else { String::new() }
}

/// Distances of each node in a line; a run of nodes that all stand alike has one line.
pub(crate) fn distance_groups(machine: &Topology) -> Vec<String> {
    let of = |node: &Node| Some(format!("node {}: {}", node.id, distance_group(machine, node.id)?));
    let runs = machine.nodes.chunk_by(|one, next| stand_alike(machine, one, next));
    runs.flat_map(|run| match run {
        [first, _, .., last] => run_of_nodes(machine, first, last).into_iter().collect(),
        few => few.iter().filter_map(of).collect::<Vec<_>>(),
    })
    .collect()
}

/// Have two nodes without CPUs the same distances to all others?
fn stand_alike(machine: &Topology, one: &Node, other: &Node) -> bool {
    let between = |from: &Node, to: &Node| machine.distance(from.id, to.id);
    let others = || machine.nodes.iter().filter(|node| ![one.id, other.id].contains(&node.id));
    one.cpus.is_empty()
        && other.cpus.is_empty()
        && between(one, one) == between(other, other)
        && between(one, other) == between(other, one)
        && others().all(|to| between(one, to) == between(other, to))
}

/// `nodes 4-31: each 10 to itself; 80 to 0-1; 254 to 4-31`: nodes that all stand alike, from the first to
/// the last.
fn run_of_nodes(machine: &Topology, first: &Node, last: &Node) -> Option<String> {
    let ids: NodeSet =
        machine.nodes.iter().map(|node| node.id).filter(|id| (first.id..=last.id).contains(id)).collect();
    let itself = machine.distance(first.id, first.id)?;
    let mut groups: BTreeMap<u32, NodeSet> = BTreeMap::new();
    for to in machine.nodes.iter().filter(|to| to.id != first.id) {
        groups.entry(machine.distance(first.id, to.id)?).or_default().insert(to.id);
    }
    if let Some(inner) = groups.values_mut().find(|group| group.contains(last.id)) {
        inner.insert(first.id);
    }
    Some(format!("nodes {ids}: each {itself} to itself; {}", in_words(&groups)))
}

/// `10 to 0; 21 to 1-3`.
fn in_words(groups: &BTreeMap<u32, NodeSet>) -> String {
    groups.iter().map(|(distance, nodes)| format!("{distance} to {nodes}")).collect::<Vec<_>>().join("; ")
}

/// Nodes by their distance from one: `10 to 0; 21 to 1-3`; nothing where none is known.
pub(crate) fn distance_group(machine: &Topology, from: NodeId) -> Option<String> {
    let place = machine.nodes.iter().position(|node| node.id == from)?;
    let mut groups: BTreeMap<u32, NodeSet> = BTreeMap::new();
    for (to, distance) in machine.nodes.iter().zip(machine.distances.get(place)?) {
        if let Some(distance) = distance {
            groups.entry(*distance).or_default().insert(to.id);
        }
    }
    (!groups.is_empty()).then(|| in_words(&groups))
}

/// CPUs that ordinary work does not run on, by why.
pub(crate) fn set_aside(machine: &Topology) -> Vec<String> {
    [
        ("offline", &machine.offline_cpus),
        ("isolated", &machine.isolated_cpus),
        ("without a tick (nohz_full)", &machine.nohz_full_cpus),
    ]
    .iter()
    .filter(|(_, cpus)| !cpus.is_empty())
    .map(|(what, cpus)| format!("{what}: {cpus}"))
    .collect()
}

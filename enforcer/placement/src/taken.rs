//! Holders of a resource that is short, for the text of a rejection.
//!
//! Problem: "0 of 2 cpu on node 1" states what is left and not where the rest is. Idea: one place explains
//! shortages for both engines. Every CPU of the considered nodes is offline, not available, isolated,
//! reserved, exclusive to a holder, kept shared, or not allowed to the container. For devices and memory the
//! holders are named, those with the most first.
//!
//! Invariant: each CPU is reported once, with the first of these causes. Cost: O(holders) set operations,
//! only for rejections.

use std::cmp::Reverse;

use super::{Allocations, ContainerRequest, Inventory, MemoryResource, PodRequest, Rejection, Shortage};
use crate::words;
use numa_topology::set::{CpuSet, NodeSet};

/// Maximum number of holders named for one resource; the rest is counted.
const NAMED: usize = 3;

/// Adds the holders of what is short to a rejection; the pod itself has nothing yet.
pub fn explained(
    inventory: &Inventory,
    allocations: &Allocations,
    pod: &PodRequest,
    mut rejection: Rejection,
) -> Rejection {
    let by_name = |name: &String| pod.containers.iter().find(|container| container.name == *name);
    let container = rejection.container.as_ref().and_then(by_name).or_else(|| pod.containers.first());
    let others: Vec<_> = allocations.iter().filter(|(holder, _)| *holder.pod() != pod.name).collect();
    let unsized_nodes = inventory.unsized_nodes();
    for short in rejection.shortages.iter().filter(|short| short.wanted > short.available) {
        let told = if short.resource == "cpu" {
            let mut own: Vec<(u8, String, &CpuSet)> = others
                .iter()
                .filter(|(_, grant)| !grant.exclusive.is_empty())
                .map(|(holder, grant)| {
                    let (rank, words) = holder.in_words(grant);
                    (rank, words, &grant.exclusive)
                })
                .collect();
            own.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
            cpus(inventory, container, &own, &short.nodes)
        } else {
            let amount = |grant: &super::Grant| match grant.devices.get(&short.resource) {
                Some(ids) => u64::try_from(ids.len()).unwrap_or(u64::MAX),
                None => promised(grant, short),
            };
            let mut held: Vec<_> = others.iter().map(|(holder, grant)| (amount(grant), *holder)).collect();
            held.retain(|(amount, _)| *amount > 0);
            held.sort_by_key(|(amount, holder)| (Reverse(*amount), *holder));
            let named = names(held.into_iter().map(|(_, holder)| holder.of_memory_in_words()).collect());
            let mut told: Vec<String> = named.map(|named| format!("held by {named}")).into_iter().collect();
            let unknown = short.nodes.intersection(&unsized_nodes);
            if short.resource == MemoryResource::Memory.to_string() && !unknown.is_empty() {
                told.push(format!("how much {} can hold is not known", words::nodes(&unknown)));
            }
            told
        };
        if !told.is_empty() {
            rejection.wording.taken.push((short.resource.clone(), short.nodes.clone(), told.join(", ")));
        }
    }
    if unsized_nodes.is_empty() { rejection } else { rejection.without_sizes_of(unsized_nodes) }
}

fn promised(grant: &super::Grant, short: &Shortage) -> u64 {
    let claims = grant.memory.iter().filter(|claim| claim.resource.to_string() == short.resource);
    claims
        .filter(|claim| !claim.zone.is_disjoint(&short.nodes))
        .fold(0u64, |sum, claim| sum.saturating_add(claim.bytes))
}

/// Explains what the CPUs of these nodes are used for.
fn cpus(
    inventory: &Inventory,
    container: Option<&ContainerRequest>,
    own: &[(u8, String, &CpuSet)],
    nodes: &NodeSet,
) -> Vec<String> {
    let machine = &inventory.machine;
    let isolated = container.is_some_and(ContainerRequest::wants_isolated);
    let mut left = machine.cpus_of(nodes);
    let mut told = Vec::new();
    let mut tell = |left: &mut CpuSet, cpus: &CpuSet, why: &str| {
        let these = left.intersection(cpus);
        if !these.is_empty() {
            told.push(format!("{} {these} {why}", if these.len() == 1 { "CPU" } else { "CPUs" }));
            *left = left.difference(&these);
        }
    };
    let unavailable = left.difference(&inventory.allowed_cpus);
    tell(&mut left, &unavailable, "not in placement.available.cpus");
    let mut named = 0;
    let mut more: Vec<&CpuSet> = Vec::new();
    for (_, words, cpus) in own {
        if cpus.is_disjoint(&left) {
            continue;
        }
        named += 1;
        if named > NAMED { more.push(cpus) } else { tell(&mut left, cpus, words) }
    }
    let number = words::count(more.len(), "other");
    let more = more.into_iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    tell(&mut left, &more, &format!("exclusive to {number}"));
    if isolated {
        let ordinary = left.difference(&inventory.isolated_cpus);
        tell(&mut left, &ordinary, "not isolated");
    } else {
        tell(&mut left, &inventory.isolated_cpus, "isolated by isolcpus=");
    }
    tell(&mut left, &inventory.reserved_cpus, "reserved");
    let refused = container.and_then(|container| container.allowed_cpus.as_ref());
    let refused = refused.map_or_else(CpuSet::new, |allowed| left.difference(allowed));
    tell(&mut left, &refused, "not allowed by the cgroups above it or its entry");
    if let Some(kept) = inventory.kept_shared().filter(|_| !isolated) {
        tell(&mut left, &kept, "kept for those that share CPUs");
    }
    let offline = &machine.offline_cpus;
    if !offline.is_empty() {
        told.push(format!("{} {offline} offline", if offline.len() == 1 { "CPU" } else { "CPUs" }));
    }
    told
}

/// The first of these names, and the number of others.
fn names(mut all: Vec<String>) -> Option<String> {
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    if more > 0 {
        all.push(words::count(more, "other"));
    }
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::{
        samples::{GIB, Host, container, devices, pod, policy},
        settings::{PlacementSettings, TopologyPolicy},
    };
    use numa_topology::synth::Machine;

    #[test]
    fn rejection_names_what_took_the_cpus() {
        let machine = Machine::new().sockets(2).cores(6).threads(1).isolated("8-9").offline("11").build();
        let hints = policy(TopologyPolicy::SingleNumaNode);
        let settings: PlacementSettings =
            toml::from_str("reserved.cpus = 'cpuset:6'\navailable.cpus = 'exclude-cpuset:7'").unwrap();
        let settings = PlacementSettings { hints, ..settings };
        let mut host = Host::with(machine, vec![], settings);
        host.admit(&pod("db", vec![container("main", 5000, GIB)])).unwrap();
        let mut asks = container("main", 4000, GIB);
        let text = host.admit(&pod("web", vec![asks.clone()])).unwrap_err().to_string();
        let took = "1 of 4 cpu on node 0 (CPUs 0-4 exclusive to default/db/main, CPU 11 offline)";
        assert!(text.contains(took), "{text}");
        asks.allowed_nodes = Some("1".parse().unwrap());
        asks.allowed_cpus = Some("0-9".parse().unwrap());
        let text = host.admit(&pod("web", vec![asks])).unwrap_err().to_string();
        let took = "CPU 7 not in placement.available.cpus, CPUs 8-9 isolated by isolcpus=, CPU 6 reserved, \
                    CPU 10 not allowed by the cgroups above it or its entry, CPU 11 offline";
        assert!(text.contains("0 of 4 cpu on node 1") && text.contains(took), "{text}");
        assert!(!text.contains("nodes 0-1"), "only node 1 was asked for: {text}");
    }

    #[test]
    fn rejection_names_the_holders_of_devices() {
        let machine = Machine::new().sockets(2).build();
        let settings = PlacementSettings {
            hints: policy(TopologyPolicy::SingleNumaNode),
            ..PlacementSettings::default()
        };
        let mut host = Host::with(machine, devices("v.com/gpu", &["0"]), settings);
        host.admit(&pod("one", vec![container("main", 1000, GIB).device("v.com/gpu", 1)])).unwrap();
        let asks = pod("two", vec![container("main", 1000, GIB).device("v.com/gpu", 1)]);
        let text = host.admit(&asks).unwrap_err().to_string();
        assert!(text.contains("held by default/one/main"), "{text}");
    }

    #[test]
    fn memory_that_is_not_known_is_called_unknown_and_not_nothing() {
        use crate::settings::PlacementEngine;
        for (engine, unknown, says, never) in [
            (PlacementEngine::Hints, [true, true], "unknown of 1024 MiB memory on node", " 0 MiB"),
            (PlacementEngine::Pools, [true, true], "unknown of 1024 MiB memory on nodes 0-1", " 0 MiB"),
            (PlacementEngine::Hints, [false, true], "how much node 1 can hold is not known", " 0 GiB memory"),
            (PlacementEngine::Pools, [false, true], "how much node 1 can hold is not known", " 0 GiB memory"),
        ] {
            let mut machine = Machine::new().sockets(2).build();
            for (node, unknown) in machine.nodes.iter_mut().zip(unknown) {
                node.mem_total_bytes = node.mem_total_bytes.filter(|_| !unknown);
            }
            let settings = PlacementSettings { engine, ..PlacementSettings::default() };
            let gib = if unknown[0] { GIB } else { 20 * GIB };
            let mut host = Host::with(machine, vec![], settings);
            let text = host.admit(&pod("db", vec![container("main", 1000, gib)])).unwrap_err().to_string();
            assert!(text.contains(says) && !text.contains(never), "{engine:?}: {text}");
            assert!(!unknown[0] || text.contains("at most") && text.contains("unknown memory on"), "{text}");
        }
    }
}

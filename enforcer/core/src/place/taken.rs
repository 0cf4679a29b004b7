//! What took a resource that is short, for the text of a rejection.
//!
//! Problem: "0 of 2 cpu on node 1" says what is left and not where the rest went. Idea: a shortage is
//! explained in one place, for both engines: every CPU of the nodes that were looked at is offline, not
//! available, isolated, reserved, somebody's own, kept shared, or not allowed to the container; of devices
//! and memory the holders are named, those with the most first.
//!
//! Invariant: a CPU is told once, with the first of these causes. Cost: O(holders) set operations, and only
//! where something is refused.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Allocations, ContainerRequest, Holder, Inventory, PodRequest, Rejection, Shortage};
use crate::{
    set::{CpuSet, NodeSet},
    words,
};

/// Holders that are named for one resource; the rest is counted.
const NAMED: usize = 3;

/// The rejection with what took what is short, as far as others have it: the pod itself has nothing yet.
pub(super) fn explained(
    inventory: &Inventory,
    allocations: &Allocations,
    pod: &PodRequest,
    mut rejection: Rejection,
) -> Rejection {
    let by_name = |name: &String| pod.containers.iter().find(|container| container.name == *name);
    let container = rejection.container.as_ref().and_then(by_name).or_else(|| pod.containers.first());
    let others: Vec<_> = allocations.iter().filter(|(holder, _)| *holder.pod() != pod.name).collect();
    for short in rejection.shortages.iter().filter(|short| short.wanted > short.available) {
        let told = if short.resource == "cpu" {
            let mut own = BTreeMap::<&Holder, &CpuSet>::new();
            own.extend(others.iter().map(|(holder, grant)| (*holder, &grant.exclusive)));
            cpus(inventory, container, &own, &short.nodes)
        } else {
            let amount = |grant: &super::Grant| match grant.devices.get(&short.resource) {
                Some(ids) => u64::try_from(ids.len()).unwrap_or(u64::MAX),
                None => promised(grant, short),
            };
            let mut held: Vec<_> = others.iter().map(|(holder, grant)| (amount(grant), *holder)).collect();
            held.retain(|(amount, _)| *amount > 0);
            held.sort_by_key(|(amount, holder)| (Reverse(*amount), *holder));
            let named = names(held.into_iter().map(|(_, holder)| holder.to_string()).collect());
            named.map(|named| format!("held by {named}")).into_iter().collect()
        };
        if !told.is_empty() {
            rejection.wording.taken.push((short.resource.clone(), short.nodes.clone(), told.join(", ")));
        }
    }
    rejection
}

fn promised(grant: &super::Grant, short: &Shortage) -> u64 {
    let claims = grant.memory.iter().filter(|claim| claim.resource.to_string() == short.resource);
    claims
        .filter(|claim| !claim.zone.is_disjoint(&short.nodes))
        .fold(0u64, |sum, claim| sum.saturating_add(claim.bytes))
}

/// Where the CPUs of these nodes are.
fn cpus(
    inventory: &Inventory,
    container: Option<&ContainerRequest>,
    own: &BTreeMap<&Holder, &CpuSet>,
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
    let of_others: Vec<(&Holder, &CpuSet)> =
        own.iter().map(|(holder, cpus)| (*holder, *cpus)).filter(|(_, cpus)| !cpus.is_empty()).collect();
    let near: Vec<_> = of_others.iter().filter(|(_, cpus)| !cpus.is_disjoint(&left)).collect();
    for (holder, cpus) in near.iter().take(NAMED) {
        tell(&mut left, cpus, &format!("exclusive to {holder}"));
    }
    let more = near.iter().skip(NAMED).fold(CpuSet::new(), |more, (_, cpus)| more.union(cpus));
    let number = words::count(near.len().saturating_sub(NAMED), "other");
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

/// The first of these, and how many more there are.
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
        place::samples::{GIB, Host, container, devices, pod, policy},
        policy::placement::{PlacementSettings, TopologyPolicy},
        topology::synth::Machine,
    };

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
    fn rejection_names_those_who_hold_devices() {
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
}

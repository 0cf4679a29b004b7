//! `NodeResourceTopology` v1alpha2: amounts by NUMA node, as scheduler-plugins reads them.
//!
//! What its readers need, and what follows for each field:
//! - Zones are all NUMA nodes in order of id from 0 on, also nodes without CPUs or memory, because scores
//!   mix ids and positions. A machine with a gap in its ids has no object.
//! - `capacity` is what the hardware has, `allocatable` what pods may get of it, `available` what no
//!   container has of its own. Containers without exclusive CPUs or pinned memory take nothing from a
//!   zone.
//! - Only what the kubelet aligns has an amount: CPUs under a static CPU manager, memory and huge pages
//!   under a static memory manager (as in NFD's topology updater), and devices near a node. A device that
//!   is near several nodes counts in the zone of each.
//! - The fingerprint is that of the pods in the kubelet's own list, read with the amounts. Its method is
//!   `with-exclusive-resources` where CPU and memory manager are static: pods without resources of their
//!   own change nothing in the object, and both sides then count the same pods. Elsewhere it is `all`:
//!   the scheduler counts each Guaranteed pod as exclusive for its memory, which such a kubelet pins for
//!   none.
//! - `topologyPolicies` is deprecated and overruled by the attributes, so it is absent.

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::set::{CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

use super::{ExportFault, ExportInputs};
use crate::cluster::{
    observed::{ListedPodResources, MemoryAmounts, pods_fingerprint},
    state::{DeviceSupply, KubeletProfile, MachineNode, MachineState},
};

/// Type of a zone that is a NUMA node.
const NUMA_ZONE: &str = "Node";
const FINGERPRINT: &str = "nodeTopologyPodsFingerprint";
const FINGERPRINT_METHOD: &str = "nodeTopologyPodsFingerprintMethod";
const ALL_PODS: &str = "all";
const EXCLUSIVE_PODS: &str = "with-exclusive-resources";
/// Option of the topology manager that has an attribute of its own.
const MOST_NODES: &str = "max-allowable-numa-nodes";

/// The object beside `apiVersion`, `kind` and `metadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResourceTopology {
    /// Settings of the topology manager, and the fingerprint of the pods.
    pub attributes: Vec<NrtAttribute>,
    /// NUMA nodes in order of id.
    pub zones: Vec<NrtZone>,
}

/// A named value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NrtAttribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NrtZone {
    /// `node-0`.
    pub name: String,
    /// `Node`.
    #[serde(rename = "type")]
    pub zone_type: String,
    /// Distances to all zones, this one included; absent if the kernel has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<NrtCost>,
    /// Amounts in order of name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<NrtResource>,
}

/// Distance to a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NrtCost {
    /// Name of the zone.
    pub name: String,
    /// SLIT distance.
    pub value: i64,
}

/// Amounts of one resource in a zone: CPUs, bytes or devices, as whole numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NrtResource {
    /// `cpu`, `memory`, `hugepages-2Mi`, `vendor.com/gpu`.
    pub name: String,
    /// All of it.
    pub capacity: String,
    /// What pods may get.
    pub allocatable: String,
    /// What no container has of its own.
    pub available: String,
}

/// Amounts by resource.
type ZoneAmounts = BTreeMap<String, NrtResource>;

/// The object of a node.
///
/// # Errors
/// If the sources contradict each other, or the ids of NUMA nodes have a gap.
pub fn node_resource_topology(inputs: ExportInputs<'_>) -> Result<NodeResourceTopology, ExportFault> {
    inputs.check()?;
    let nodes = &inputs.state.machine.nodes;
    if let Some((_, node)) = (0..).zip(nodes).find(|(position, node)| node.id.0 != *position) {
        return Err(ExportFault::SparseNodes { next: node.id.0 });
    }
    let free = inputs.free_exclusive_cpus();
    let kinds: BTreeSet<&str> = inputs.state.memory.iter().map(|supply| supply.resource.as_str()).collect();
    let zones = nodes.iter().enumerate().map(|(position, node)| {
        let mut amounts = ZoneAmounts::new();
        if let Some(free) = &free {
            add(&mut amounts, "cpu", cpu_amounts(node, &inputs.state.reserved_cpus, free));
        }
        for kind in &kinds {
            if let Some(memory) = memory_amounts(inputs, node, kind) {
                add(&mut amounts, kind, memory);
            }
        }
        for supply in &inputs.state.devices {
            if let Some(devices) = device_amounts(inputs, supply, node) {
                add(&mut amounts, &supply.resource, devices);
            }
        }
        NrtZone {
            name: zone_name(node),
            zone_type: NUMA_ZONE.to_owned(),
            costs: costs(&inputs.state.machine, position),
            resources: amounts.into_values().collect(),
        }
    });
    Ok(NodeResourceTopology { zones: zones.collect(), attributes: attributes(inputs) })
}

/// Adds capacity, allocatable and available.
fn add(amounts: &mut ZoneAmounts, name: &str, [capacity, allocatable, available]: [u64; 3]) {
    let text = |amount: u64| amount.to_string();
    let resource = NrtResource {
        name: name.to_owned(),
        capacity: text(capacity),
        allocatable: text(allocatable),
        available: text(available),
    };
    amounts.insert(name.to_owned(), resource);
}

fn zone_name(node: &MachineNode) -> String {
    format!("node-{}", node.id)
}

fn costs(machine: &MachineState, position: usize) -> Vec<NrtCost> {
    let row = machine.distances.get(position).into_iter().flatten();
    let costs = machine.nodes.iter().zip(row);
    costs.map(|(to, distance)| NrtCost { name: zone_name(to), value: i64::from(*distance) }).collect()
}

fn cpu_amounts(node: &MachineNode, reserved: &CpuSet, free: &CpuSet) -> [u64; 3] {
    let sets = [node.cpus.len(), node.cpus.difference(reserved).len(), node.cpus.intersection(free).len()];
    sets.map(|count| count as u64)
}

/// Amounts of one kind of memory; `None` if the kubelet has no account of the node.
fn memory_amounts(inputs: ExportInputs<'_>, node: &MachineNode, kind: &str) -> Option<[u64; 3]> {
    let account = inputs.observation.memory.content()?.nodes.get(&node.id)?;
    let MemoryAmounts { total, allocatable, free, .. } =
        account.amounts.get(kind).copied().unwrap_or_default();
    // Of memory on several nodes it is not known how much is where.
    let ended = inputs.ended_containers().flat_map(|container| &container.memory);
    let ended = ended.filter(|held| held.resource == kind && held.nodes == NodeSet::from_iter([node.id]));
    let freed: u64 = ended.map(|held| held.bytes.unsigned_abs()).sum();
    Some([total, allocatable, free.saturating_add(freed).min(allocatable)])
}

/// Numbers of devices near a node; `None` if there are none.
fn device_amounts(inputs: ExportInputs<'_>, supply: &DeviceSupply, node: &MachineNode) -> Option<[u64; 3]> {
    let near: Vec<_> = supply.by_nodes.iter().filter(|group| group.nodes.contains(node.id)).collect();
    let sum = |of: fn(&crate::cluster::state::DeviceCount) -> u32| {
        near.iter().map(|group| u64::from(of(group))).sum::<u64>()
    };
    let held = inputs.ended_containers().filter_map(|container| container.devices.get(&supply.resource));
    let freed =
        held.flat_map(|by_nodes| near.iter().filter_map(|group| by_nodes.get(&group.nodes.to_string())));
    let freed: u64 = freed.map(|count| u64::from(*count)).sum();
    let healthy = sum(|of| of.healthy);
    (!near.is_empty()).then(|| [sum(|of| of.total), healthy, (sum(|of| of.free) + freed).min(healthy)])
}

fn attributes(inputs: ExportInputs<'_>) -> Vec<NrtAttribute> {
    let kubelet = &inputs.state.kubelet;
    let mut attributes = Vec::new();
    let mut add = |name: &str, value: &str| {
        attributes.push(NrtAttribute { name: name.to_owned(), value: value.to_owned() });
    };
    // Readers know these spellings alone.
    let policy = kubelet.topology_policy.as_str();
    if ["none", "best-effort", "restricted", "single-numa-node"].contains(&policy) {
        add("topologyManagerPolicy", policy);
    }
    let scope = kubelet.topology_scope.as_str();
    if ["container", "pod"].contains(&scope) {
        add("topologyManagerScope", scope);
    }
    for (option, value) in topology_options(kubelet) {
        add(&option, value);
    }
    if let Some(pods) = inputs.observation.listed.content() {
        let (pods, method) = fingerprinted_pods(inputs, pods);
        let names = pods.iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
        add(FINGERPRINT, &pods_fingerprint(names));
        add(FINGERPRINT_METHOD, method);
    }
    attributes
}

/// Options of the topology manager by name of the attribute.
fn topology_options(kubelet: &KubeletProfile) -> impl Iterator<Item = (String, &str)> {
    kubelet.topology_options.iter().filter_map(|(option, value)| {
        if option == MOST_NODES {
            // Readers divide by it.
            let is_number = value.parse::<u32>().is_ok_and(|most| most > 0);
            return is_number.then(|| ("topologyManagerMaxNUMANodes".to_owned(), value.as_str()));
        }
        let words = option.split('-').map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map(|first| first.to_ascii_uppercase())
                .into_iter()
                .chain(letters)
                .collect::<String>()
        });
        Some((format!("topologyManagerOption{}", words.collect::<String>()), value.as_str()))
    })
}

/// The pods that the fingerprint covers, and the name of the method.
fn fingerprinted_pods<'a>(
    inputs: ExportInputs<'_>,
    pods: &'a [ListedPodResources],
) -> (Vec<&'a ListedPodResources>, &'static str) {
    let memory = inputs.observation.memory.content();
    let is_pinned = memory.is_some_and(|memory| memory.policy.eq_ignore_ascii_case("static"));
    if is_pinned && inputs.cpu_policy() == Some("static") {
        (pods.iter().filter(|pod| has_exclusive_resources(pod)).collect(), EXCLUSIVE_PODS)
    } else {
        (pods.iter().collect(), ALL_PODS)
    }
}

/// Has some container exclusive CPUs, or memory or devices with NUMA nodes?
fn has_exclusive_resources(pod: &ListedPodResources) -> bool {
    pod.containers.iter().any(|container| {
        let has_device = container.devices.values().flat_map(BTreeMap::values).any(|near| !near.is_empty());
        let has_memory = container.memory.iter().any(|block| !block.nodes.is_empty());
        !container.cpus.is_empty() || has_memory || has_device
    })
}

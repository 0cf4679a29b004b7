//! What the pods of a published state hold, as grants.
//!
//! A state counts devices by their nodes and has no ids, so the engine gets made-up ids: position of the
//! group and number in it. Devices that are neither free nor held by a pod are unhealthy or held by a pod
//! that the state does not name; a holder of its own has them.

use std::collections::BTreeMap;

use numa_placement::{
    Allocations, CpuClass, Grant, Holder, Inventory, MemoryClaim, MemoryResource, PodName,
    external::{CLAIMED, OTHERS},
};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use super::StateFault;
use crate::cluster::state::{HeldContainer, HeldMemory, HeldPod, InexactSource, NodeState};

/// Grants of a state, and amounts that do not add up.
pub(super) struct HeldGrants {
    pub(super) allocations: Allocations,
    pub(super) differences: Vec<InexactSource>,
}

/// Made-up id of a device: ascending in the order of the groups.
pub(super) fn device_id(group: usize, number: u32) -> String {
    format!("{group:02}-{number:05}")
}

/// The grants of all pods.
///
/// # Errors
/// If pods hold CPUs that they cannot hold, or name nodes or resources that the machine does not have.
pub(super) fn allocations(state: &NodeState, inventory: &Inventory) -> Result<HeldGrants, StateFault> {
    let mut allocations = Allocations::default();
    let mut devices = DeviceCounters::new(state);
    let mut differences = Vec::new();
    let mut taken = CpuSet::new();
    let online = inventory.layout.all();
    for (at, pod) in state.pods.iter().enumerate() {
        if state.pods.iter().take(at).any(|other| other.uid == pod.uid) {
            return Err(StateFault::Twice { field: "pods", value: pod.uid.clone() });
        }
        let name = name_of(pod);
        let mut own = CpuSet::new();
        for container in &pod.containers {
            for (wrong, why) in [
                (container.cpus.difference(&online), "not online"),
                (container.cpus.intersection(&state.reserved_cpus), "reserved"),
                (container.cpus.intersection(&taken), "another pod's"),
            ] {
                if !wrong.is_empty() {
                    return Err(StateFault::HeldCpus { pod: name.to_string(), cpus: wrong, why });
                }
            }
            own.extend(&container.cpus);
            let holder = Holder::new(name.clone(), container.name.clone());
            if allocations.get(&holder).is_some() {
                return Err(StateFault::Twice { field: "pods.containers", value: holder.to_string() });
            }
            let grant = Grant { devices: devices.take(container), ..grant_of(container, inventory)? };
            allocations.give(holder, grant);
        }
        taken.extend(&own);
    }
    let rest = devices.rest();
    if !rest.is_empty() {
        let holder = Holder::new(PodName::new(CLAIMED, "devices that are not free"), String::new());
        allocations.give(holder, Grant { devices: rest, ..Grant::default() });
    }
    if devices.is_short {
        let reason = "pods hold more devices of a resource than the node has near those nodes";
        differences.push(InexactSource::new("devices", reason));
    }
    let shared = online.difference(&taken);
    if !state.shared_cpus.is_empty() && state.shared_cpus.union(&state.reserved_cpus) != shared {
        let reason = format!("CPUs {} are shared, and no pod holds CPUs {shared}", state.shared_cpus);
        differences.push(InexactSource::new("sharedCpus", reason));
    }
    differences.extend(memory_differences(state));
    Ok(HeldGrants { allocations, differences })
}

fn name_of(pod: &HeldPod) -> PodName {
    let name = if pod.name.is_empty() {
        PodName::new(CLAIMED, pod.uid.clone())
    } else {
        PodName::new(pod.namespace.clone(), pod.name.clone())
    };
    name.with_uid(pod.uid.clone())
}

fn grant_of(container: &HeldContainer, inventory: &Inventory) -> Result<Grant, StateFault> {
    let nodes: NodeSet = inventory.nodes.iter().map(|node| node.id).collect();
    let mut memory = Vec::new();
    for held in &container.memory {
        memory.push(claim_of(held, &nodes)?);
    }
    Ok(Grant {
        engine: OTHERS,
        policy: OTHERS,
        class: if container.cpus.is_empty() { CpuClass::Shared } else { CpuClass::Exclusive },
        exclusive: container.cpus.clone(),
        mems: memory.iter().fold(NodeSet::new(), |nodes, claim| nodes.union(&claim.zone)),
        memory,
        reason: "as the node published".into(),
        ..Grant::default()
    })
}

fn claim_of(held: &HeldMemory, nodes: &NodeSet) -> Result<MemoryClaim, StateFault> {
    if held.nodes.is_empty() || !held.nodes.is_subset(nodes) {
        let value = held.nodes.to_string();
        return Err(StateFault::Unknown { field: "pods.containers.memory.nodes", value });
    }
    let Some(resource) = MemoryResource::of_name(&held.resource) else {
        let value = held.resource.clone();
        return Err(StateFault::Unknown { field: "pods.containers.memory.resource", value });
    };
    let bytes = held.bytes.cast_unsigned();
    let by_node = held.nodes.first().map(|node| (node, bytes)).into_iter().collect();
    Ok(MemoryClaim { resource, zone: held.nodes.clone(), bytes, by_node })
}

/// Free and held bytes of each kind must be what pods may get; the kubelet's groups of nodes must be those of
/// the pods' memory.
fn memory_differences(state: &NodeState) -> Vec<InexactSource> {
    let mut found = Vec::new();
    let mut held = BTreeMap::<&str, i128>::new();
    let mut groups = BTreeMap::<NodeId, NodeSet>::new();
    for memory in state.pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.memory) {
        *held.entry(&memory.resource).or_default() += i128::from(memory.bytes);
        for node in memory.nodes.iter() {
            groups.entry(node).or_default().extend(&memory.nodes);
        }
    }
    let mut missing = BTreeMap::<&str, i128>::new();
    for supply in &state.memory {
        let gone = i128::from(supply.allocatable) - i128::from(supply.free);
        *missing.entry(&supply.resource).or_default() += gone;
        let own = NodeSet::from_iter([supply.node]);
        let group = groups.get(&supply.node).unwrap_or(&own);
        if supply.assignments > 0 && !supply.cells.is_empty() && supply.cells != *group {
            let reason = format!(
                "node {} is allocated with nodes {}, the memory of pods is on {group}",
                supply.node, supply.cells
            );
            found.push(InexactSource::new("memory.cells", reason));
        }
    }
    for (resource, gone) in missing {
        let held = held.get(resource).copied().unwrap_or(0);
        if gone != held {
            let reason = format!("pods hold {held} bytes of {resource}, and {gone} are not free");
            found.push(InexactSource::new("memory.free", reason));
        }
    }
    found.truncate(4);
    found
}

/// Devices of each group that have no holder yet.
struct DeviceCounters<'a> {
    state: &'a NodeState,
    /// Next number of each group, by position of the resource and of the group.
    next: Vec<Vec<u32>>,
    /// Whether a pod holds more than there are.
    is_short: bool,
}

impl<'a> DeviceCounters<'a> {
    fn new(state: &'a NodeState) -> Self {
        let next = state.devices.iter().map(|supply| vec![0; supply.by_nodes.len()]).collect();
        Self { state, next, is_short: false }
    }

    /// Ids for the devices of a container.
    fn take(&mut self, container: &HeldContainer) -> BTreeMap<String, Vec<String>> {
        let mut taken = BTreeMap::<String, Vec<String>>::new();
        for (resource, by_nodes) in &container.devices {
            for (nodes, count) in by_nodes {
                let ids = self.ids(resource, nodes, *count);
                taken.entry(resource.clone()).or_default().extend(ids);
            }
        }
        taken
    }

    fn ids(&mut self, resource: &str, nodes: &str, count: u32) -> Vec<String> {
        let found = self.state.devices.iter().position(|supply| supply.resource == resource);
        let group = found.and_then(|at| {
            let groups = &self.state.devices[at].by_nodes;
            Some((at, groups.iter().position(|group| group.nodes.to_string() == nodes)?))
        });
        let Some((at, group)) = group else {
            self.is_short = true;
            return Vec::new();
        };
        let total = self.state.devices[at].by_nodes[group].total;
        let next = &mut self.next[at][group];
        let first = *next;
        *next = first.saturating_add(count).min(total);
        self.is_short |= first.saturating_add(count) > total;
        (first..*next).map(|number| device_id(group, number)).collect()
    }

    /// Ids of the devices that no pod holds and that are not free.
    fn rest(&mut self) -> BTreeMap<String, Vec<String>> {
        let mut rest = BTreeMap::new();
        for (supply, next) in self.state.devices.iter().zip(&self.next) {
            let groups = supply.by_nodes.iter().zip(next).enumerate();
            let ids = groups.flat_map(|(group, (count, next))| {
                let end = count.total.saturating_sub(count.free.min(count.total));
                (*next..end.max(*next)).map(move |number| device_id(group, number))
            });
            let ids: Vec<String> = ids.collect();
            if !ids.is_empty() {
                rest.insert(supply.resource.clone(), ids);
            }
        }
        rest
    }
}

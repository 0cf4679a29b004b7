//! Devices of a node: which are healthy, free or held, and which the kubelet still counts although they are
//! not offered.
//!
//! Problem: the kubelet's hints count unhealthy devices too, for the preferred width and for the nodes that
//! have devices, and tells nowhere where they are: the socket and the checkpoint have the healthy ones,
//! `status.capacity` their number. Idea: [`RememberedDevices`] keeps the nodes of every device that was once
//! healthy, and the number in the API says whether that is all of them.
//!
//! Invariant: devices are exact only if their number is that of the API.

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::{Topology, set::NodeSet};

use super::{DeviceAssignments, DeviceNodes, NodeObservation, contradictions::SOCKET};
use crate::cluster::state::{DeviceCount, DeviceSupply, InexactSource, KubeletProfile};

/// Name of the number of devices in reasons.
const CAPACITY: &str = "api:node.status.capacity";
/// Most remembered devices of a resource; more than any machine has.
const MOST_REMEMBERED: usize = 4_096;

/// Devices that the running kubelet has once offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RememberedDevices {
    /// Last known start of the kubelet that offered them.
    started_at: Option<i64>,
    known: DeviceNodes,
}

impl RememberedDevices {
    /// Adds what the kubelet offers now. Devices of another kubelet process are forgotten, and so are those
    /// that the API no longer counts. An unknown start is not another one.
    pub fn update(
        &mut self,
        kubelet: &KubeletProfile,
        observation: &NodeObservation,
        capacity: Option<&BTreeMap<String, u64>>,
    ) {
        if let Some(started_at) = kubelet.started_at {
            if self.started_at.is_some_and(|known| known != started_at) {
                self.known.clear();
            }
            self.started_at = Some(started_at);
        }
        let Some(offered) = observation.offered.content() else { return };
        for (resource, units) in &offered.devices {
            let known = self.known.entry(resource.clone()).or_default();
            known.extend(units.iter().map(|(id, nodes)| (id.clone(), nodes.clone())));
        }
        self.known.retain(|resource, known| {
            let healthy = offered.devices.get(resource);
            let count = healthy.map_or(0, BTreeMap::len);
            let all = capacity.map(|of| of.get(resource).copied().unwrap_or(0));
            if all.is_some_and(|all| all <= count as u64) || known.len() > MOST_REMEMBERED {
                known.retain(|id, _| healthy.is_some_and(|healthy| healthy.contains_key(id)));
            }
            !known.is_empty()
        });
    }
}

/// Devices of a node in its published form.
#[derive(Debug, Default)]
pub(super) struct CountedDevices {
    /// Supplies in order of resource.
    pub(super) supplies: Vec<DeviceSupply>,
    /// Why they are inexact.
    pub(super) inexact: Vec<InexactSource>,
    /// Nodes of every device.
    nodes: DeviceNodes,
}

impl CountedDevices {
    /// Counts the devices of a node.
    pub(super) fn new(
        machine: &Topology,
        observation: &NodeObservation,
        remembered: &RememberedDevices,
        capacity: Option<&BTreeMap<String, u64>>,
    ) -> Self {
        let none = DeviceNodes::new();
        let offered = observation.offered.content().map_or(&none, |offered| &offered.devices);
        let grants = observation.devices.content();
        let nodes = all_devices(offered, grants, &remembered.known, capacity);
        let mut counted = Self { nodes, ..Self::default() };
        counted.drop_unknown_nodes(machine);
        let held = held_ids(grants);
        for (resource, units) in &counted.nodes {
            let mut groups = BTreeMap::<&NodeSet, DeviceCount>::new();
            for (id, nodes) in units {
                let is_healthy = offered.get(resource).is_some_and(|healthy| healthy.contains_key(id));
                let is_free = is_healthy && !held.contains(&(resource.as_str(), id.as_str()));
                let group = groups.entry(nodes).or_default();
                group.total += 1;
                group.healthy += u32::from(is_healthy);
                group.free += u32::from(is_free);
            }
            let by_nodes =
                groups.into_iter().map(|(nodes, count)| DeviceCount { nodes: nodes.clone(), ..count });
            counted.supplies.push(DeviceSupply { resource: resource.clone(), by_nodes: by_nodes.collect() });
        }
        counted.compare(capacity);
        counted
    }

    /// Nodes of devices that the machine has. The kubelet drops the others.
    fn drop_unknown_nodes(&mut self, machine: &Topology) {
        let known: NodeSet = machine.nodes.iter().map(|node| node.id).collect();
        for (resource, units) in &mut self.nodes {
            let mut is_lost = false;
            for nodes in units.values_mut().filter(|nodes| !nodes.is_subset(&known)) {
                *nodes = nodes.intersection(&known);
                is_lost |= nodes.is_empty();
            }
            if is_lost {
                let reason =
                    format!("devices of {resource:?} are near NUMA nodes that the machine does not have");
                self.inexact.push(InexactSource::new(SOCKET, reason));
            }
        }
    }

    /// Compares the numbers with those of the API.
    fn compare(&mut self, capacity: Option<&BTreeMap<String, u64>>) {
        for (resource, units) in &self.nodes {
            let Some(capacity) = capacity else {
                if units.values().any(|nodes| !nodes.is_empty()) {
                    let reason = "not known, so unhealthy devices may be missing, which hints count too";
                    return self.inexact.push(InexactSource::new(CAPACITY, reason));
                }
                continue;
            };
            let all = capacity.get(resource).copied().unwrap_or(0);
            if all != units.len() as u64 {
                let reason = format!("{all} devices of {resource:?}, the nodes of {} are known", units.len());
                self.inexact.push(InexactSource::new(CAPACITY, reason));
            }
        }
    }

    /// Numbers of devices of one resource that a container holds, by the text of their nodes.
    pub(super) fn by_nodes<'a>(
        &self,
        resource: &str,
        ids: impl Iterator<Item = &'a String>,
    ) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        let units = self.nodes.get(resource);
        for nodes in ids.filter_map(|id| units?.get(id)) {
            *counts.entry(nodes.to_string()).or_default() += 1;
        }
        counts
    }
}

/// Nodes of all devices: as offered, else as remembered, else as held. A device that is held and neither
/// offered nor remembered is an unhealthy one, or one that its plugin no longer has: the number of the API
/// says which.
fn all_devices(
    offered: &DeviceNodes,
    grants: Option<&DeviceAssignments>,
    remembered: &DeviceNodes,
    capacity: Option<&BTreeMap<String, u64>>,
) -> DeviceNodes {
    let mut all = remembered.clone();
    for (resource, units) in offered.iter().filter(|(_, units)| !units.is_empty()) {
        all.entry(resource.clone()).or_default().extend(units.clone());
    }
    let is_complete: BTreeSet<String> = all
        .iter()
        .filter(|(resource, units)| {
            capacity.is_some_and(|of| of.get(*resource) == Some(&(units.len() as u64)))
        })
        .map(|(resource, _)| resource.clone())
        .collect();
    let grants = grants.into_iter().flat_map(|of| &of.grants);
    for grant in grants.filter(|grant| !grant.devices.is_empty() && !is_complete.contains(&grant.resource)) {
        let units = all.entry(grant.resource.clone()).or_default();
        for (id, nodes) in &grant.devices {
            units.entry(id.clone()).or_insert_with(|| nodes.clone());
        }
    }
    all
}

fn held_ids(grants: Option<&DeviceAssignments>) -> BTreeSet<(&str, &str)> {
    let grants = grants.into_iter().flat_map(|of| &of.grants);
    grants.flat_map(|grant| grant.devices.keys().map(|id| (grant.resource.as_str(), id.as_str()))).collect()
}

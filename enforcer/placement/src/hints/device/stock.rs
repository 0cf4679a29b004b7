//! Devices of one resource, as available to one container.

use std::collections::BTreeSet;

use crate::{
    Allocations, Inventory, PodRequest,
    hints::{Mask, NodeIndex},
    room::FittingAmount,
};
use numa_topology::{Topology, id::NodeId, set::NodeSet};

/// Devices of one resource, in ascending order of id.
#[derive(Debug)]
pub struct DeviceStock<'a> {
    pub(super) resource: &'a str,
    pub(super) nodes: &'a NodeIndex,
    pub(super) units: Vec<Unit<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Unit<'a> {
    pub(super) id: &'a str,
    /// Nodes near it; `None` if unknown.
    pub(super) near: Option<Mask>,
    pub(super) state: DeviceAvailability,
}

/// Availability of a device to this container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeviceAvailability {
    /// The container has had the device before a resize or restart.
    Held,
    /// An ended init container of the pod had it.
    Reusable,
    /// No container has it.
    Free,
    /// Another container has it.
    Taken,
}

impl<'a> DeviceStock<'a> {
    /// Stock for the container at this position in the pod's list.
    pub fn new(
        inventory: &'a Inventory,
        allocations: &Allocations,
        nodes: &'a NodeIndex,
        pod: &PodRequest,
        index: usize,
        resource: &'a str,
    ) -> Self {
        let (mut taken, mut ended) = (BTreeSet::new(), BTreeSet::new());
        for (holder, grant) in allocations.iter() {
            let Some(ids) = grant.devices.get(resource) else { continue };
            let set = if pod.has_ended(holder, index) { &mut ended } else { &mut taken };
            set.extend(ids.iter().map(String::as_str));
        }
        let previous = pod.containers.get(index).and_then(|container| pod.previous.get(&container.name));
        let held = previous.and_then(|grant| grant.devices.get(resource));
        let units = inventory.devices.get(resource).map_or(&[][..], Vec::as_slice).iter();
        let unit = |unit: &'a crate::DeviceUnit| {
            let id = unit.id.as_str();
            let state = if taken.contains(id) {
                DeviceAvailability::Taken
            } else if held.is_some_and(|held| held.iter().any(|held| held == id)) {
                DeviceAvailability::Held
            } else if ended.contains(id) {
                DeviceAvailability::Reusable
            } else {
                DeviceAvailability::Free
            };
            Unit { id, near: near(&inventory.machine, nodes, &unit.nodes), state }
        };
        Self { resource, nodes, units: units.map(unit).collect() }
    }

    /// Devices that the container can get.
    pub(super) fn available(&self) -> impl Iterator<Item = &Unit<'a>> {
        self.units.iter().filter(|unit| unit.state != DeviceAvailability::Taken)
    }

    /// Number of available devices near these nodes.
    pub(in crate::hints) fn count_near(&self, nodes: &NodeSet) -> u64 {
        let mask = self.nodes.mask(nodes);
        let near = self.available().filter(|unit| unit.near.is_some_and(|near| near & mask != 0));
        u64::try_from(near.count()).unwrap_or(u64::MAX)
    }

    /// Number of available devices if no device has a known node, so that any node is suitable; else none.
    pub(in crate::hints) fn anywhere(&self) -> Option<u64> {
        let unknown = !self.units.is_empty() && self.units.iter().all(|unit| unit.near.is_none());
        unknown.then(|| u64::try_from(self.available().count()).unwrap_or(u64::MAX))
    }

    /// Available devices; those without a known node only together with all others.
    pub(in crate::hints) fn room(&self) -> FittingAmount {
        let nodes: NodeSet = self.nodes.ids().iter().copied().collect();
        let all = u64::try_from(self.available().count()).unwrap_or(u64::MAX);
        let free = |part: &NodeSet| if part.len() == nodes.len() { all } else { self.count_near(part) };
        FittingAmount::new(self.resource, &nodes, free)
    }

    /// Does it have exactly the requested number of devices? Then it keeps them.
    pub(super) fn keeps(&self, count: u64) -> bool {
        let held = self.units.iter().filter(|unit| unit.state == DeviceAvailability::Held).count();
        held > 0 && u64::try_from(held) == Ok(count)
    }
}

/// Positions of the nodes; a node without CPUs stands for the CPU nodes that it is local to.
fn near(machine: &Topology, nodes: &NodeIndex, of: &NodeSet) -> Option<Mask> {
    let positions = |node: NodeId| -> Vec<_> {
        nodes.position(node).map_or_else(
            || machine.near_cpu_nodes(node).iter().filter_map(|near| nodes.position(near)).collect(),
            |own| vec![own],
        )
    };
    let mask = of.iter().flat_map(positions).fold(0, |mask: Mask, position| mask | 1 << position);
    (mask != 0).then_some(mask)
}

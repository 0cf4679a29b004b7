//! The machine of a published state, and what of it pods may get.

use std::collections::BTreeMap;

use numa_placement::{DeviceUnit, Inventory, MemoryResource, settings::PlacementSettings};
use numa_topology::{
    Cpu, Hugepages, Llc, Node, Package, Topology,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use super::{StateFault, held::device_id};
use crate::cluster::state::{MachineState, NodeState};

/// The inventory of a state.
///
/// # Errors
/// If the machine contradicts itself, or reserved CPUs or memory name what it does not have.
pub(super) fn inventory(state: &NodeState, settings: &PlacementSettings) -> Result<Inventory, StateFault> {
    let supplies = supplies(state)?;
    let machine = topology(&state.machine, &supplies)?;
    let nodes: NodeSet = machine.nodes.iter().map(|node| node.id).collect();
    let mut inventory = Inventory::new(machine, devices(state, &nodes)?, settings)?;
    for node in &mut inventory.nodes {
        if let Some(supply) = supplies.get(&node.id) {
            node.allocatable.clone_from(supply);
        }
    }
    Ok(inventory)
}

/// Allocatable bytes by node and kind.
type Supplies = BTreeMap<NodeId, BTreeMap<MemoryResource, u64>>;

fn supplies(state: &NodeState) -> Result<Supplies, StateFault> {
    let mut supplies = Supplies::new();
    for supply in &state.memory {
        if !state.machine.nodes.iter().any(|node| node.id == supply.node) {
            return Err(StateFault::Unknown { field: "memory.node", value: supply.node.to_string() });
        }
        let Some(resource) = MemoryResource::of_name(&supply.resource) else {
            return Err(StateFault::Unknown { field: "memory.resource", value: supply.resource.clone() });
        };
        let bytes = supply.allocatable.cast_unsigned();
        if supplies.entry(supply.node).or_default().insert(resource, bytes).is_some() {
            let value = format!("{} of node {}", supply.resource, supply.node);
            return Err(StateFault::Twice { field: "memory", value });
        }
    }
    Ok(supplies)
}

fn topology(machine: &MachineState, supplies: &Supplies) -> Result<Topology, StateFault> {
    let lists = [("sockets", &machine.sockets), ("cores", &machine.cores), ("caches", &machine.caches)];
    for (list, entries) in lists {
        disjoint(list, entries.iter())?;
    }
    disjoint("nodes", machine.nodes.iter().map(|node| &node.cpus))?;
    let mut cpus = Vec::new();
    for node in &machine.nodes {
        for id in node.cpus.iter() {
            let position = |entries: &[CpuSet]| {
                let at = entries.iter().position(|cpus| cpus.contains(id))?;
                i32::try_from(at).ok()
            };
            let core = position(&machine.cores);
            let siblings = core.and_then(|at| machine.cores.get(usize::try_from(at).ok()?)).cloned();
            cpus.push(Cpu {
                id,
                node: Some(node.id),
                package: position(&machine.sockets),
                die: None,
                cluster: None,
                core,
                siblings: siblings.unwrap_or_else(|| CpuSet::from_iter([id])),
            });
        }
    }
    cpus.sort_by_key(|cpu| cpu.id);
    let packages = machine.sockets.iter().zip(0..).map(|(cpus, id)| Package {
        id,
        cpus: cpus.clone(),
        nodes: machine.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus)).map(|node| node.id).collect(),
    });
    let topology = Topology {
        nodes: machine.nodes.iter().map(|node| node_of(node.id, node, supplies.get(&node.id))).collect(),
        distances: machine.distances.iter().map(|row| row.iter().copied().map(Some).collect()).collect(),
        packages: packages.collect(),
        cpus,
        llcs: machine
            .caches
            .iter()
            .map(|cpus| Llc { level: 3, size_bytes: None, cpus: cpus.clone() })
            .collect(),
        cpu_kinds: Vec::new(),
        memory_tiers: Vec::new(),
        offline_cpus: CpuSet::new(),
        isolated_cpus: CpuSet::new(),
        nohz_full_cpus: CpuSet::new(),
        devices: Vec::new(),
    };
    topology.check()?;
    Ok(topology)
}

fn node_of(
    id: NodeId,
    node: &crate::cluster::state::MachineNode,
    supply: Option<&BTreeMap<MemoryResource, u64>>,
) -> Node {
    let hugepages = supply.into_iter().flatten().filter_map(|(resource, bytes)| match resource {
        MemoryResource::Hugepages(size_bytes) if *size_bytes > 0 => {
            let total = bytes / size_bytes;
            Some(Hugepages { size_bytes: *size_bytes, total, free: total })
        }
        _ => None,
    });
    Node {
        id,
        cpus: node.cpus.clone(),
        mem_total_bytes: supply.map(|supply| supply.get(&MemoryResource::Memory).copied().unwrap_or(0)),
        mem_free_bytes: None,
        hugepages: hugepages.collect(),
        kind: node.kind,
        kind_evidence: Vec::new(),
        normal_memory: None,
        hmat: None,
        closest_cpu_node: None,
    }
}

fn disjoint<'a>(list: &'static str, entries: impl Iterator<Item = &'a CpuSet>) -> Result<(), StateFault> {
    let mut seen = CpuSet::new();
    for cpus in entries {
        if !cpus.is_disjoint(&seen) {
            return Err(StateFault::Overlap { list, cpus: cpus.intersection(&seen) });
        }
        seen.extend(cpus);
    }
    Ok(())
}

/// A unit for each device that a state counts.
fn devices(state: &NodeState, nodes: &NodeSet) -> Result<Vec<DeviceUnit>, StateFault> {
    let mut units = Vec::new();
    for (at, supply) in state.devices.iter().enumerate() {
        if state.devices.iter().take(at).any(|other| other.resource == supply.resource) {
            return Err(StateFault::Twice { field: "devices", value: supply.resource.clone() });
        }
        for (group, count) in supply.by_nodes.iter().enumerate() {
            if !count.nodes.is_subset(nodes) {
                return Err(StateFault::Unknown {
                    field: "devices.byNodes.nodes",
                    value: count.nodes.to_string(),
                });
            }
            units.extend((0..count.total).map(|number| DeviceUnit {
                resource: supply.resource.clone(),
                id: device_id(group, number),
                nodes: count.nodes.clone(),
            }));
        }
    }
    Ok(units)
}

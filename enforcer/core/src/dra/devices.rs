//! The devices that the driver publishes for this machine.
//!
//! Idea: one device for each NUMA node, with capacities that claims share; every combination of CPUs, memory
//! and huge pages of one node is one request. Where the API server drops such capacities there is a device
//! for each core, or for each node as a whole. Invariants: names come from the kernel's numbers; every
//! attribute is on every device, because a selector aborts on an unknown one; a capacity that a request does
//! not mention is taken as 0.

use std::collections::BTreeMap;

use numa_placement::Inventory;
use numa_topology::{CoreType, MemoryKind, id::NodeId, set::CpuSet};

use super::{
    ClaimCapacity, ClaimSupply, DeviceName, NodeBudget,
    slice::{AttributeValue, DeviceCapacity, SliceDevice},
};

/// Step of the memory that requests are rounded up to, in bytes.
const MEMORY_STEP: u64 = 4 << 20;
/// Most sizes of huge pages that are published; no kernel has more, and a device has 32 entries at most.
const MAX_HUGEPAGE_SIZES: usize = 8;

/// Shape of the devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceModel {
    /// A device for each node, shared out by amounts.
    #[default]
    SharedNodes,
    /// A device for each node, for one claim.
    WholeNodes,
    /// A device for each core.
    Cores,
}

/// Which field ties claims to the amounts of the node, by version of the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NodeAllocatableShape {
    /// None.
    #[default]
    Absent,
    /// `nodeAllocatableResourceMappings` of 1.36.
    Mappings,
    /// `nodeAllocatableResources` of 1.37.
    Resources,
}

/// How devices are published.
#[derive(Debug, Clone, Copy, Default)]
pub struct PublishOptions<'a> {
    /// Shape of the devices.
    pub model: DeviceModel,
    /// Shape of the mapping to the amounts of the node.
    pub node_allocatable: NodeAllocatableShape,
    /// Whether exclusive CPUs are given in whole cores.
    pub full_cores: bool,
    /// Version of the program, as a semantic version.
    pub version: &'a str,
}

/// All devices, in order of node, then core.
pub(super) fn devices(
    inventory: &Inventory,
    supply: &ClaimSupply,
    options: &PublishOptions<'_>,
) -> Vec<SliceDevice> {
    let classes = distance_classes(inventory, supply);
    let of_node = |budget: &NodeBudget| {
        let class = classes.get(&budget.node).copied().unwrap_or(-1);
        let attributes = attributes(inventory, budget, class, options.version);
        match options.model {
            DeviceModel::SharedNodes => vec![shared_node(supply, budget, attributes, options)],
            DeviceModel::WholeNodes => vec![SliceDevice {
                name: DeviceName::Node(budget.node).to_string(),
                attributes,
                ..SliceDevice::default()
            }],
            DeviceModel::Cores => cores(supply, budget, &attributes),
        }
    };
    supply.nodes().iter().flat_map(of_node).collect()
}

fn shared_node(
    supply: &ClaimSupply,
    budget: &NodeBudget,
    attributes: BTreeMap<String, AttributeValue>,
    options: &PublishOptions<'_>,
) -> SliceDevice {
    let threads = if options.full_cores { supply.threads_per_core() as u64 } else { 1 };
    let sizes = budget.capacity.hugepages.keys().take(MAX_HUGEPAGE_SIZES);
    let sizes = sizes.map(|size| (ClaimCapacity::Hugepages(*size), *size));
    let fixed =
        [(ClaimCapacity::Cpu, threads), (ClaimCapacity::MilliCpu, 1), (ClaimCapacity::Memory, MEMORY_STEP)];
    let mut capacity = BTreeMap::new();
    let mut node_allocatable = BTreeMap::new();
    for (resource, step) in fixed.into_iter().chain(sizes) {
        let value = budget.capacity.of(resource);
        // A value that is no multiple would never be given as a whole.
        let value = value - value % step;
        if value < step {
            continue;
        }
        capacity.insert(resource.key(), DeviceCapacity { value, step: Some(step) });
        if let Some(name) =
            resource.node_resource().filter(|_| options.node_allocatable != NodeAllocatableShape::Absent)
        {
            node_allocatable.insert(name, resource.key());
        }
    }
    SliceDevice {
        name: DeviceName::Node(budget.node).to_string(),
        attributes,
        capacity,
        allow_multiple: true,
        node_allocatable,
        node_allocatable_shape: options.node_allocatable,
    }
}

/// Whole cores of the pool, the highest first, as many as the budget has.
fn cores(
    supply: &ClaimSupply,
    budget: &NodeBudget,
    attributes: &BTreeMap<String, AttributeValue>,
) -> Vec<SliceDevice> {
    let layout = supply.layout();
    let mut left = usize::try_from(budget.capacity.cpus).unwrap_or(usize::MAX);
    let mut devices = Vec::new();
    for (core, cpus) in layout.cores.iter().rev() {
        if cpus.is_empty() || !cpus.is_subset(&budget.exclusive_pool) || cpus.len() > left {
            continue;
        }
        left -= cpus.len();
        let cache = cpus.first().and_then(|cpu| layout.place(cpu)).map_or(-1, |place| i64::from(place.llc));
        let mut attributes = attributes.clone();
        attributes.insert("coreID".into(), AttributeValue::Int(i64::from(*core)));
        attributes.insert("cacheL3ID".into(), AttributeValue::Int(cache));
        attributes.insert("cpuList".into(), AttributeValue::Text(cpus.to_string()));
        let name = DeviceName::Core(*core).to_string();
        devices.push(SliceDevice { name, attributes, ..SliceDevice::default() });
    }
    devices.reverse();
    devices
}

fn attributes(
    inventory: &Inventory,
    budget: &NodeBudget,
    distance_class: i64,
    version: &str,
) -> BTreeMap<String, AttributeValue> {
    let machine = &inventory.machine;
    let layout = &inventory.layout;
    let number = |number: usize| AttributeValue::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let node = AttributeValue::Int(i64::from(budget.node.0));
    let own = machine.node(budget.node).map(|node| node.cpus.clone()).unwrap_or_default();
    let socket = machine.packages.iter().find(|package| !package.cpus.is_disjoint(&own));
    let threads = layout.cores.iter().map(|(_, core)| core.common(&own)).max().unwrap_or(0);
    let caches = layout.llcs.iter().filter(|(_, cache)| !cache.is_disjoint(&own)).count();
    let kind = machine.node(budget.node).map_or(MemoryKind::Unknown, |node| node.kind);
    let entries = [
        ("resource.kubernetes.io/numaNode", node.clone()),
        ("dra.net/numaNode", node.clone()),
        ("dra.cpu/numaNodeID", node),
        ("socket", AttributeValue::Int(socket.map_or(-1, |package| i64::from(package.id)))),
        ("cpus", number(budget.cpus.len())),
        ("threadsPerCore", number(threads)),
        ("l3", number(caches)),
        ("coreType", AttributeValue::Text(core_type(inventory, &own).into())),
        ("memoryKind", AttributeValue::Text(memory_kind(kind).into())),
        ("memoryTier", number(machine.memory_tier(budget.node).unwrap_or(0))),
        ("cpuless", AttributeValue::Bool(own.is_empty())),
        ("distanceClass", AttributeValue::Int(distance_class)),
        ("version", AttributeValue::Version(version.to_owned())),
    ];
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

const fn memory_kind(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Dram => "dram",
        MemoryKind::Pmem => "pmem",
        MemoryKind::Cxl => "cxl",
        MemoryKind::Hbm => "hbm",
        MemoryKind::Gpu => "gpu",
        MemoryKind::None => "none",
        MemoryKind::Unknown => "unknown",
    }
}

/// Type of the cores of these CPUs: `performance`, `efficiency`, `mixed`, `uniform` on a machine with one
/// type, `none` without CPUs.
fn core_type(inventory: &Inventory, cpus: &CpuSet) -> &'static str {
    let of = |wanted: CoreType| {
        let kinds = inventory.machine.cpu_kinds.iter();
        kinds.filter(|kind| kind.core_type == Some(wanted)).any(|kind| !kind.cpus.is_disjoint(cpus))
    };
    match (of(CoreType::Performance), of(CoreType::Efficiency)) {
        _ if cpus.is_empty() => "none",
        (true, true) => "mixed",
        (true, false) => "performance",
        (false, true) => "efficiency",
        (false, false) => "uniform",
    }
}

/// Number of the group of nodes that are nearest to one another, from 0 in order of the lowest node. Two
/// nodes are in one group if no other node with something to give is nearer to either.
fn distance_classes(inventory: &Inventory, supply: &ClaimSupply) -> BTreeMap<NodeId, i64> {
    let ids: Vec<NodeId> = supply.nodes().iter().map(|budget| budget.node).collect();
    let distance = |a: NodeId, b: NodeId| {
        let ways = [inventory.machine.distance(a, b), inventory.machine.distance(b, a)];
        ways.into_iter().flatten().max()
    };
    let nearest = |node: NodeId| {
        ids.iter().filter(|other| **other != node).filter_map(|other| distance(node, *other)).min()
    };
    let nearest: BTreeMap<NodeId, Option<u32>> = ids.iter().map(|node| (*node, nearest(*node))).collect();
    let is_pair = |a: NodeId, b: NodeId| {
        let own = distance(a, b);
        own.is_some() && nearest[&a] == own && nearest[&b] == own
    };
    let mut classes = BTreeMap::new();
    let mut next = 0;
    for first in &ids {
        if classes.contains_key(first) {
            continue;
        }
        let mut open = vec![*first];
        while let Some(node) = open.pop() {
            if classes.insert(node, next).is_none() {
                open.extend(ids.iter().filter(|other| is_pair(node, **other)));
            }
        }
        next += 1;
    }
    classes
}

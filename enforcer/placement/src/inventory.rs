//! Resources of the machine that can be given to workloads.
//!
//! The topology has all resources; the inventory has those that may be given: CPUs without offline and
//! unavailable ones, memory without reserved memory and huge pages, devices by resource. It is built once per
//! topology and configuration, then only read.
//!
//! Invariant: unknown amounts never count: a node of unknown size has no memory to give.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{
    CpuLayout, MemoryResource,
    hints::{self, Windows},
    pools::MachinePools,
};
use crate::{
    settings::{CpuAmount, CpuChoice, PlacementSettings},
    words,
};
use numa_topology::{
    Hugepages, Locality, MemoryKind, Node, Topology,
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// The machine as placement sees it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Inventory {
    /// The machine itself.
    pub machine: Topology,
    /// Locality of memory to CPUs.
    pub locality: Locality,
    /// Location of each CPU.
    pub layout: CpuLayout,
    /// Online CPUs that workloads may get.
    pub allowed_cpus: CpuSet,
    /// CPUs reserved for the system; part of the allowed ones.
    pub reserved_cpus: CpuSet,
    /// CPUs of `isolcpus=` among the allowed ones; empty under the profile `kubelet`, because a kubelet does
    /// not distinguish them.
    pub isolated_cpus: CpuSet,
    /// Nodes in ascending order of id, including memory-only ones.
    pub nodes: Vec<NodeSupply>,
    /// Devices by resource name, in ascending order of id.
    pub devices: BTreeMap<String, Vec<DeviceUnit>>,
    /// Precomputed state of the engine `pools`.
    pub(super) pools: MachinePools,
    /// Precomputed state of the engine `hints`, if there are more nodes than fit a mask.
    pub(super) windows: Windows,
}

/// Resources of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSupply {
    /// Id of the node.
    pub id: NodeId,
    /// Kind of its memory.
    pub kind: MemoryKind,
    /// Its allowed CPUs; empty for a memory-only node.
    pub cpus: CpuSet,
    /// Bytes of ordinary memory and of huge pages of each size.
    pub total: BTreeMap<MemoryResource, u64>,
    /// Bytes of these that may be given: without reserved ones, ordinary memory also without the bytes of
    /// huge pages.
    pub allocatable: BTreeMap<MemoryResource, u64>,
}

/// A device that can be given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceUnit {
    /// Name of its resource: `vendor.com/gpu`.
    pub resource: String,
    /// Its id, unique among those of its resource.
    pub id: String,
    /// Nodes near it; empty if unknown.
    pub nodes: NodeSet,
}

/// Error: the configuration does not fit the machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key} = {value}: {problem}")]
#[non_exhaustive]
pub struct InventoryError {
    /// Key of the configuration.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What does not fit.
    pub problem: InventoryProblem,
}

/// Why a setting does not fit the machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InventoryProblem {
    /// No CPU remains for workloads.
    #[error("no online CPU is left")]
    NoCpuLeft,
    /// These CPUs are not online.
    #[error("CPUs {0} are not online")]
    NotOnline(CpuSet),
    /// These CPUs are not among the available ones.
    #[error("CPUs {0} are not available")]
    NotAvailable(CpuSet),
    /// These CPUs are isolated from the scheduler, but others that are named with them are not.
    #[error("CPUs {0} are isolated")]
    Isolated(CpuSet),
    /// The amount of CPUs cannot be reserved.
    #[error(transparent)]
    Cpus(hints::cpu::CpuError),
    /// The machine has only these nodes.
    #[error("the machine has no such NUMA node, only {0}")]
    NoSuchNode(NodeSet),
    /// The node has only this much of the resource, in bytes.
    #[error("the node has {} of it", words::size(*.0))]
    TooLittleMemory(u64),
}

impl Inventory {
    /// Inventory of the machine under this configuration.
    ///
    /// # Errors
    /// If the settings name CPUs or memory that the machine does not have, or leave no CPU.
    pub fn new(
        machine: Topology,
        devices: Vec<DeviceUnit>,
        settings: &PlacementSettings,
    ) -> Result<Self, InventoryError> {
        let layout = CpuLayout::of(&machine);
        let cpus = allowed_and_reserved(settings, &layout, &machine)?;
        let inventory = Self::of(machine, layout, devices, settings, cpus);
        inventory.has_what_is_reserved(settings)?;
        Ok(inventory)
    }

    /// Name of the degraded source when the configuration does not fit the machine.
    pub const UNFIT: &str = "placement";

    /// As [`Inventory::new`], with a fallback: if the configured CPUs do not fit the machine, all may be
    /// given; if the reserved memory does not, as much as exists is reserved.
    pub fn or_whole(machine: Topology, settings: &PlacementSettings) -> (Self, Option<Degraded>) {
        let layout = CpuLayout::of(&machine);
        let cpus = allowed_and_reserved(settings, &layout, &machine);
        let unfit = |error: InventoryError, effect| Degraded::new(Self::UNFIT, error.to_string(), effect);
        match cpus {
            Ok(cpus) => {
                let inventory = Self::of(machine, layout, Vec::new(), settings, cpus);
                let unfit = match inventory.has_what_is_reserved(settings) {
                    Err(error) => Some(unfit(error, "only what there is of it is set aside")),
                    Ok(()) => inventory
                        .absent_cpus(settings)
                        .map(|error| unfit(error, "the others of them may be given to workloads")),
                };
                (inventory, unfit)
            }
            Err(error) => {
                let cpus = (layout.all(), CpuSet::new());
                let effect = "no CPU is set aside for the system, every one may be given to workloads";
                (Self::of(machine, layout, Vec::new(), settings, cpus), Some(unfit(error, effect)))
            }
        }
    }

    /// Error that names configured CPUs that are not online here. Online CPUs change, so nothing is refused
    /// for it.
    pub fn absent_cpus(&self, settings: &PlacementSettings) -> Option<InventoryError> {
        let choice = settings.available.as_ref()?.cpus.as_ref()?;
        let CpuChoice::Only(named) = choice else { return None };
        let absent = named.difference(&self.layout.all());
        (!absent.is_empty()).then(|| InventoryError {
            key: "placement.available.cpus".into(),
            value: choice.to_string(),
            problem: InventoryProblem::NotOnline(absent),
        })
    }

    /// Does the machine have all memory to reserve? Unknown sizes pass.
    fn has_what_is_reserved(&self, settings: &PlacementSettings) -> Result<(), InventoryError> {
        for (node, amounts) in &settings.reserved.memory {
            let refused = |key: String, value: String, problem: InventoryProblem| {
                Err(InventoryError { key: format!("placement.reserved.memory{key}"), value, problem })
            };
            let ids: NodeSet = self.nodes.iter().map(|supply| supply.id).collect();
            let Some(supply) = self.nodes.iter().find(|supply| supply.id.to_string() == *node) else {
                let problem = InventoryProblem::NoSuchNode(ids);
                return refused(String::new(), format!("{node:?}"), problem);
            };
            let unknown = self.machine.node(supply.id).is_none_or(|node| node.mem_total_bytes.is_none());
            for (name, wanted) in amounts.iter().filter(|(name, _)| !(unknown && *name == "memory")) {
                let total = supply.total.iter().find(|(resource, _)| resource.to_string() == *name);
                let total = total.map_or(0, |(_, bytes)| *bytes);
                if wanted.0 > total {
                    let problem = InventoryProblem::TooLittleMemory(total);
                    return refused(format!(".{node}.{name}"), words::size(wanted.0), problem);
                }
            }
        }
        Ok(())
    }

    fn of(
        machine: Topology,
        layout: CpuLayout,
        devices: Vec<DeviceUnit>,
        settings: &PlacementSettings,
        (allowed_cpus, reserved_cpus): (CpuSet, CpuSet),
    ) -> Self {
        let nodes = machine.nodes.iter().map(|node| NodeSupply::of(node, &allowed_cpus, settings)).collect();
        let mut by_resource = BTreeMap::<String, Vec<DeviceUnit>>::new();
        for mut device in devices {
            device.nodes = device.nodes.iter().flat_map(|node| place_of(&machine, node)).collect();
            by_resource.entry(device.resource.clone()).or_default().push(device);
        }
        for units in by_resource.values_mut() {
            units.sort();
        }
        let isolated_cpus = if settings.predicts_kubelet() {
            CpuSet::new()
        } else {
            machine.isolated_cpus.intersection(&allowed_cpus)
        };
        Self {
            locality: Locality::new(&machine),
            layout,
            allowed_cpus,
            reserved_cpus,
            isolated_cpus,
            nodes,
            devices: by_resource,
            machine,
            pools: MachinePools::default(),
            windows: Windows::default(),
        }
    }

    /// Resources of a node.
    pub fn node(&self, id: NodeId) -> Option<&NodeSupply> {
        // Its id is its position in the list on almost every machine.
        let at_its_id = usize::try_from(id.0).ok().and_then(|at| self.nodes.get(at));
        at_its_id.filter(|node| node.id == id).or_else(|| self.nodes.iter().find(|node| node.id == id))
    }

    /// Nodes that may have ordinary memory of unknown size.
    pub fn unsized_nodes(&self) -> NodeSet {
        let is_unsized = |node: &&Node| node.mem_total_bytes.is_none() && node.takes_ordinary_memory();
        self.machine.nodes.iter().filter(is_unsized).map(|node| node.id).collect()
    }

    /// Does a node lack memory that the kernel can use for itself?
    pub fn is_movable_only(&self, id: NodeId) -> bool {
        self.machine.node(id).is_some_and(numa_topology::Node::is_movable_only)
    }

    /// Do all of these nodes lack such memory? False for an empty set.
    pub(crate) fn are_movable_only(&self, nodes: &NodeSet) -> bool {
        !nodes.is_empty() && nodes.iter().all(|node| self.is_movable_only(node))
    }

    /// Nodes with allowed CPUs.
    pub fn cpu_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id).collect()
    }
}

/// Nodes for a device with this node. A GPU with its own memory as node is placed at the CPU nodes that it is
/// near.
fn place_of(machine: &Topology, node: NodeId) -> Vec<NodeId> {
    let is_gpu = machine.node(node).is_some_and(|node| node.kind == MemoryKind::Gpu);
    let near = if is_gpu { machine.near_cpu_nodes(node) } else { NodeSet::new() };
    if near.is_empty() { vec![node] } else { near.iter().collect() }
}

impl NodeSupply {
    fn of(node: &Node, allowed_cpus: &CpuSet, settings: &PlacementSettings) -> Self {
        let in_hugepages = |pages: &Hugepages| {
            (MemoryResource::Hugepages(pages.size_bytes), pages.size_bytes.saturating_mul(pages.total))
        };
        let mut total: BTreeMap<_, _> = node.hugepages.iter().map(in_hugepages).collect();
        let in_hugepages = total.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let memory = node.mem_total_bytes.unwrap_or(0);
        let mut allocatable = total.clone();
        total.insert(MemoryResource::Memory, memory);
        allocatable.insert(MemoryResource::Memory, memory.saturating_sub(in_hugepages));
        for (resource, bytes) in &mut allocatable {
            *bytes = bytes.saturating_sub(reserved_memory(settings, node.id, *resource));
        }
        if !node.takes_ordinary_memory() && !settings.predicts_kubelet() {
            // The driver of a GPU manages its memory; a kubelet does not know that.
            for bytes in allocatable.values_mut() {
                *bytes = 0;
            }
        }
        let cpus = node.cpus.intersection(allowed_cpus);
        Self { id: node.id, kind: node.kind, cpus, total, allocatable }
    }

    /// Bytes that may be given.
    pub fn allocatable(&self, resource: MemoryResource) -> u64 {
        self.allocatable.get(&resource).copied().unwrap_or(0)
    }
}

/// CPUs that may be given, and the reserved ones among them.
fn allowed_and_reserved(
    settings: &PlacementSettings,
    layout: &CpuLayout,
    machine: &Topology,
) -> Result<(CpuSet, CpuSet), InventoryError> {
    let allowed = available_cpus(settings, &layout.all())?;
    let reserved = reserved_cpus(settings, layout, &allowed, &machine.isolated_cpus)?;
    Ok((allowed, reserved))
}

fn available_cpus(settings: &PlacementSettings, online: &CpuSet) -> Result<CpuSet, InventoryError> {
    let Some(choice) = settings.available.as_ref().and_then(|available| available.cpus.as_ref()) else {
        return Ok(online.clone());
    };
    let cpus = choice.of(online);
    if cpus.is_empty() {
        return Err(InventoryError {
            key: "placement.available.cpus".into(),
            value: choice.to_string(),
            problem: InventoryProblem::NoCpuLeft,
        });
    }
    Ok(cpus)
}

/// Reserved CPUs. Isolated ones only if they are named, and no others with them; a kubelet ignores isolation.
fn reserved_cpus(
    settings: &PlacementSettings,
    layout: &CpuLayout,
    allowed: &CpuSet,
    isolated: &CpuSet,
) -> Result<CpuSet, InventoryError> {
    let Some(amount) = &settings.reserved.cpus else { return Ok(CpuSet::new()) };
    let is_kubelet = settings.predicts_kubelet();
    let refused = |problem: InventoryProblem| InventoryError {
        key: "placement.reserved.cpus".into(),
        value: amount.to_string(),
        problem,
    };
    match amount {
        CpuAmount::Named(CpuChoice::Only(cpus)) if !cpus.is_subset(allowed) => {
            Err(refused(InventoryProblem::NotAvailable(cpus.difference(allowed))))
        }
        CpuAmount::Named(CpuChoice::Only(cpus))
            if cpus.len() > 1 && !cpus.is_disjoint(isolated) && !is_kubelet =>
        {
            Err(refused(InventoryProblem::Isolated(cpus.intersection(isolated))))
        }
        CpuAmount::Named(choice) => Ok(choice.of(allowed)),
        CpuAmount::Milli(milli) => {
            let count = usize::try_from(milli.div_ceil(1000)).unwrap_or(usize::MAX);
            let cpus = if is_kubelet {
                hints::cpu::reserve(layout, allowed, count, (&settings.hints).into())
            } else {
                amount_of(layout, &allowed.difference(isolated), count)
            };
            cpus.map_err(|error| refused(InventoryProblem::Cpus(error)))
        }
    }
}

/// `count` of these CPUs: the smallest packages that are entirely among them and not too large, then the
/// lowest ids, whole cores first. So CPU 0, which serves interrupts and kernel threads anyway, is among them
/// unless a package is reserved as a whole.
fn amount_of(layout: &CpuLayout, from: &CpuSet, count: usize) -> Result<CpuSet, hints::cpu::CpuError> {
    let mut free = layout.known(from);
    if count > free.len() {
        return Err(hints::cpu::CpuError::NotEnough { requested: count, available: free.len() });
    }
    let mut taken = CpuSet::new();
    let mut take_whole = |groups: &[&CpuSet], taken: &mut CpuSet| {
        for group in groups {
            if group.is_subset(&free) && taken.len() + group.len() <= count {
                free = free.difference(group);
                taken.extend(group);
            }
        }
    };
    let by_id = |groups: &[(u32, CpuSet)]| groups.iter().map(|(_, cpus)| cpus.clone()).collect::<Vec<_>>();
    let (packages, cores) = (by_id(&layout.sockets), by_id(&layout.cores));
    let mut packages: Vec<&CpuSet> = packages.iter().collect();
    packages.sort_by_key(|package| (package.len(), package.first()));
    take_whole(&packages, &mut taken);
    let mut cores: Vec<&CpuSet> = cores.iter().collect();
    cores.sort_by_key(|core| core.first());
    take_whole(&cores, &mut taken);
    let rest: CpuSet = free.iter().take(count - taken.len()).collect();
    Ok(taken.union(&rest))
}

fn reserved_memory(settings: &PlacementSettings, node: NodeId, resource: MemoryResource) -> u64 {
    let of_node = settings.reserved.memory.get(&node.to_string());
    of_node.and_then(|amounts| amounts.get(&resource.to_string())).map_or(0, |size| size.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numa_topology::synth::Machine;

    fn reserved(cpus: &str, isolated: &str) -> Result<String, String> {
        let machine = Machine::new().isolated(isolated).build();
        let settings: PlacementSettings = toml::from_str(&format!("reserved.cpus = \"{cpus}\"")).unwrap();
        let inventory = Inventory::new(machine, Vec::new(), &settings);
        inventory.map(|inventory| inventory.reserved_cpus.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_amount_is_reserved_from_the_lowest_cores() {
        for (amount, isolated, expected) in [
            ("2", "", "0,4"),
            ("1500m", "", "0,4"),
            ("3", "", "0-1,4"),
            ("2", "0,4", "1,5"),
            ("8", "", "0-7"),
            ("cpuset:3,6", "", "3,6"),
            ("exclude-cpuset:2-7", "", "0-1"),
        ] {
            assert_eq!(reserved(amount, isolated).as_deref(), Ok(expected), "{amount}, isolated {isolated}");
        }
    }

    #[test]
    fn reserved_amount_is_the_smallest_idle_package_or_the_lowest_ids() {
        for (line, amount, expected) in [
            // The smaller node has CPU 0 only in the second case.
            ("sockets:2 cores:4 threads:2 isolated:9,10", "2", "0,8"),
            ("sockets:2 cores:4 isolated:5-7", "1", "0"),
            ("sockets:2 cores:4 isolated:5-7", "2", "0-1"),
            // Package 0 is not whole, package 1 is.
            ("sockets:2 cores:4 isolated:1", "4", "4-7"),
            ("sockets:2 cores:4 isolated:1", "5", "0,4-7"),
            ("sockets:2 cores:4", "4", "0-3"),
            ("sockets:2 cores:4", "6", "0-5"),
            ("sockets:2 cores:2 threads:2", "3", "0-1,4"),
        ] {
            let machine = line.parse::<Machine>().unwrap().build();
            let settings: PlacementSettings =
                toml::from_str(&format!("reserved.cpus = \"{amount}\"")).unwrap();
            let inventory = Inventory::new(machine, Vec::new(), &settings).unwrap();
            assert_eq!(inventory.reserved_cpus.to_string(), expected, "{amount} of {line}");
        }
    }

    #[test]
    fn more_than_there_is_cannot_be_reserved() {
        let error = |amount| reserved(amount, "").unwrap_err();
        assert_eq!(
            error("9"),
            "placement.reserved.cpus = 9: not enough cpus available to satisfy request: requested=9, available=8"
        );
        assert!(error("18446744073709551615m").contains("available=8"));
        assert!(error("cpuset:7-8").contains("CPUs 8 are not available"));
    }

    #[test]
    fn available_cpus_that_are_not_online_are_named() {
        let settings = |text: &str| toml::from_str::<PlacementSettings>(text).unwrap();
        for (cpus, said) in [
            ("cpuset:0-3", None),
            ("cpuset:2-15", Some("placement.available.cpus = cpuset:2-15: CPUs 8-15 are not online")),
            // The same file suits machines of several sizes.
            ("exclude-cpuset:0,100", None),
        ] {
            let settings = settings(&format!("available.cpus = '{cpus}'"));
            let (inventory, unfit) = Inventory::or_whole(Machine::new().build(), &settings);
            assert_eq!(unfit.map(|unfit| unfit.reason).as_deref(), said, "{cpus}");
            assert_eq!(inventory.absent_cpus(&settings).map(|error| error.to_string()).as_deref(), said);
        }
    }

    #[test]
    fn memory_that_is_not_there_cannot_be_reserved() {
        let machine = || Machine::new().memory_gib(16).build();
        let settings = |text: &str| toml::from_str::<PlacementSettings>(text).unwrap();
        for (text, said) in [
            ("reserved.memory.0.memory = '16GiB'", None),
            (
                "reserved.memory.9.memory = '1GiB'",
                Some("placement.reserved.memory = \"9\": the machine has no such NUMA node, only 0"),
            ),
            (
                "reserved.memory.0.memory = '17GiB'",
                Some("placement.reserved.memory.0.memory = 17 GiB: the node has 16 GiB of it"),
            ),
            (
                "reserved.memory.0.hugepages-2Mi = '2MiB'",
                Some("placement.reserved.memory.0.hugepages-2Mi = 2048 KiB: the node has 0 B of it"),
            ),
        ] {
            let settings = settings(text);
            let refused = Inventory::new(machine(), Vec::new(), &settings).err().map(|e| e.to_string());
            assert_eq!(refused.as_deref(), said, "{text}");
            let (_, unfit) = Inventory::or_whole(machine(), &settings);
            assert_eq!(unfit.map(|unfit| unfit.reason).as_deref(), said, "{text}");
        }
        let both = settings("reserved = { cpus = 'cpuset:0', memory = { 0 = { memory = '17GiB' } } }");
        let (inventory, unfit) = Inventory::or_whole(machine(), &both);
        assert!(unfit.is_some());
        assert_eq!(inventory.reserved_cpus.to_string(), "0", "CPUs are set aside all the same");
        let unknown = {
            let mut machine = machine();
            machine.nodes[0].mem_total_bytes = None;
            Inventory::new(machine, Vec::new(), &settings("reserved.memory.0.memory = '1GiB'"))
        };
        assert!(unknown.is_ok(), "{unknown:?}");
    }
}

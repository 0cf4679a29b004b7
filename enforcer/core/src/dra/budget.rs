//! What of the machine claims may take: CPUs by exclusive and shared budget, memory, huge pages, by NUMA
//! node.
//!
//! Problem: a scheduler cannot tie exclusive and shared CPUs of one device to one budget. Idea: each node's
//! CPUs are parted by number, not by id: so many may become exclusive, the others remain for everything else.
//! Which CPUs these are is chosen when a claim is prepared. Invariant: at least one core of each node is
//! never exclusive, so that no container is left without CPUs.
//!
//! The shell makes a [`ClaimSupply`] at start and after each change of online CPUs, of huge pages, of the
//! configuration, and of the CPUs that containers **without** claims of this driver have exclusively, from
//! the kubelet or from the placement engine. It hands the same value to the publisher and to the ledger.

use std::collections::BTreeMap;

use numa_placement::{CpuLayout, Inventory, MemoryResource, NodeSupply};
use numa_topology::{
    MemoryKind,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use super::PlaceAmounts;

/// Configuration of the budgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetOptions {
    /// Percent of each node's CPUs that claims may have exclusively.
    pub exclusive_percent: u8,
    /// Number of such CPUs by node, instead of the percent.
    pub exclusive_cpus: BTreeMap<NodeId, u64>,
    /// CPUs that the administrator has taken out of the node's allocatable ones for exclusive use; then these
    /// are all that claims may have exclusively.
    pub dedicated_cpus: Option<CpuSet>,
    /// Whether exclusive CPUs are published in whole cores.
    pub full_cores: bool,
    /// Whether both budgets are published at full size; a claim may then be refused when it is prepared.
    pub overlap: bool,
    /// Bytes of ordinary memory of each node that claims do not get, beside what placement reserves.
    pub reserve_memory_bytes: u64,
    /// Whether containers get more memory nodes before their own are full. Without that, memory that is
    /// preferred on nodes is not bound to them.
    pub widens_memory: bool,
}

impl Default for BudgetOptions {
    fn default() -> Self {
        Self {
            exclusive_percent: 75,
            exclusive_cpus: BTreeMap::new(),
            dedicated_cpus: None,
            full_cores: false,
            overlap: false,
            reserve_memory_bytes: 0,
            widens_memory: true,
        }
    }
}

/// What claims may take of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeBudget {
    /// The node.
    pub node: NodeId,
    /// CPUs of claims and of workloads without claims: those of the node that are online, neither reserved
    /// nor isolated, and exclusive to no
    /// container without a claim.
    pub cpus: CpuSet,
    /// Those that may become exclusive.
    pub exclusive_pool: CpuSet,
    /// Most that may be taken; CPUs of the pool up to the exclusive budget.
    pub capacity: PlaceAmounts,
    /// The same, if no container without a claim had CPUs exclusively.
    pub whole_capacity: PlaceAmounts,
    /// CPU nodes that its memory is local to; itself if it has CPUs.
    pub near_cpu_nodes: NodeSet,
    /// The node of memory for the kernel, if this node has only movable memory.
    pub kernel_memory: Option<NodeId>,
}

/// What claims may take of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimSupply {
    layout: CpuLayout,
    nodes: Vec<NodeBudget>,
    widens_memory: bool,
    /// Containers without claims that have CPUs exclusively, by name.
    holders: BTreeMap<String, CpuSet>,
}

impl ClaimSupply {
    /// Budgets of the machine. `given_cpus` are exclusive to containers without claims.
    pub fn new(inventory: &Inventory, options: &BudgetOptions, given_cpus: &CpuSet) -> Self {
        let withheld = inventory.reserved_cpus.union(&inventory.isolated_cpus);
        let is_ours = |node: &&NodeSupply| node.kind != MemoryKind::Gpu || !node.cpus.is_empty();
        let nodes = inventory.nodes.iter().filter(is_ours).map(|node| {
            let whole = node.cpus.difference(&withheld);
            let cpus = whole.difference(given_cpus);
            let pool =
                options.dedicated_cpus.as_ref().map_or_else(|| cpus.clone(), |own| own.intersection(&cpus));
            let whole_pool =
                options.dedicated_cpus.as_ref().map_or_else(|| whole.clone(), |own| own.intersection(&whole));
            let core = core_size(&inventory.layout, &whole);
            let budgets = |pool: &CpuSet, left: usize| {
                let exclusive = exclusive(node.id, whole.len(), pool, left, core, options);
                let shared = if options.overlap { left } else { left - exclusive };
                (exclusive as u64, (shared as u64).saturating_mul(1000))
            };
            let (cpu_count, milli_cpus) = budgets(&pool, cpus.len());
            let hugepages = node.allocatable.iter().filter_map(|(resource, bytes)| match resource {
                MemoryResource::Hugepages(size) if *bytes >= *size => Some((*size, *bytes)),
                _ => None,
            });
            let memory_bytes =
                node.allocatable(MemoryResource::Memory).saturating_sub(options.reserve_memory_bytes);
            let capacity =
                PlaceAmounts { cpus: cpu_count, milli_cpus, memory_bytes, hugepages: hugepages.collect() };
            let (whole_cpus, whole_milli) = budgets(&whole_pool, whole.len());
            let whole_capacity = PlaceAmounts {
                cpus: whole_cpus.max(cpu_count),
                milli_cpus: whole_milli.max(milli_cpus),
                ..capacity.clone()
            };
            NodeBudget {
                node: node.id,
                cpus,
                exclusive_pool: pool,
                capacity,
                whole_capacity,
                near_cpu_nodes: inventory.locality.near_cpu_nodes(node.id).clone(),
                kernel_memory: kernel_memory(inventory, node.id),
            }
        });
        let has_something = |budget: &NodeBudget| !budget.cpus.is_empty() || budget.capacity.has_memory();
        Self {
            layout: inventory.layout.clone(),
            nodes: nodes.filter(has_something).collect(),
            widens_memory: options.widens_memory,
            holders: BTreeMap::new(),
        }
    }

    /// The same, with the names of the containers without claims that have CPUs exclusively.
    #[must_use]
    pub fn with_holders(self, holders: BTreeMap<String, CpuSet>) -> Self {
        Self { holders, ..self }
    }

    /// Containers without claims that have CPUs of a node exclusively, and how many.
    pub(super) fn holders(&self, node: NodeId) -> impl Iterator<Item = (&str, u64)> {
        let is_of_node = move |cpu| self.layout.place(cpu).is_some_and(|place| place.node == node);
        let held = self.holders.iter().map(move |(name, cpus)| {
            (name.as_str(), cpus.iter().filter(|cpu| is_of_node(*cpu)).count() as u64)
        });
        held.filter(|(_, amount)| *amount > 0)
    }

    /// Nodes that have something, in ascending order.
    pub fn nodes(&self) -> &[NodeBudget] {
        &self.nodes
    }

    /// Budget of a node.
    pub fn node(&self, id: NodeId) -> Option<&NodeBudget> {
        self.nodes.iter().find(|budget| budget.node == id)
    }

    /// Where the machine's CPUs are.
    pub const fn layout(&self) -> &CpuLayout {
        &self.layout
    }

    /// All CPUs of the budgets.
    pub fn cpus(&self) -> CpuSet {
        let mut all = CpuSet::new();
        self.nodes.iter().for_each(|budget| all.extend(&budget.cpus));
        all
    }

    /// All CPUs that may be exclusive.
    pub fn exclusive_pool(&self) -> CpuSet {
        let mut all = CpuSet::new();
        self.nodes.iter().for_each(|budget| all.extend(&budget.exclusive_pool));
        all
    }

    /// CPUs of a core, by its lowest CPU.
    pub fn core(&self, core: u32) -> Option<&CpuSet> {
        self.layout.cores.iter().find(|(id, _)| *id == core).map(|(_, cpus)| cpus)
    }

    /// Most threads of a core of the machine; at least 1.
    pub(super) fn threads_per_core(&self) -> usize {
        core_size(&self.layout, &self.layout.all())
    }

    /// The memory nodes of a container that prefers these, until it gets more; `None` if it never would.
    pub fn preferred_mems(&self, nodes: &NodeSet) -> Option<NodeSet> {
        let is_bound = self.widens_memory && !nodes.is_empty();
        is_bound.then(|| self.strict_mems(nodes))
    }

    /// The memory nodes of a container with its memory strictly on these nodes: also one with memory for the
    /// kernel, if these have only movable memory.
    pub fn strict_mems(&self, nodes: &NodeSet) -> NodeSet {
        let kernel: Option<NodeSet> =
            nodes.iter().map(|node| self.node(node).and_then(|budget| budget.kernel_memory)).collect();
        kernel.map_or_else(|| nodes.clone(), |kernel| nodes.union(&kernel))
    }
}

/// Most CPUs of a core among these; at least 1.
fn core_size(layout: &CpuLayout, cpus: &CpuSet) -> usize {
    layout.cores.iter().map(|(_, core)| core.common(cpus)).max().unwrap_or(1).max(1)
}

/// Number of CPUs of a node that may be exclusive.
fn exclusive(
    node: NodeId,
    whole: usize,
    pool: &CpuSet,
    left: usize,
    core: usize,
    options: &BudgetOptions,
) -> usize {
    let wanted = match options.exclusive_cpus.get(&node) {
        Some(number) => usize::try_from(*number).unwrap_or(usize::MAX),
        None if options.overlap || options.dedicated_cpus.is_some() => usize::MAX,
        None => whole * usize::from(options.exclusive_percent.min(100)) / 100,
    };
    let most = wanted.min(pool.len()).min(left.saturating_sub(core));
    if options.full_cores { most - most % core } else { most }
}

/// The nearest node with memory for the kernel itself, for a node with only movable memory.
fn kernel_memory(inventory: &Inventory, node: NodeId) -> Option<NodeId> {
    let own: NodeSet = [node].into_iter().collect();
    let allowed = inventory.machine.ordinary_memory_nodes();
    inventory.machine.with_kernel_memory(own.clone(), &allowed).difference(&own).first()
}

#[cfg(test)]
mod tests;

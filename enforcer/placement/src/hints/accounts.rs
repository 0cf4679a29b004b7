//! Capacity while a pod is placed: CPUs by use, shared CPU time, memory.
//!
//! Everything is read from the allocations once per pod and updated with each container of the pod, so that a
//! pod of many containers does not sum up the whole machine for each.
//!
//! CPUs of ended init containers are *reusable*: only later containers of the same pod may have them. CPUs
//! that a container had before its resize or restart are *held* for it until it is placed.

use std::collections::{BTreeMap, BTreeSet};

use super::shared::SharedLoad;
use crate::{
    Allocations, ContainerKind, ContainerRequest, Grant, Holder, Inventory, MemoryClaim, MemoryPriority,
    MemoryResource, PodRequest, memory::ZoneAccount,
};
use numa_topology::set::{CpuSet, NodeSet};

/// State of the machine for the pod that is being placed.
pub(super) struct Accounts {
    /// Exclusive CPUs of other pods, and of containers of this pod that keep running.
    pub(super) taken: CpuSet,
    /// CPUs of this pod's ended init containers.
    pub(super) reusable: CpuSet,
    /// CPUs that containers of this pod had before and may keep.
    pub(super) held: CpuSet,
    /// Promised shared CPU time.
    pub(super) load: SharedLoad,
    /// Promised memory.
    pub(super) memory: ZoneAccount,
    /// Promised memory without soft promises; computed when needed.
    firm_memory: Option<ZoneAccount>,
    /// Under the profile `kubelet`: memory of the pod's ended init containers.
    init_memory: Option<InitMemory>,
}

/// Memory of ended init containers as a kubelet keeps it: later containers of the pod may use it on the same
/// set of nodes, and on no other set.
#[derive(Default)]
struct InitMemory {
    /// Promised memory without it.
    without: Option<ZoneAccount>,
    /// Kept memory by set of nodes: the maximum of one init container, less the use of later containers.
    kept: BTreeMap<(NodeSet, MemoryResource), u64>,
}

impl InitMemory {
    fn note(&mut self, is_init: bool, claims: &[MemoryClaim]) {
        for claim in claims {
            let kept = self.kept.entry((claim.zone.clone(), claim.resource)).or_default();
            *kept = if is_init { claim.bytes.max(*kept) } else { kept.saturating_sub(claim.bytes) };
        }
        self.kept.retain(|_, bytes| *bytes > 0);
    }

    /// The account for a container on this set of nodes; none if nothing is kept for the set.
    fn on(&self, nodes: Option<&NodeSet>) -> Option<ZoneAccount> {
        let mut account = self.without.clone()?;
        for ((zone, resource), bytes) in self.kept.iter().filter(|((zone, _), _)| Some(zone) != nodes) {
            account.promise(zone, *resource, *bytes);
        }
        Some(account)
    }
}

impl Accounts {
    pub(super) fn new(inventory: &Inventory, allocations: &Allocations) -> Self {
        Self {
            taken: allocations.exclusive_cpus(),
            reusable: CpuSet::new(),
            held: CpuSet::new(),
            load: SharedLoad::of(allocations.iter().map(|(_, grant)| grant)),
            memory: ZoneAccount::new(inventory, allocations, |_| false),
            firm_memory: None,
            init_memory: None,
        }
    }

    /// Starts to keep memory of ended init containers as a kubelet does.
    pub(super) fn keep_init_memory(&mut self) {
        self.init_memory = Some(InitMemory::default());
    }

    /// Sets of nodes with kept memory of ended init containers.
    pub(super) fn sets_with_init_memory(&self) -> BTreeSet<NodeSet> {
        let kept = self.init_memory.iter().flat_map(|init| init.kept.keys());
        kept.map(|(zone, _)| zone.clone()).collect()
    }

    /// The account for a container on one of these sets.
    pub(super) fn memory_on(&self, nodes: &NodeSet) -> Option<ZoneAccount> {
        self.init_memory.as_ref().filter(|_| self.sets_with_init_memory().contains(nodes))?.on(Some(nodes))
    }

    /// CPUs of these that no other holder has exclusively and this container may use.
    pub(super) fn available(
        &self,
        inventory: &Inventory,
        may_be_exclusive: &CpuSet,
        container: Option<&ContainerRequest>,
    ) -> CpuSet {
        let mut cpus = may_be_exclusive.difference(&self.taken);
        for others in [&self.reusable, &self.held] {
            cpus = cpus.difference(others);
        }
        restricted(inventory, &cpus, container)
    }

    /// CPUs that the next container of the pod may not share, because other holders have them exclusively.
    pub(super) fn not_shared(&self) -> CpuSet {
        self.taken.union(&self.held)
    }

    /// Memory without the soft promises of others; none if there are none.
    pub(super) fn firm(
        &mut self,
        inventory: &Inventory,
        allocations: &Allocations,
        pod: &PodRequest,
        index: usize,
    ) -> Option<&ZoneAccount> {
        if self.firm_memory.is_none() && allocations.iter().any(|(_, grant)| is_soft(grant)) {
            let left_out = |holder: &Holder| {
                pod.has_ended(holder, index) || allocations.get(holder).is_some_and(is_soft)
            };
            self.firm_memory = Some(ZoneAccount::new(inventory, allocations, left_out));
        }
        self.firm_memory.as_ref()
    }

    /// Updates the account with the grant of a container.
    pub(super) fn note(
        &mut self,
        inventory: &Inventory,
        allocations: &Allocations,
        pod: &PodRequest,
        index: usize,
        grant: &Grant,
    ) {
        let is_init =
            pod.containers.get(index).is_some_and(|container| container.kind == ContainerKind::Init);
        if is_init {
            self.reusable.extend(&grant.exclusive);
        } else {
            self.reusable = self.reusable.difference(&grant.exclusive);
            self.taken.extend(&grant.exclusive);
        }
        self.held = self.held.difference(&grant.exclusive);
        if pod.containers.iter().any(|container| container.kind == ContainerKind::Init) {
            self.memory = ZoneAccount::for_container(inventory, allocations, pod, index + 1);
            self.firm_memory = None;
            if let Some(init) = &mut self.init_memory {
                init.note(is_init, &grant.memory);
                init.without = Some(self.memory.clone());
                self.memory = init.on(None).unwrap_or_else(|| self.memory.clone());
            }
            let beside = allocations.iter().filter(|(holder, _)| !pod.has_ended(holder, index + 1));
            self.load = SharedLoad::of(beside.map(|(_, grant)| grant));
            return;
        }
        if let Some(shared) = &grant.shared {
            self.load.add(shared);
        }
        for claim in &grant.memory {
            self.memory.promise(&claim.zone, claim.resource, claim.bytes);
            if let Some(firm) = &mut self.firm_memory {
                firm.promise(&claim.zone, claim.resource, claim.bytes);
            }
        }
    }
}

/// Is its promised memory only a preference that gives way to promises of Guaranteed pods?
pub(super) fn is_soft(grant: &Grant) -> bool {
    grant.engine == crate::engine_name::HINTS
        && grant.memory_priority < MemoryPriority::Guaranteed
        && !grant.memory.is_empty()
}

/// The CPUs of these that the cgroups above and rules allow the container.
pub(super) fn restricted(
    inventory: &Inventory,
    cpus: &CpuSet,
    container: Option<&ContainerRequest>,
) -> CpuSet {
    let mut cpus = cpus.clone();
    if let Some(allowed) = container.and_then(|container| container.allowed_cpus.as_ref()) {
        cpus = cpus.intersection(allowed);
    }
    if let Some(allowed) = container.and_then(|container| container.allowed_nodes.as_ref()) {
        let mut near = CpuSet::new();
        let meant = inventory.machine.cpu_nodes_of(allowed);
        let nodes = inventory.nodes.iter().filter(|node| meant.contains(node.id));
        nodes.for_each(|node| near.extend(&node.cpus));
        cpus = cpus.intersection(&near);
    }
    cpus
}

//! What can be promised while a pod is placed: CPUs by their use, shared CPU time, memory.
//!
//! Everything is read from the allocations when the pod comes, and kept up to date as its containers
//! are given theirs, so that a pod of many containers does not sum up the whole machine for each.
//!
//! CPUs of ended init containers are *reusable*: later containers of the pod may have them, nobody
//! else. What a container had before its resize or restart is *held* for it until its turn.

use std::collections::{BTreeMap, BTreeSet};

use super::shared::Load;
use crate::{
    place::{
        Allocations, ContainerKind, ContainerRequest, Grant, Holder, Inventory, MemoryClaim, MemoryPriority,
        MemoryResource, PodRequest, memory::ZoneAccount,
    },
    set::{CpuSet, NodeSet},
};

/// State of the machine in the eyes of the pod that is placed.
pub(super) struct Accounts {
    /// Exclusive CPUs of others, and of containers of this pod that go on running.
    pub(super) taken: CpuSet,
    /// CPUs of this pod's ended init containers.
    pub(super) reusable: CpuSet,
    /// CPUs that containers of this pod had before and may keep.
    pub(super) held: CpuSet,
    /// What is promised on shared CPUs.
    pub(super) load: Load,
    /// What is promised of memory.
    pub(super) memory: ZoneAccount,
    /// The same without soft promises; made when it is needed.
    firm_memory: Option<ZoneAccount>,
    /// Under the profile of a kubelet: memory of the pod's ended init containers.
    init_memory: Option<InitMemory>,
}

/// Memory of ended init containers as a kubelet keeps it: for later containers of the pod on the same set of
/// nodes, and for no other set.
#[derive(Default)]
struct InitMemory {
    /// What is promised without it.
    without: Option<ZoneAccount>,
    /// What is kept, by set of nodes: the most that one init container had, less what later containers took.
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

    /// The account as a container on this set of nodes finds it; none for a set that nothing is kept for.
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
            load: Load::of(allocations.iter().map(|(_, grant)| grant)),
            memory: ZoneAccount::new(inventory, allocations, |_| false),
            firm_memory: None,
            init_memory: None,
        }
    }

    /// Keeps memory of ended init containers as a kubelet does.
    pub(super) fn keep_init_memory(&mut self) {
        self.init_memory = Some(InitMemory::default());
    }

    /// Sets of nodes on which later containers of the pod find memory of ended init containers.
    pub(super) fn sets_with_init_memory(&self) -> BTreeSet<NodeSet> {
        let kept = self.init_memory.iter().flat_map(|init| init.kept.keys());
        kept.map(|(zone, _)| zone.clone()).collect()
    }

    /// What a container on one of these sets finds.
    pub(super) fn memory_on(&self, nodes: &NodeSet) -> Option<ZoneAccount> {
        self.init_memory.as_ref().filter(|_| self.sets_with_init_memory().contains(nodes))?.on(Some(nodes))
    }

    /// CPUs that nobody else has, of these, which may be exclusive, as far as this container may run there.
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

    /// Exclusive CPUs of all beside whom the next container of the pod runs.
    pub(super) fn not_shared(&self) -> CpuSet {
        self.taken.union(&self.held)
    }

    /// Exclusive CPUs of all.
    pub(super) fn exclusive(&self) -> CpuSet {
        self.taken.union(&self.reusable).union(&self.held)
    }

    /// Memory without the soft promises of others; none when there are none.
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

    /// A container was given this.
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
            self.load = Load::of(beside.map(|(_, grant)| grant));
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

/// Is what it was promised of memory a preference only, that gives way to promises of Guaranteed pods?
pub(super) fn is_soft(grant: &Grant) -> bool {
    grant.engine == super::HintsEngine::NAME
        && grant.memory_priority < MemoryPriority::Guaranteed
        && !grant.memory.is_empty()
}

/// Of these CPUs those that the cgroups above, and rules, leave the container.
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

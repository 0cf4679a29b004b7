//! Places a cgroup outside Kubernetes, as a pod of one container.
//!
//! Problem: a workload that is already running in a cgroup should get exclusive CPUs on one node, with as
//! little disturbance as possible. Idea: it asks the engine `hints` like a Guaranteed pod under
//! `single-numa-node`. The state of the running workload narrows the request: only nodes that its rule and
//! the cgroups above allow, with enough memory available near them *now*. Among those the engine prefers the
//! node with most of its memory, because CPUs move at once and pages do not. A current placement is kept
//! while it is valid.
//!
//! The memory of a CPU node is its own and that of memory-only nodes local to it, as for pods.
//!
//! Unless its entry names another engine, policy or class, a workload is never split over nodes. If it is too
//! large for every node, it is refused with the shortage.

use std::collections::BTreeMap;

use crate::{
    model::{WorkloadModel, accessed_bytes},
    policy::{
        DeclaredClass, hints_of_cgroups,
        placement::{HintsOptions, PlacementEngine, PlacementSettings, PoolsSettings, TopologyPolicy},
    },
    words,
    workload::{CgroupPath, QosClass},
};
use numa_placement::{
    Allocations, ContainerRequest, CpuClass, Grant, Holder, Inventory, MemoryPriority, MemoryResource,
    PodName, PodRequest, Rejection, RejectionProblem, RejectionReason, Resources, Shortage, Trace, Wishes,
    admit, admit_traced, engine_name,
    hints::cpu::CpuOptions,
    memory::ZoneAccount,
    pools::Documents,
    rejection::units_of,
    resize_traced,
    room::{FittingAmount, would_fit},
    taken,
};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Request for one cgroup, with its constraints.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupRequest<'a> {
    /// The cgroup.
    pub cgroup: &'a CgroupPath,
    /// Number of CPUs, at least 1.
    pub cpus: u32,
    /// Bytes of memory, if declared.
    pub memory_bytes: Option<u64>,
    /// Its current state.
    pub now: Option<&'a WorkloadModel>,
    /// Nodes that it may use; all when absent.
    pub nodes: Option<&'a NodeSet>,
    /// Constraints by the cgroup above; none when absent.
    pub bounds: Option<CgroupBounds>,
    /// Bytes available to the workload on each node, including what it already has there. Nodes without a
    /// known value are missing and checked by their size alone.
    pub available_bytes: BTreeMap<NodeId, u64>,
    /// CPUs that other cgroups are pinned to: none of them is chosen, but CPUs that it already has are kept.
    pub avoids: CpuSet,
    /// Wishes of its entry besides amounts; none when absent.
    pub wished: Option<Wished<'a>>,
}

/// Wishes of a configuration entry for a cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wished<'a> {
    /// The wishes.
    pub wishes: &'a Wishes,
    /// Wishes that this machine cannot meet.
    pub unknown: &'a [String],
    /// Settings of the engine `pools`, if that engine is wished for.
    pub pools: &'a PoolsSettings,
}

/// Constraints that a cgroup passes on to its descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupBounds {
    /// The cgroup.
    pub cgroup: CgroupPath,
    /// Its effective CPUs; `None` if unknown.
    pub cpus: Option<CpuSet>,
    /// Its effective memory nodes; `None` if unknown.
    pub mems: Option<NodeSet>,
}

impl CgroupRequest<'_> {
    /// Settings under which a cgroup is placed, before its wishes.
    fn settings(&self) -> PlacementSettings {
        let mut settings = PlacementSettings::default();
        settings.engine = PlacementEngine::Hints;
        settings.hints = hints_of_cgroups();
        settings.pools = self.wished.map(|wished| wished.pools.clone()).unwrap_or_default();
        settings
    }

    fn wish<T>(&self, of: impl Fn(&Wishes) -> Option<T>) -> Option<T> {
        of(self.wished?.wishes)
    }

    fn class(&self) -> Option<DeclaredClass> {
        self.wish(|wishes| wishes.class)
    }

    /// Does it need exclusive CPUs?
    fn alone(&self) -> bool {
        self.wish(Wishes::alone) != Some(false)
    }

    /// Current placement of the cgroup, if it is a valid answer to the request: a valid placement is never
    /// moved.
    pub fn keep(&self, inventory: &Inventory, allocations: &Allocations) -> Option<Grant> {
        if !self.is_usual() {
            return match allocations.get(&Holder::cgroup(self.cgroup)) {
                Some(grant) => {
                    let holder = Holder::cgroup(self.cgroup);
                    let mut others = allocations.iter().filter(|(other, _)| **other != holder);
                    let apart = others.all(|(_, other)| other.exclusive.is_disjoint(&grant.exclusive));
                    (apart && self.is_answered_by(grant, inventory)).then(|| grant.clone())
                }
                None => self.adopted(inventory, allocations),
            };
        }
        let has = self.now?.cpus.as_ref()?;
        let mems = self.now?.mems.as_ref()?;
        let machine = &inventory.machine;
        let nodes = machine.nodes_of(has);
        let node = nodes.first().filter(|_| nodes.len() == 1)?;
        let zones = self.zones(inventory);
        let zone = zones.get(&node).filter(|zone| self.has_room(inventory, zone))?;
        // Memory for the kernel may be on any node.
        let near = mems.intersection(zone);
        let own = zone.intersection(&nodes);
        let is_near = !near.is_empty()
            && own.is_subset(&near)
            && (near == *mems || machine.with_kernel_memory(near.clone(), &all_of(&zones)) == *mems);
        let holder = Holder::cgroup(self.cgroup);
        let mut others = allocations.iter().filter(|(other, _)| **other != holder);
        let needed = self.needed_bytes(inventory);
        let mut account = ZoneAccount::new(inventory, allocations, |other| *other == holder);
        let valid = is_near
            && has.len() == usize::try_from(self.cpus).ok()?
            && has.is_subset(&self.allowed_cpus(inventory))
            && others.all(|(_, grant)| grant.exclusive.is_disjoint(has))
            && account.fits(&near, MemoryResource::Memory, needed);
        let claim = account.promise(&near, MemoryResource::Memory, needed);
        valid.then(|| Grant {
            engine: "hints",
            policy: TopologyPolicy::SingleNumaNode.as_str(),
            class: CpuClass::Exclusive,
            exclusive: has.clone(),
            mems: mems.clone(),
            memory: vec![claim],
            pin_cpus: true,
            pin_mems: true,
            memory_priority: MemoryPriority::Guaranteed,
            reason: format!("already on node {node} with CPUs {has}"),
            ..Grant::default()
        })
    }

    /// Does it have no wishes, so that it gets one node and exclusive CPUs?
    fn is_usual(&self) -> bool {
        self.engine() == PlacementEngine::Hints
            && matches!(self.wish(|wishes| wishes.policy), None | Some(TopologyPolicy::SingleNumaNode))
            && matches!(self.class(), None | Some(DeclaredClass::Exclusive))
            && self.options().is_none()
    }

    fn options(&self) -> Option<&HintsOptions> {
        let options = self.wished.map(|wished| &wished.wishes.options);
        options.filter(|options| !options.is_empty())
    }

    fn cpu_options(&self) -> Option<CpuOptions> {
        let options = self.options()?;
        let mut hints = self.settings().hints;
        options.apply(&mut hints);
        Some(CpuOptions::from(&hints))
    }

    /// Are these CPUs on cores as its options ask?
    fn are_on_cores_as_asked(&self, inventory: &Inventory, cpus: &CpuSet) -> bool {
        self.cpu_options().is_none_or(|options| options.are_met_by(&inventory.layout, cpus))
    }

    /// Does it ask for CPUs of different cores? The engine spreads over cores as the kubelet does, and takes
    /// a second thread of one where it runs out of cores; here that is a refusal.
    fn is_one_thread_per_core(&self) -> bool {
        self.alone()
            && self.engine() == PlacementEngine::Hints
            && self.cpu_options().is_some_and(|options| options.distribute_across_cores)
    }

    /// Of each core the first CPU that may be newly chosen and that no other workload has.
    fn one_thread_per_core(&self, inventory: &Inventory, allocations: &Allocations) -> CpuSet {
        let holder = Holder::cgroup(self.cgroup);
        let others = allocations.iter().filter(|(other, _)| **other != holder);
        let free =
            others.fold(self.may_be_its_own(inventory), |free, (_, grant)| free.difference(&grant.exclusive));
        let cores = inventory.layout.cores.iter();
        cores.filter_map(|(_, core)| free.intersection(core).first()).collect()
    }

    fn engine(&self) -> PlacementEngine {
        self.wish(|wishes| wishes.engine).unwrap_or(PlacementEngine::Hints)
    }

    /// Is this grant still an answer to the request? An engine's score of a place depends on other workloads,
    /// and their arrival or end moves no workload.
    fn is_answered_by(&self, grant: &Grant, inventory: &Inventory) -> bool {
        let engine = match self.engine() {
            PlacementEngine::Hints => engine_name::HINTS,
            PlacementEngine::Pools => engine_name::POOLS,
        };
        let as_many = match &grant.shared {
            _ if self.alone() => u32::try_from(grant.exclusive.len()).is_ok_and(|count| count == self.cpus),
            Some(shared) => shared.milli_cpus == u64::from(self.cpus) * 1000 && grant.exclusive.is_empty(),
            None => false,
        };
        let policy = self.wish(|wishes| wishes.policy).unwrap_or(TopologyPolicy::SingleNumaNode);
        let promised = || grant.memory.iter().map(|claim| claim.bytes).sum::<u64>();
        grant.engine == engine
            && (engine == engine_name::POOLS || grant.policy == policy.as_str())
            && as_many
            && grant.exclusive.is_subset(&self.allowed_cpus(inventory))
            && self.are_on_cores_as_asked(inventory, &grant.exclusive)
            && grant.mems.is_subset(&self.usable_nodes(inventory))
            && self.memory_bytes.is_none_or(|bytes| promised() == bytes)
    }

    /// Current placement without a record (from before a restart, or set by hand), if the engine would give
    /// exactly that.
    fn adopted(&self, inventory: &Inventory, allocations: &Allocations) -> Option<Grant> {
        let (cpus, mems) = self.now.and_then(|now| now.cpus.as_ref().zip(now.mems.as_ref()))?;
        let as_asked = self.alone()
            && u32::try_from(cpus.len()).is_ok_and(|count| count == self.cpus)
            && cpus.is_subset(&self.allowed_cpus(inventory))
            && self.are_on_cores_as_asked(inventory, cpus)
            && mems.is_subset(&self.usable_nodes(inventory));
        let apart = self.may_be_apart();
        let near = if apart { inventory.machine.nodes_of(cpus) } else { NodeSet::new() };
        let mut pod = self.pod(inventory);
        let container = pod.containers.first_mut().filter(|_| as_asked)?;
        container.allowed_cpus = Some(cpus.clone());
        container.allowed_nodes = Some(mems.union(&near));
        let mut trial = allocations.clone();
        let admission = admit(inventory, &self.settings(), &mut trial, &pod).ok()?;
        let holder = Holder::cgroup(self.cgroup);
        let grant = admission.grants.into_iter().next()?.grant;
        if !apart {
            return Some(grant);
        }
        let mut account = ZoneAccount::new(inventory, allocations, |other| *other == holder);
        let needed = self.needed_bytes(inventory);
        account.fits(mems, MemoryResource::Memory, needed).then(|| Grant {
            mems: mems.clone(),
            memory: vec![account.promise(mems, MemoryResource::Memory, needed)],
            ..grant
        })
    }

    /// Does its policy allow memory on any node? Then a current placement is valid even if the memory is far
    /// from its CPUs.
    fn may_be_apart(&self) -> bool {
        self.engine() == PlacementEngine::Hints
            && self.wish(|wishes| wishes.policy) == Some(TopologyPolicy::None)
    }

    /// Places the cgroup and records the grant in the allocations; on an error they are unchanged.
    pub fn place(&self, inventory: &Inventory, allocations: &mut Allocations) -> Result<Grant, Rejection> {
        self.place_traced(inventory, allocations, &mut Trace::default())
    }

    /// [`Self::place`], with the candidates in `trace`.
    pub fn place_traced(
        &self,
        inventory: &Inventory,
        allocations: &mut Allocations,
        trace: &mut Trace,
    ) -> Result<Grant, Rejection> {
        let mut pod = self.pod(inventory);
        if let Some(container) = pod.containers.first_mut().filter(|_| self.is_one_thread_per_core()) {
            container.allowed_cpus = Some(self.one_thread_per_core(inventory, allocations));
        }
        let holder = Holder::cgroup(self.cgroup);
        let had_none = allocations.get(&holder).is_none();
        let admit = if had_none { admit_traced } else { resize_traced };
        let free = self.may_be_its_own(inventory).difference(&allocations.exclusive_cpus());
        let admission = admit(inventory, &self.settings(), allocations, &pod, trace)
            .map_err(|rejection| self.explained(inventory, allocations, rejection).outside_pods())?;
        let mut grant = admission.grants.into_iter().next().map(|own| own.grant).unwrap_or_default();
        if self.is_usual() {
            // A recorded grant takes precedence over the current cpuset.
            if let Some(own) = self.right_already(inventory, &grant, &free).filter(|_| had_none) {
                grant.exclusive = own;
            }
            self.widen_to_room(inventory, allocations, &mut grant);
            grant.reason = self.why(inventory, &grant, &free);
        }
        if let Some(options) = self.options() {
            grant.reason = format!("{}; options {options}", grant.reason);
        }
        for unknown in self.wished.map_or(&[][..], |wished| wished.unknown) {
            grant.reason = format!("{}; {unknown}", grant.reason);
        }
        allocations.give(holder, grant.clone());
        Ok(grant)
    }

    /// Its current CPUs, if they are as many as granted, on the same node, and free: other CPUs would be no
    /// better.
    fn right_already(&self, inventory: &Inventory, grant: &Grant, free: &CpuSet) -> Option<CpuSet> {
        let has = self.now?.cpus.as_ref()?;
        let machine = &inventory.machine;
        let as_good = has.len() == grant.exclusive.len()
            && has.is_subset(&free.union(&grant.exclusive))
            && machine.nodes_of(has) == machine.nodes_of(&grant.exclusive);
        as_good.then(|| has.clone())
    }

    fn why(&self, inventory: &Inventory, grant: &Grant, free: &CpuSet) -> String {
        let nodes = inventory.machine.nodes_of(&grant.exclusive);
        let Some(node) = nodes.first().and_then(|node| inventory.node(node)) else {
            return String::new();
        };
        let held = self.now.and_then(|now| now.bytes_by_node.as_ref()).into_iter().flatten();
        let held = held.filter(|(node, _)| grant.mems.contains(**node));
        let holds = match held.fold(0u64, |sum, (_, bytes)| sum.saturating_add(accessed_bytes(bytes))) {
            0 => String::new(),
            bytes => format!(", holds {} of its memory", words::size(bytes)),
        };
        let free = node.cpus.intersection(free).union(&grant.exclusive).len();
        format!("node {} has {} for {}{holds}", node.id, words::count(free, "free CPU"), self.cpus)
    }

    /// Its request as a container.
    pub fn container(&self, inventory: &Inventory) -> ContainerRequest {
        let amounts = Resources {
            milli_cpus: Some(u64::from(self.cpus) * 1000),
            memory_bytes: Some(self.needed_bytes(inventory)),
            hugepages: BTreeMap::new(),
        };
        let held = self.now.and_then(|now| now.bytes_by_node.as_ref());
        let ordinary = inventory.machine.ordinary_memory_nodes();
        ContainerRequest {
            name: String::new(),
            requests: amounts.clone(),
            limits: amounts,
            allowed_cpus: Some(self.open_cpus(inventory)),
            allowed_nodes: Some(self.allowed_nodes(inventory)),
            resident_bytes: held
                .into_iter()
                .flatten()
                .filter(|(node, _)| ordinary.contains(**node))
                .map(|(node, bytes)| (*node, accessed_bytes(bytes)))
                .collect(),
            wishes: self.wish(|wishes| Some(wishes.clone())).unwrap_or_default(),
            ..ContainerRequest::default()
        }
    }

    fn pod(&self, inventory: &Inventory) -> PodRequest {
        PodRequest {
            name: PodName::of_cgroup(self.cgroup),
            qos: QosClass::Guaranteed,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            documents: Documents::default(),
            containers: vec![self.container(inventory)],
            previous: BTreeMap::new(),
            undescribed: None,
        }
    }

    /// Bytes that must fit: the declared ones, else those that the workload has now.
    fn needed_bytes(&self, inventory: &Inventory) -> u64 {
        let resident = || self.now?.ordinary_bytes(&inventory.machine);
        self.memory_bytes.or_else(resident).unwrap_or(0)
    }

    /// CPUs of the requested kind that the cgroups above allow. The engine `pools` is restricted by CPUs, not
    /// by nodes.
    fn allowed_cpus(&self, inventory: &Inventory) -> CpuSet {
        let isolated = self.class() == Some(DeclaredClass::Isolated);
        let mut all = match self.engine() {
            // The request is about CPUs of one kind; the other kind stays allowed, because it determines
            // whether a pool has room.
            PlacementEngine::Pools if isolated => inventory.allowed_cpus.clone(),
            _ if isolated => inventory.cpus_of_kind(true),
            // For any profile of the engine.
            _ => inventory.shareable_cpus().difference(&inventory.machine.isolated_cpus),
        };
        if let Some(nodes) = self.nodes.filter(|_| self.engine() == PlacementEngine::Pools) {
            let near = inventory.machine.cpus_of(nodes);
            all = if near.is_empty() { all } else { all.intersection(&near) };
        }
        let above = self.bounds.as_ref().and_then(|bounds| bounds.cpus.as_ref());
        above.map_or(all.clone(), |above| all.intersection(above))
    }

    /// Those of `allowed_cpus` that may be newly chosen.
    fn open_cpus(&self, inventory: &Inventory) -> CpuSet {
        self.allowed_cpus(inventory).difference(&self.avoids)
    }

    /// Those of `open_cpus` that may be exclusive.
    fn may_be_its_own(&self, inventory: &Inventory) -> CpuSet {
        let own = inventory.exclusive_cpus(self.class() == Some(DeclaredClass::Isolated));
        self.open_cpus(inventory).intersection(&own)
    }

    /// Nodes that it may use: memory nodes near which its memory is available now, and CPU nodes without
    /// memory that they are local to.
    fn allowed_nodes(&self, inventory: &Inventory) -> NodeSet {
        if self.engine() == PlacementEngine::Pools {
            return self.usable_nodes(inventory);
        }
        let ordinary = inventory.machine.ordinary_memory_nodes();
        let mut allowed = NodeSet::new();
        for (node, zone) in self.zones(inventory) {
            // The engine decides the amounts by node, unless all of the memory is on one.
            if self.is_usual() && !self.has_room(inventory, &zone) {
                continue;
            }
            allowed.extend(&zone);
            if !ordinary.contains(node) {
                allowed.insert(node);
            }
        }
        allowed
    }

    /// Memory nodes that it may use.
    fn usable_nodes(&self, inventory: &Inventory) -> NodeSet {
        match self.engine() {
            PlacementEngine::Hints => all_of(&self.zones(inventory)),
            PlacementEngine::Pools => {
                let above = self.bounds.as_ref().and_then(|bounds| bounds.mems.as_ref());
                let all = inventory.machine.ordinary_memory_nodes();
                [self.nodes, above].into_iter().flatten().fold(all, |left, nodes| left.intersection(nodes))
            }
        }
    }

    /// For each CPU node that it may use, the local memory nodes that it may use; CPU nodes without any are
    /// left out. A rule with a CPU node without memory allows the memory local to that node.
    fn zones(&self, inventory: &Inventory) -> BTreeMap<NodeId, NodeSet> {
        let machine = &inventory.machine;
        let (locality, ordinary) = (&inventory.locality, machine.ordinary_memory_nodes());
        let above = self.bounds.as_ref().and_then(|bounds| bounds.mems.as_ref());
        let open = above.map_or_else(|| ordinary.clone(), |above| ordinary.intersection(above));
        let named = self.nodes.map(|nodes| inventory.cpu_nodes().intersection(nodes));
        let mut zones = BTreeMap::new();
        for node in inventory.cpu_nodes().iter() {
            let near: NodeSet =
                open.iter().filter(|id| locality.near_cpu_nodes(*id).contains(node)).collect();
            let is_named = named.as_ref().is_none_or(|named| named.is_empty() || named.contains(node));
            let of_rule = self.nodes.map_or_else(|| near.clone(), |nodes| near.intersection(nodes));
            let has_none =
                !ordinary.contains(node) && named.as_ref().is_some_and(|named| named.contains(node));
            let zone = if of_rule.is_empty() && has_none { near } else { of_rule };
            if is_named && !zone.is_empty() {
                zones.insert(node, zone);
            }
        }
        zones
    }

    /// Bytes available to it on these nodes now; none if unknown for one of them.
    fn available_on(&self, zone: &NodeSet) -> Option<u64> {
        let known = zone.iter().map(|node| self.available_bytes.get(&node).copied());
        known.sum::<Option<u64>>()
    }

    /// Is its memory available there now, as far as known?
    fn has_room(&self, inventory: &Inventory, zone: &NodeSet) -> bool {
        self.available_on(zone).is_none_or(|available| available >= self.needed_bytes(inventory))
    }

    /// Adds memory nodes local to its CPUs, faster memory first, until its memory is available now: promises
    /// do not include memory in use without one.
    fn widen_to_room(&self, inventory: &Inventory, allocations: &Allocations, grant: &mut Grant) {
        let nodes = inventory.machine.nodes_of(&grant.exclusive);
        let zones = self.zones(inventory);
        let Some(zone) = nodes.first().and_then(|node| zones.get(&node)) else { return };
        let mut near = grant.mems.intersection(zone);
        let had = near.len();
        for node in inventory.machine.fastest_first(&zone.difference(&grant.mems)) {
            if self.has_room(inventory, &near) {
                break;
            }
            near.insert(node);
        }
        if near.len() > had {
            let holder = Holder::cgroup(self.cgroup);
            let mut account = ZoneAccount::new(inventory, allocations, |other| *other == holder);
            let needed = self.needed_bytes(inventory);
            grant.memory = vec![account.promise(&near, MemoryResource::Memory, needed)];
            grant.mems.extend(&near);
        }
    }

    /// Adds causes that the engine cannot know: the bound that excluded all nodes, and memory that is short
    /// now.
    fn explained(&self, inventory: &Inventory, allocations: &Allocations, rejection: Rejection) -> Rejection {
        let usable = self.usable_nodes(inventory);
        if usable.is_empty() {
            let declared = self.nodes.map(|nodes| format!("numa_nodes of its rule is {nodes}"));
            let above = self.bounds.as_ref().and_then(|bounds| {
                let mems = bounds.mems.as_ref()?;
                Some(format!("cpuset.mems.effective of {} is {mems}", bounds.cgroup))
            });
            let why: Vec<String> = declared.into_iter().chain(above).collect();
            let excluded_by = if why.is_empty() { "the machine has none".to_owned() } else { why.join(", ") };
            let problem = RejectionProblem::NoAllowedNode { excluded_by };
            let asked = [self.nodes, self.bounds.as_ref().and_then(|bounds| bounds.mems.as_ref())];
            let nodes = asked.into_iter().flatten().find(|nodes| !nodes.is_empty()).cloned();
            let nodes = nodes.unwrap_or_else(|| inventory.cpu_nodes());
            let (resource, wanted) = ("cpu".to_owned(), u64::from(self.cpus));
            let nothing = FittingAmount::together(&resource, nodes.clone(), 0);
            let shortages = vec![Shortage { resource, nodes, wanted, available: 0 }];
            return Rejection::new(rejection.reason, problem).short_of(shortages, &[nothing]);
        }
        let zones = self.zones(inventory);
        let without_room = |zone: &&NodeSet| self.is_usual() && !self.has_room(inventory, zone);
        let shortages = zones.values().filter(without_room).filter_map(|zone| {
            let available = self.available_on(zone)?;
            let (resource, wanted) = ("memory".into(), self.needed_bytes(inventory));
            Some(Shortage { resource, nodes: zone.clone(), wanted, available })
        });
        let shortages = shortages.collect::<Vec<_>>();
        // The engine had no nodes, so its count of CPUs is 0 too.
        let mut rejection = if !zones.is_empty() && shortages.len() == zones.len() {
            self.without_memory(inventory, allocations, rejection.reason, &zones)
        } else {
            rejection
        };
        let known = zones.values().filter_map(|zone| Some((zone, self.available_on(zone)?)));
        let most = known.max_by_key(|(zone, bytes)| (*bytes, std::cmp::Reverse(zone.first())));
        let room = most.filter(|_| !shortages.is_empty());
        let room = room.map(|(zone, bytes)| FittingAmount::together("memory", zone.clone(), bytes));
        let rooms: Vec<FittingAmount> = room.into_iter().collect();
        // The engine's own shortages are reported in its units.
        let units = std::mem::take(&mut rejection.wording.units).or(units_of(&shortages, &rooms));
        let fits = would_fit(&rooms, &units).into_iter().chain(rejection.fits).collect::<Vec<_>>();
        rejection.wording.units = units;
        rejection.fits = (!fits.is_empty()).then(|| fits.join("; "));
        rejection.shortages.splice(..0, shortages);
        rejection
    }

    /// No node has enough memory: CPUs are reported as short only if no allowed node has enough.
    fn without_memory(
        &self,
        inventory: &Inventory,
        allocations: &Allocations,
        reason: RejectionReason,
        zones: &BTreeMap<NodeId, NodeSet>,
    ) -> Rejection {
        let (holder, wanted) = (Holder::cgroup(self.cgroup), u64::from(self.cpus));
        let mut free = self.may_be_its_own(inventory);
        for (_, grant) in allocations.iter().filter(|(other, _)| **other != holder) {
            free = free.difference(&grant.exclusive);
        }
        let nodes: NodeSet = zones.keys().copied().collect();
        let room = FittingAmount::of_cpus(&inventory.machine, &nodes, &free).on_one_node();
        let short = room.best().filter(|(_, available)| *available < wanted);
        let short = short.map(|(node, available)| Shortage {
            resource: "cpu".to_owned(),
            nodes: NodeSet::from_iter([node]),
            wanted,
            available,
        });
        let rejection = Rejection::new(reason, RejectionProblem::NoNodeWithMemory)
            .short_of(short.into_iter().collect(), &[room]);
        taken::explained(inventory, allocations, &self.pod(inventory), rejection)
    }
}

fn all_of(zones: &BTreeMap<NodeId, NodeSet>) -> NodeSet {
    zones.values().fold(NodeSet::new(), |all, zone| all.union(zone))
}

#[cfg(test)]
mod tests;

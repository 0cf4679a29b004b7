//! Places one pod: ask, judge and give, container by container.
//!
//! The order of resources is that of the kubelet: devices, CPUs, memory; the first failure ends it. If the
//! whole pod is asked for at once (scope `pod`), the answer holds for every container.
//!
//! Over a resize or restart a container keeps its grant: all of it if the request is unchanged, otherwise as
//! many of its CPUs as possible. Only if that fails, it is placed from scratch.

use super::{
    Offers,
    accounts::{Accounts, restricted},
    asker::Asker,
    beside,
    cpu::{self, CpuOptions, CpuPick, CpuStock},
    demand::Demand,
    device::{self, DeviceStock},
    kubelet,
    local::LocalMemory,
    memory::{self, MemoryStock},
    no_cpus::no_cpus,
    positions,
    question::{Alignment, NodeSetQuestion},
    refusal::{ResourceFit, not_aligned},
    shared::SharedStock,
};
use crate::{
    Allocations, ContainerRequest, Grant, Holder, Inventory, MemoryResource, PodRequest, QosClass, Rejection,
    Trace,
    memory::ZoneAccount,
    room::FittingAmount,
    settings::{HintsSettings, MemoryManagerPolicy, TopologyPolicy},
};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// A pod that is being placed.
pub(super) struct HintsPlacing<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) allocations: &'a mut Allocations,
    pub(super) pod: &'a PodRequest,
    pub(super) accounts: Accounts,
    /// Whether a promise was made regardless of soft ones.
    pub(super) over_soft: bool,
}

impl<'a> HintsPlacing<'a> {
    pub(super) fn new(
        inventory: &'a Inventory,
        allocations: &'a mut Allocations,
        pod: &'a PodRequest,
    ) -> Self {
        let accounts = Accounts::new(inventory, allocations);
        Self { inventory, allocations, pod, accounts, over_soft: false }
    }

    /// Records the grant of a container.
    pub(super) fn give(&mut self, index: usize, container: &ContainerRequest, grant: &Grant) {
        let holder = Holder::new(self.pod.name.clone(), container.name.clone());
        self.allocations.give(holder, grant.clone());
        self.accounts.note(self.inventory, self.allocations, self.pod, index, grant);
    }

    /// The best place that the policy accepts.
    pub(super) fn align(
        &mut self,
        asker: Asker<'_>,
        demand: &Demand,
        trace: &mut Trace,
    ) -> Result<Alignment, Rejection> {
        let Asker { nodes, settings, .. } = asker;
        let room = self.shared_stock(asker);
        let local = self.local(asker);
        // Without memory one level is enough.
        let levels = if is_memory_asked(asker, demand) { local.levels() } else { 1 };
        let mut best: Option<(u8, NodeSetQuestion<'_>, Option<Alignment>)> = None;
        for level in 0..levels {
            let mut question = self.question(asker, demand, &room, local.level(level));
            let guaranteed = self.pod.qos == QosClass::Guaranteed && !demand.memory.is_empty();
            let firm_alone = || {
                let memory = guaranteed
                    .then(|| {
                        self.accounts.firm(self.inventory, self.allocations, self.pod, asker.index).cloned()
                    })
                    .flatten()?;
                Some(self.offers(asker, demand, &memory, local.level(level)).0)
            };
            let (exclusive, shares) = (demand.exclusive, demand.shared.is_some());
            let settled = question.answer(firm_alone, |mask| room.burden(mask, exclusive, shares));
            let settled = settled.map(|settled| Alignment { level, ..settled });
            let rank = match settled {
                Some(settled) if settled.merged.preferred => 0,
                Some(settled) if question.has_everything(settled) => 1,
                Some(_) => 2,
                None => 3,
            };
            // Of two refusals, the one that counted more memory.
            if best.as_ref().is_none_or(|(least, ..)| rank < *least || rank == 3) {
                best = Some((rank, question, settled));
            }
            if rank == 0 {
                break;
            }
        }
        let question = |level| self.question(asker, demand, &room, local.level(level));
        // There is at least one level.
        let (_, question, settled) = best.unwrap_or_else(|| (3, question(0), None));
        if trace.is_wanted() {
            trace.consider(super::candidates::of(&question, settled, asker.container));
        }
        let Some(settled) = settled else {
            let memory = self.accounts.firm(self.inventory, self.allocations, self.pod, asker.index);
            let memory = memory.cloned().unwrap_or_else(|| self.accounts.memory.clone());
            let lines = self.lines(asker, demand, &memory, local.level(levels));
            let single = settings.policy == TopologyPolicy::SingleNumaNode;
            let rejection = not_aligned(nodes, single, &lines, &question.firm);
            let is_short = rejection.shortages.iter().any(|short| is_memory(&short.resource));
            let near = local.zone(levels, nodes.all());
            return Err(match super::refusal::left_out(&self.inventory.machine, &near) {
                left_out if is_short && !settings.is_kubelet() => rejection.leaving_out(left_out),
                _ => rejection,
            });
        };
        self.over_soft |= settled.over_soft;
        Ok(settled)
    }

    fn question<'q>(
        &self,
        asker: Asker<'q>,
        demand: &Demand,
        room: &SharedStock,
        zones: &[NodeSet],
    ) -> NodeSetQuestion<'q> {
        let Asker { nodes, settings, .. } = asker;
        let (firm, mut soft) = self.offers(asker, demand, &self.accounts.memory, zones);
        if let Some(millis) = demand.shared.filter(|_| settings.align_all_qos) {
            soft.push(("cpu".to_owned(), room.offer(millis)));
        }
        let mut resident = Vec::new();
        if !settings.is_kubelet() {
            soft.extend(beside::offers(nodes, asker.container, self.pod));
            resident = self.resident(asker);
        }
        NodeSetQuestion { nodes, settings, qos: self.pod.qos, firm, soft, resident }
    }

    /// Memory by the CPU nodes that it is local to.
    pub(super) fn local(&self, asker: Asker<'_>) -> LocalMemory {
        let everywhere = self.memory_nodes(asker);
        if asker.settings.is_kubelet() {
            return LocalMemory::of_each_node(asker.nodes, everywhere);
        }
        LocalMemory::new(self.inventory, asker.nodes, everywhere)
    }

    /// Nodes that may hold the asker's memory.
    fn memory_nodes(&self, asker: Asker<'_>) -> NodeSet {
        let machine = &self.inventory.machine;
        let all = if asker.settings.is_kubelet() {
            machine.memory_nodes()
        } else {
            machine.ordinary_memory_nodes()
        };
        match asker.container.and_then(|container| container.allowed_nodes.as_ref()) {
            Some(allowed) if !all.is_disjoint(allowed) => all.intersection(allowed),
            _ => all,
        }
    }

    /// Firm and soft offers except those of shared CPUs; `zones` is the memory of each node.
    fn offers(
        &self,
        asker: Asker<'_>,
        demand: &Demand,
        memory: &ZoneAccount,
        zones: &[NodeSet],
    ) -> (Offers, Offers) {
        let devices = demand.devices.iter().map(|(resource, count)| {
            (resource.clone(), device::offer(&self.device_stock(asker, resource), *count))
        });
        let mut firm: Offers = devices.collect();
        if demand.exclusive > 0 {
            let stock = self.cpu_stock(asker, demand.exclusive);
            let options = CpuOptions::from(asker.settings);
            let usable = self.usable(asker);
            let stock = CpuStock {
                available: &stock.available,
                reusable: &stock.reusable,
                allocated: None,
                usable: usable.as_ref(),
            };
            let offer = cpu::offer(&self.inventory.layout, asker.nodes, &stock, demand.exclusive, options);
            firm.push(("cpu".to_owned(), offer));
        }
        let mut offered = Offers::new();
        if is_memory_asked(asker, demand) {
            offered = memory_offers(asker, demand, memory, zones);
            for set in self.accounts.sets_with_init_memory() {
                let account = self.accounts.memory_on(&set);
                let of_set = account.as_ref().map(|account| memory_offers(asker, demand, account, zones));
                kubelet::add(&mut offered, of_set, asker.nodes.mask(&set));
            }
        }
        if asker.settings.is_kubelet() {
            kubelet::restate(self.inventory, asker, &mut firm, &mut offered);
        }
        if self.pod.qos == QosClass::Guaranteed {
            firm.extend(offered);
            (firm, Offers::new())
        } else {
            (firm, offered)
        }
    }

    /// CPUs that it could use on an empty machine; `None` if that is all of them.
    fn usable(&self, asker: Asker<'_>) -> Option<CpuSet> {
        let all = &self.inventory.cpus_of_kind(self.wants_isolated(asker));
        let limited = asker
            .container
            .is_some_and(|container| container.allowed_cpus.is_some() || container.allowed_nodes.is_some());
        let fewer = all.len() < self.inventory.layout.cpus.len() && !asker.settings.is_kubelet();
        (limited || fewer).then(|| restricted(self.inventory, all, asker.container))
    }

    /// CPUs that it could have exclusively.
    fn available(&self, asker: Asker<'_>) -> CpuSet {
        let may_be_exclusive = self.inventory.exclusive_cpus(self.wants_isolated(asker));
        self.accounts.available(self.inventory, &may_be_exclusive, asker.container)
    }

    /// Does it want isolated CPUs? For a pod: do all of its containers?
    fn wants_isolated(&self, asker: Asker<'_>) -> bool {
        match asker.container {
            Some(container) => container.wants_isolated(),
            None => self.pod.containers.iter().all(ContainerRequest::wants_isolated),
        }
    }

    /// Available CPUs, and those that must be kept.
    fn cpu_stock(&self, asker: Asker<'_>, count: usize) -> OwnedStock {
        let available = self.available(asker);
        if asker.kept.len() > count {
            return OwnedStock { available: asker.kept.clone(), reusable: CpuSet::new() };
        }
        let reusable = restricted(self.inventory, &self.accounts.reusable, asker.container);
        if asker.reuse {
            OwnedStock { available, reusable: reusable.union(asker.kept) }
        } else {
            OwnedStock { available: available.union(&reusable), reusable: asker.kept.clone() }
        }
    }

    pub(super) fn device_stock<'b>(&'b self, asker: Asker<'b>, resource: &'b str) -> DeviceStock<'b> {
        DeviceStock::new(self.inventory, self.allocations, asker.nodes, self.pod, asker.index, resource)
    }

    /// CPUs that containers without exclusive CPUs may share, apart from exclusive ones.
    pub(super) fn pool(&self, asker: Asker<'_>) -> CpuSet {
        restricted(self.inventory, &shared_pool(self.inventory, asker.settings), asker.container)
    }

    pub(super) fn shared_stock(&self, asker: Asker<'_>) -> SharedStock {
        let taken = self.accounts.not_shared();
        // Sharing containers also run on reserved CPUs, but these do not count as capacity.
        let room = self.pool(asker).difference(&self.inventory.reserved_cpus);
        SharedStock::new(&self.inventory.layout, asker.nodes, &room, &taken, &self.accounts.load)
    }

    /// Bytes that the container has already, by position of the node; else those that it was promised before.
    fn resident(&self, asker: Asker<'_>) -> Vec<u64> {
        let Some(container) = asker.container else { return Vec::new() };
        let mut bytes = container.resident_bytes.clone();
        if bytes.is_empty()
            && let Some(before) = self.pod.previous.get(&container.name)
        {
            bytes = before.memory_by_node();
        }
        if bytes.values().all(|bytes| *bytes == 0) {
            return Vec::new();
        }
        // Memory on a memory-only node counts for the CPU nodes that it is local to.
        let locality = &self.inventory.locality;
        let near = |node: &NodeId| {
            let near = bytes.iter().filter(|(at, _)| locality.is_near_to(**at, *node));
            near.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
        };
        asker.nodes.ids().iter().map(near).collect()
    }

    /// Exclusive CPUs from the chosen nodes as far as available, then from any node.
    pub(super) fn take_cpus(
        &self,
        asker: Asker<'_>,
        count: usize,
        affinity: Option<&NodeSet>,
    ) -> Result<CpuSet, Rejection> {
        let options = CpuOptions::from(asker.settings);
        let layout = &self.inventory.layout;
        let available = self.available(asker);
        let reusable = restricted(self.inventory, &self.accounts.reusable, asker.container);
        let refused = |error| {
            let free = available.union(&reusable).union(asker.kept);
            no_cpus(self.inventory, asker, &error, &free)
        };
        if asker.kept.len() >= count {
            let near = affinity.map_or_else(CpuSet::new, |nodes| {
                asker.kept.intersection(&self.inventory.machine.cpus_of(nodes))
            });
            let none = CpuSet::new();
            let (from, keep) = if near.len() >= count { (&near, &none) } else { (asker.kept, &near) };
            return cpu::retain(layout, from, keep, count, options).map_err(refused);
        }
        if !asker.kept.is_empty() {
            let free = available.union(&reusable);
            let near = affinity.map(|nodes| free.intersection(&self.inventory.machine.cpus_of(nodes)));
            let grown = near.map(|near| cpu::grow(layout, asker.kept, &near, count, options));
            return match grown {
                Some(Ok(cpus)) => Ok(cpus),
                _ => cpu::grow(layout, asker.kept, &free, count, options).map_err(refused),
            };
        }
        let reserved = &self.inventory.reserved_cpus;
        let pick = CpuPick { available: &available, reserved, reusable: &reusable, affinity, count };
        if asker.settings.is_kubelet() {
            return kubelet::assign_near(layout, &pick, options).map_err(refused);
        }
        // Memory is on the nodes of the set, so other CPUs of their sockets come second.
        let own =
            affinity.map(|nodes| available.union(&reusable).common(&self.inventory.machine.cpus_of(nodes)));
        let by_socket = options.align_by_socket && own.is_none_or(|own| own < count);
        let options = CpuOptions { align_by_socket: by_socket, ..options };
        cpu::assign_near(layout, &pick, options).map_err(refused)
    }

    /// One line per resource, for a rejection.
    fn lines(
        &self,
        asker: Asker<'_>,
        demand: &Demand,
        memory: &ZoneAccount,
        zones: &[NodeSet],
    ) -> Vec<ResourceFit> {
        let mut lines = Vec::new();
        if demand.exclusive > 0 {
            lines.push(self.cpu_line(asker, demand.exclusive));
        }
        if self.pod.qos == QosClass::Guaranteed && is_memory_asked(asker, demand) {
            lines.extend(memory_lines(asker, demand, memory, zones));
        }
        lines
            .extend(demand.devices.iter().map(|(resource, count)| self.device_line(asker, resource, *count)));
        lines
    }

    fn cpu_line(&self, asker: Asker<'_>, exclusive: usize) -> ResourceFit {
        let OwnedStock { available, reusable } = self.cpu_stock(asker, exclusive);
        let had = available.union(&reusable);
        let usable = self.usable(asker);
        let machine = &self.inventory.machine;
        let count = |cpus: usize| u64::try_from(cpus).unwrap_or(u64::MAX);
        ResourceFit {
            room: FittingAmount::of_cpus(machine, &all_nodes(asker), &had),
            resource: "cpu".to_owned(),
            wanted: count(exclusive),
            free: by_node(asker, |node| count(had.common(&machine.cpus_of(node)))),
            capacity: by_node(asker, |node| {
                let cpus = machine.cpus_of(node);
                count(usable.as_ref().map_or_else(|| cpus.len(), |usable| cpus.common(usable)))
            }),
            anywhere: None,
        }
    }

    fn device_line(&self, asker: Asker<'_>, resource: &str, count: u64) -> ResourceFit {
        let stock = self.device_stock(asker, resource);
        let near = |node: &NodeSet| stock.count_near(node);
        let anywhere = stock.anywhere();
        let units = self.inventory.devices.get(resource).map_or(&[][..], Vec::as_slice);
        let all = |node: &NodeSet| units.iter().filter(|unit| !unit.nodes.is_disjoint(node)).count() as u64;
        ResourceFit {
            // Devices without a known node cannot be aligned, unless no node is known for any.
            room: anywhere
                .map_or_else(|| FittingAmount::new(resource, &all_nodes(asker), near), |_| stock.room()),
            resource: resource.to_owned(),
            wanted: count,
            free: by_node(asker, near),
            capacity: by_node(asker, all),
            anywhere,
        }
    }
}

/// One line per kind of memory.
fn memory_lines(
    asker: Asker<'_>,
    demand: &Demand,
    memory: &ZoneAccount,
    zones: &[NodeSet],
) -> Vec<ResourceFit> {
    let local = |nodes: &NodeSet| {
        positions(asker.nodes.mask(nodes)).filter_map(|at| zones.get(at)).fold(
            NodeSet::new(),
            |mut all, zone| {
                all.extend(zone);
                all
            },
        )
    };
    let line = |(resource, bytes): &(MemoryResource, u64)| ResourceFit {
        room: FittingAmount::new(&resource.to_string(), &all_nodes(asker), |nodes| {
            memory.free(&local(nodes), *resource)
        }),
        resource: resource.to_string(),
        wanted: *bytes,
        free: by_node(asker, |node| memory.free(&local(node), *resource)),
        capacity: by_node(asker, |node| memory.capacity(&local(node), *resource)),
        anywhere: None,
    };
    demand.memory.iter().map(line).collect()
}

fn all_nodes(asker: Asker<'_>) -> NodeSet {
    asker.nodes.nodes(asker.nodes.all())
}

/// An amount of each node, in the order of the index.
fn by_node(asker: Asker<'_>, amount: impl Fn(&NodeSet) -> u64) -> Vec<u64> {
    asker.nodes.ids().iter().map(|id| amount(&std::iter::once(*id).collect())).collect()
}

/// Available CPUs, and those that a place must include.
struct OwnedStock {
    available: CpuSet,
    reusable: CpuSet,
}

/// Is it a kind of memory?
fn is_memory(resource: &str) -> bool {
    resource == "memory" || resource.starts_with("hugepages-")
}

/// CPUs that may be shared.
fn shared_pool(inventory: &Inventory, settings: &HintsSettings) -> CpuSet {
    let pool = inventory.shareable_cpus();
    if settings.strict_cpu_reservation { pool.difference(&inventory.reserved_cpus) } else { pool }
}

/// Offers of memory by this account.
fn memory_offers(asker: Asker<'_>, demand: &Demand, account: &ZoneAccount, zones: &[NodeSet]) -> Offers {
    let strict = asker.settings.strict_memory_groups;
    memory::offer(&MemoryStock::of_zones(account, asker.nodes, zones, strict), &demand.memory)
}

/// Does memory affect the choice of nodes?
fn is_memory_asked(asker: Asker<'_>, demand: &Demand) -> bool {
    !demand.memory.is_empty() && asker.settings.memory_manager_policy == MemoryManagerPolicy::Static
}

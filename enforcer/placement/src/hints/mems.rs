//! Memory promises and memory nodes of a container with chosen CPUs.
//!
//! Problem: CPUs are not always where the merge wanted them, and the merged set may have too little memory.
//! Idea: the memory nodes follow the CPUs. The first of these that has room:
//!
//! 1. Only memory of the nodes of its CPUs, if these are outside the chosen set.
//! 2. Memory local to the chosen nodes and to those of its CPUs: only DRAM, then up to the level at which the
//!    set was chosen ([`LocalMemory`]).
//! 3. The same DRAM, plus other nodes one by one: DRAM before HBM before slower memory, near ones first. Not
//!    if the policy requires that all of it is aligned.
//!
//! Invariants: every memory node has ordinary memory and is allowed. If a node of the container's CPUs has
//! allowed ordinary memory, it is one of the memory nodes. At least one has memory for the kernel itself, if
//! an allowed node has; a node that is included only for that gets no promise. The profile `kubelet`
//! guarantees neither, like the kubelet.

use super::{
    NodeIndex,
    asker::Asker,
    demand::Demand,
    give::is_first_fit,
    local::LocalMemory,
    memory::{self, MemoryStock, WantedMemory},
    merge::Merged,
    placing::HintsPlacing,
    question::Alignment,
    refusal::left_out,
};
use crate::{
    MemoryClaim, MemoryResource, QosClass, Rejection, RejectionProblem, RejectionReason, Shortage,
    memory::ZoneAccount,
    rejection::MemoryProblem,
    room::FittingAmount,
    settings::{MemoryManagerPolicy, TopologyPolicy},
};
use numa_topology::{Topology, id::NodeId, set::NodeSet};

/// Memory promises and memory nodes.
type MemoryAndNodes = (Vec<MemoryClaim>, NodeSet);

impl HintsPlacing<'_> {
    /// The memory of a container with CPUs on these nodes.
    pub(super) fn memory(
        &mut self,
        asker: Asker<'_>,
        demand: &Demand,
        settled: Option<Alignment>,
        cpu_nodes: &NodeSet,
    ) -> Result<MemoryAndNodes, Rejection> {
        let local = self.local(asker);
        let everywhere = local.everywhere().clone();
        let guaranteed = self.pod.qos == QosClass::Guaranteed;
        let over_soft = settled.is_some_and(|settled| settled.over_soft) || guaranteed && settled.is_none();
        let firm = if over_soft {
            self.accounts.firm(self.inventory, self.allocations, self.pod, asker.index).cloned()
        } else {
            None
        };
        if settled.is_none() {
            self.over_soft |= firm.is_some();
        }
        let account: &ZoneAccount = firm.as_ref().unwrap_or(&self.accounts.memory);
        if asker.settings.is_kubelet() {
            let set = settled.and_then(|settled| settled.merged.mask).map(|mask| asker.nodes.nodes(mask));
            let own = set.and_then(|set| self.accounts.memory_on(&set));
            let account = own.as_ref().unwrap_or(account);
            return as_kubelet(asker, account, demand, settled, everywhere, guaranteed);
        }
        let machine = &self.inventory.machine;
        let is_loose = settled.is_none() && !guaranteed;
        let chosen = settled.and_then(|settled| settled.merged.mask);
        let place =
            MemorySearch { asker, account, machine, local: &local, cpu_nodes, wanted: &demand.memory };
        if demand.memory.is_empty() {
            let is_aligned = chosen.is_some() && (asker.settings.align_all_qos || guaranteed);
            let mems = if is_aligned { place.at_home() } else { everywhere };
            return Ok((Vec::new(), place.with_kernel_memory(mems)));
        }
        let zone = if is_loose {
            Some(everywhere.clone()).filter(|zone| place.has_room(zone))
        } else {
            place.zone(settled)
        };
        match zone {
            Some(zone) => Ok((place.claims(&zone), place.with_kernel_memory(zone))),
            None if guaranteed => Err(place.refusal(settled)),
            // Only a preference: memory that fits nowhere is neither promised nor pinned.
            None => Ok((Vec::new(), everywhere)),
        }
    }
}

/// Constraints of the memory of one container.
struct MemorySearch<'a> {
    asker: Asker<'a>,
    account: &'a ZoneAccount,
    machine: &'a Topology,
    local: &'a LocalMemory,
    /// Nodes of its CPUs.
    cpu_nodes: &'a NodeSet,
    wanted: &'a WantedMemory,
}

impl MemorySearch<'_> {
    /// The nodes of its memory; none if there is too little.
    fn zone(&self, settled: Option<Alignment>) -> Option<NodeSet> {
        let nodes = self.asker.nodes;
        let of_cpus = nodes.mask(self.cpu_nodes);
        let chosen = settled.and_then(|settled| settled.merged.mask).unwrap_or(0);
        let (level, both) = (settled.map_or(0, |settled| settled.level), chosen | of_cpus);
        let by_cpus = (of_cpus & !chosen != 0).then(|| self.zone_of(0, of_cpus));
        let near = (0..=level).map(|level| self.zone_of(level, both));
        let mut found = by_cpus.into_iter().chain(near).filter(|zone| self.has_room(zone));
        found.next().or_else(|| if self.is_strict() { None } else { self.wider(self.zone_of(0, of_cpus)) })
    }

    /// Memory local to these nodes, and to the nodes of its CPUs that are in no mask.
    fn zone_of(&self, level: usize, mask: super::Mask) -> NodeSet {
        let own = self.cpu_nodes.intersection(self.local.everywhere());
        self.local.zone(level, mask).union(&own)
    }

    /// Must its memory be on the set that all resources agreed on?
    fn is_strict(&self) -> bool {
        let settings = self.asker.settings;
        settings.memory_manager_policy == MemoryManagerPolicy::Static
            && matches!(settings.policy, TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode)
    }

    /// The zone with as few additional nodes as needed: the first node that completes it, else the first that
    /// adds any memory.
    fn wider(&self, mut zone: NodeSet) -> Option<NodeSet> {
        let with = |zone: &NodeSet, node: NodeId| zone.union(&std::iter::once(node).collect());
        let mut others = self.local.others(self.machine, &zone, self.cpu_nodes);
        if self.asker.settings.strict_memory_groups {
            // The rule for groups may allow a larger set but not a smaller one, so each run of the nearest
            // nodes is tried.
            let runs = others.iter().scan(zone, |run, node| {
                *run = with(run, *node);
                Some(run.clone())
            });
            return runs.into_iter().find(|run| self.has_room(run));
        }
        while !others.is_empty() {
            // Faster memory is used up before slower memory is tried.
            let class = |node: NodeId| self.machine.node(node).and_then(numa_topology::Node::memory_class);
            let alike = others.iter().take_while(|node| class(**node) == class(others[0])).count();
            let complete = others[..alike].iter().find(|node| self.has_room(&with(&zone, **node)));
            if let Some(node) = complete {
                return Some(with(&zone, *node));
            }
            let node = others.remove(0);
            let wider = with(&zone, node);
            let adds = |&(resource, _): &(MemoryResource, u64)| {
                self.account.free(&wider, resource) > self.account.free(&zone, resource)
            };
            if self.wanted.iter().any(adds) {
                zone = wider;
            }
        }
        None
    }

    /// Can all of it be promised there?
    fn has_room(&self, zone: &NodeSet) -> bool {
        let fits = |(resource, bytes): &(MemoryResource, u64)| self.account.fits(zone, *resource, *bytes);
        let allows = || {
            let nodes = NodeIndex::new(self.local.everywhere());
            MemoryStock::new(self.account, &nodes, true).allows(nodes.mask(zone))
        };
        !zone.is_empty()
            && self.wanted.iter().all(fits)
            && (!self.asker.settings.strict_memory_groups || allows())
    }

    /// The nodes of its CPUs that have memory; if none has, the nearest ones that have.
    fn at_home(&self) -> NodeSet {
        let everywhere = self.local.everywhere();
        let own = self.cpu_nodes.intersection(everywhere);
        if !own.is_empty() {
            return own;
        }
        let near = self.machine.near_memory_nodes(self.cpu_nodes).intersection(everywhere);
        if !near.is_empty() {
            return near;
        }
        let nearest = self.local.others(self.machine, &NodeSet::new(), self.cpu_nodes);
        nearest.first().map_or_else(|| everywhere.clone(), |node| std::iter::once(*node).collect())
    }

    /// These nodes, plus one with memory for the kernel itself if they have none.
    fn with_kernel_memory(&self, mems: NodeSet) -> NodeSet {
        self.machine.with_kernel_memory(mems, self.local.everywhere())
    }

    fn claims(&self, zone: &NodeSet) -> Vec<MemoryClaim> {
        let claim = |&(resource, bytes): &(MemoryResource, u64)| MemoryClaim {
            resource,
            by_node: self.account.split(zone, resource, bytes),
            zone: zone.clone(),
            bytes,
        };
        self.wanted.iter().map(claim).collect()
    }

    fn refusal(&self, settled: Option<Alignment>) -> Rejection {
        let everywhere = self.local.everywhere();
        let nodes = if self.is_strict() {
            let chosen = settled.and_then(|settled| settled.merged.mask).unwrap_or(0);
            let level = settled.map_or(0, |settled| settled.level);
            self.zone_of(level, chosen | self.asker.nodes.mask(self.cpu_nodes))
        } else {
            everywhere.clone()
        };
        let shortage = |&(resource, wanted): &(MemoryResource, u64)| Shortage {
            resource: resource.to_string(),
            nodes: nodes.clone(),
            wanted,
            available: self.account.free(&nodes, resource),
        };
        let all: Vec<Shortage> = self.wanted.iter().map(shortage).collect();
        let short: Vec<Shortage> = all.iter().filter(|one| one.available < one.wanted).cloned().collect();
        let room = |(resource, _): &(MemoryResource, u64)| self.account.room(&nodes, *resource);
        let rooms: Vec<FittingAmount> = self.wanted.iter().map(room).collect();
        let problem = match settled.and_then(|settled| settled.merged.mask) {
            Some(_) => MemoryProblem::NoExtension,
            None => MemoryProblem::NoDefaultAffinity,
        };
        let problem = RejectionProblem::Memory(problem);
        let rejection = Rejection::new(RejectionReason::UnexpectedAdmissionError, problem);
        let rejection = rejection.leaving_out(left_out(self.machine, &nodes));
        rejection.short_of(if short.is_empty() { all } else { short }, &rooms)
    }
}

/// The kubelet's memory manager: the merged set if it has room, else the best set by its own rule.
fn as_kubelet(
    asker: Asker<'_>,
    account: &ZoneAccount,
    demand: &Demand,
    settled: Option<Alignment>,
    everywhere: NodeSet,
    guaranteed: bool,
) -> Result<MemoryAndNodes, Rejection> {
    let is_off = asker.settings.memory_manager_policy == MemoryManagerPolicy::None;
    if is_off || !guaranteed || demand.memory.is_empty() {
        return Ok((Vec::new(), everywhere));
    }
    let merged = settled.map_or(Merged { mask: None, preferred: false }, |settled| settled.merged);
    // First fit has no preference that could forbid wider memory nodes.
    let preferred = merged.preferred && !is_first_fit(asker.settings.policy);
    let stock = MemoryStock::new(account, asker.nodes, asker.settings.strict_memory_groups);
    let claims = memory::assign(&stock, &demand.memory, Merged { preferred, ..merged })?;
    let mems = claims.iter().fold(NodeSet::new(), |nodes, claim| nodes.union(&claim.zone));
    Ok((claims, mems))
}

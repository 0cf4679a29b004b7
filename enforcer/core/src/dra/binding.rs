//! What a container gets of the claims that it refers to.
//!
//! Problem: a container runtime passes on CDI devices and variables, and an image or a pod can set both as it
//! likes. Idea: they are hints that name claims. A claim counts only if it is prepared here and the pod is
//! one of those that it is reserved for; what the ledger has of it is what the container gets, whatever the
//! value of the variable. Invariants: a hint that is not proven gives nothing; an empty set of CPUs or nodes
//! is never given, because a runtime reads it as no change.
//!
//! The shell calls [`bind`] at creation and update of a container and when it corrects one. For a claim in
//! [`Bound::unconfirmed`] it reads the claim again and calls [`ClaimLedger::prepare`], which takes up a pod
//! that was added. It counts [`Bound::spoofed`] and what is still unconfirmed then, and never logs values of
//! variables.
//!
//! The API server's list of pods is the only evidence: pod and claim are named there by uid. The kubelet's
//! pod-resources could also say which pods of a group have a claim, but by names, which another pod may have
//! had before. The driver refuses claims of groups alone.

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{
    CpuClass, Grant, MemoryClaim, MemoryPriority, MemoryResource, MemorySource, SharedCpus, external::CLAIMS,
};
use numa_topology::set::{CpuSet, NodeSet};

use super::{
    ClaimConsumer, ClaimLedger, ClaimMemory, ClaimQuota, ClaimSupply, ClaimUid, ClaimWiden, PlaceAmounts,
    PreparedClaim, PreparedResult,
    cdi::{uid_of_device, uid_of_variable},
};

#[cfg(test)]
mod tests;

/// Most hints of a container that are looked at; a pod has fewer claims.
const MAX_HINTS: usize = 64;

/// What a runtime says of a container.
#[derive(Debug, Clone, Copy)]
pub struct ContainerHints<'a> {
    /// Uid of its pod.
    pub pod_uid: &'a str,
    /// Claims that it names ([`named_claims`]).
    pub named: &'a BTreeSet<ClaimUid>,
}

/// The claims of a container, and what it gets of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// Its claims, in order of uid; empty for a container without claims.
    pub claims: Vec<ClaimUid>,
    /// What it gets; none without claims.
    pub place: Option<ContainerPlace>,
    /// Claims that it names, which are prepared, and of which it is not known whether its pod may have them.
    pub unconfirmed: Vec<ClaimUid>,
    /// Number of named claims that are not prepared here.
    pub spoofed: usize,
}

/// What a container gets of its claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerPlace {
    /// Its CPUs; unchanged if absent.
    pub cpus: Option<CpuSet>,
    /// Those of them that are exclusive to its claims.
    pub exclusive_cpus: CpuSet,
    /// Its memory nodes; unchanged if absent.
    pub mems: Option<NodeSet>,
    /// Whether it never gets more memory nodes, however full its own are.
    pub is_strict: bool,
    /// Nodes that its memory belongs on, strictly or not; empty if anywhere.
    pub preferred_nodes: NodeSet,
    /// Bytes of huge pages by size that its limits and those of its pod have to grow by.
    pub hugepages: BTreeMap<u64, u64>,
    /// Thousandths of a CPU that its claims have of shared CPUs.
    pub milli_cpus: u64,
    /// Memory that its claims have, by node and kind.
    pub memory: Vec<MemoryClaim>,
    /// Whether its CPU quota is lifted.
    pub lifts_quota: bool,
    /// Whether it may run on idle CPUs of others too.
    pub may_widen: bool,
    /// Promised CPUs that are not there.
    pub missing_cpus: u64,
}

/// The claims that a container names: by its CDI devices, or by its variables (`NAME=value`) if the runtime
/// does not pass devices on.
pub fn named_claims<'a>(
    cdi_devices: impl IntoIterator<Item = &'a str>,
    variables: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<ClaimUid> {
    let mut devices = cdi_devices.into_iter().peekable();
    if devices.peek().is_some() {
        return devices.filter_map(uid_of_device).take(MAX_HINTS).collect();
    }
    variables.into_iter().filter_map(uid_of_variable).take(MAX_HINTS).collect()
}

/// What a container gets of the claims that it refers to.
pub fn bind(hints: &ContainerHints<'_>, ledger: &ClaimLedger, supply: &ClaimSupply) -> Bound {
    let mut bound = Bound::default();
    let mut claims = Vec::new();
    for uid in hints.named {
        match ledger.claim(uid) {
            None => bound.spoofed += 1,
            Some(claim) if may_have(claim, hints) => {
                claims.push(claim);
                bound.claims.push(uid.clone());
            }
            Some(_) => bound.unconfirmed.push(uid.clone()),
        }
    }
    if !claims.is_empty() {
        bound.place = Some(place(&claims, ledger, supply));
    }
    bound
}

fn may_have(claim: &PreparedClaim, hints: &ContainerHints<'_>) -> bool {
    let is_pod = |consumer: &ClaimConsumer| matches!(consumer, ClaimConsumer::Pod { uid, .. } if uid == hints.pod_uid && !uid.is_empty());
    claim.consumers.iter().any(is_pod)
}

/// Nodes that the claim's memory belongs on, for its variable.
pub(super) fn mems_of(claim: &PreparedClaim) -> NodeSet {
    let own = results(claim).filter(|result| memory_option(result) != ClaimMemory::Free);
    own.map(|result| result.node).collect()
}

fn results(claim: &PreparedClaim) -> impl Iterator<Item = &PreparedResult> {
    claim.results.iter().filter(|result| !result.result.is_admin)
}

fn memory_option(result: &PreparedResult) -> ClaimMemory {
    result.result.options.memory(result.amounts.has_memory())
}

fn place(claims: &[&PreparedClaim], ledger: &ClaimLedger, supply: &ClaimSupply) -> ContainerPlace {
    let all: Vec<&PreparedResult> = claims.iter().flat_map(|claim| results(claim)).collect();
    let mut place = ContainerPlace::default();
    let mut amounts = PlaceAmounts::default();
    for result in &all {
        amounts.add(&result.amounts);
        place.exclusive_cpus.extend(&result.cpus);
        place.missing_cpus += result.missing_cpus();
    }
    let nodes = |counts: &dyn Fn(&PreparedResult) -> bool| -> NodeSet {
        all.iter().filter(|result| counts(result)).map(|result| result.node).collect()
    };
    let shared = if place.exclusive_cpus.is_empty() {
        // Shared CPUs, the location alone, or exclusive CPUs that have all gone offline.
        let with_cpus = nodes(&|result| result.amounts.milli_cpus > 0 || result.amounts.cpus > 0);
        if with_cpus.is_empty() { nodes(&|_| true) } else { with_cpus }
    } else {
        nodes(&|result| result.amounts.milli_cpus > 0)
    };
    let mut cpus = place.exclusive_cpus.clone();
    cpus.extend(&shared_of(&shared, ledger, supply));
    let all_exclusive = !cpus.is_empty() && cpus == place.exclusive_cpus;
    place.cpus = (!cpus.is_empty()).then_some(cpus);
    let is = |wanted: ClaimMemory| all.iter().any(|result| memory_option(result) == wanted);
    let near = nodes(&|result| memory_option(result) != ClaimMemory::Free);
    if is(ClaimMemory::Strict) && !is(ClaimMemory::Free) {
        // A preference without an amount does not widen what is strict.
        let own =
            nodes(&|result| memory_option(result) == ClaimMemory::Strict || result.amounts.has_memory());
        place.mems = Some(supply.strict_mems(&own));
        place.is_strict = true;
        place.preferred_nodes = own;
    } else {
        // By default memory only begins on the node of the CPUs.
        let is_asked = all.iter().any(|result| result.result.options.asks_for_preferred_memory());
        if is_asked && !is(ClaimMemory::Free) {
            place.mems = supply.preferred_mems(&near);
        }
        place.preferred_nodes = near;
    }
    let taking = || all.iter().filter(|result| result.amounts.cpus > 0).map(|result| result.result.options);
    place.lifts_quota = all_exclusive && taking().all(|options| options.quota() == ClaimQuota::Remove);
    place.may_widen = all.iter().any(|result| result.result.options.widen() == ClaimWiden::Idle);
    place.milli_cpus = amounts.milli_cpus;
    place.memory = all.iter().flat_map(|result| memory_of(result)).collect();
    place.hugepages = amounts.hugepages;
    place
}

fn memory_of(result: &PreparedResult) -> impl Iterator<Item = MemoryClaim> {
    let node = result.node;
    let ordinary = (MemoryResource::Memory, result.amounts.memory_bytes);
    let huge =
        result.amounts.hugepages.iter().map(|(size, bytes)| (MemoryResource::Hugepages(*size), *bytes));
    let promised = [ordinary].into_iter().chain(huge).filter(|(_, bytes)| *bytes > 0);
    promised.map(move |(resource, bytes)| MemoryClaim {
        resource,
        zone: [node].into_iter().collect(),
        bytes,
        by_node: BTreeMap::from([(node, bytes)]),
    })
}

impl ContainerPlace {
    /// The same for the placement engine, which holds it and moves it nowhere. `claims` are their names.
    pub fn grant(&self, claims: &str) -> Grant {
        let cpus = self.cpus.clone().unwrap_or_default();
        let scope = cpus.difference(&self.exclusive_cpus);
        let class = match (self.exclusive_cpus.is_empty(), scope.is_empty()) {
            (true, _) => CpuClass::Shared,
            (false, true) => CpuClass::Exclusive,
            (false, false) => CpuClass::Mixed,
        };
        Grant {
            engine: CLAIMS,
            policy: CLAIMS,
            class,
            exclusive: self.exclusive_cpus.clone(),
            shared: (!scope.is_empty()).then(|| SharedCpus::new(scope, self.milli_cpus)),
            mems: self.mems.clone().unwrap_or_default(),
            memory: self.memory.clone(),
            memory_source: (!self.memory.is_empty()).then_some(MemorySource::Request),
            memory_priority: if self.is_strict { MemoryPriority::Strict } else { MemoryPriority::Guaranteed },
            pin_cpus: self.cpus.is_some(),
            pin_mems: self.mems.is_some(),
            reason: format!("its resource claims have it: {claims}"),
            ..Grant::default()
        }
    }
}

/// Shared CPUs of these nodes; for a node without CPUs those of the nodes that it is near.
fn shared_of(nodes: &NodeSet, ledger: &ClaimLedger, supply: &ClaimSupply) -> CpuSet {
    let mut near = NodeSet::new();
    for budget in nodes.iter().filter_map(|node| supply.node(node)) {
        near.extend(&budget.near_cpu_nodes);
    }
    let mut cpus = CpuSet::new();
    for shared in near.iter().filter_map(|node| ledger.shared_cpus(node, supply)) {
        cpus.extend(&shared);
    }
    cpus
}

//! Grants: the resources that containers get.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use crate::{
    affinity::AffinityRule,
    engine_name::{CHOSEN, FixedName},
    hint::Hint,
    qos::QosClass,
};
use numa_topology::{
    id::NodeId,
    quantity,
    set::{CpuSet, NodeSet},
};

/// All resources of one container, and how they were chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// Name of the engine that gave it, as in the configuration.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::engine_name::fixed_name"))]
    pub engine: FixedName,
    /// Policy by which it was given, as in the configuration.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::engine_name::fixed_name"))]
    pub policy: FixedName,
    /// Use of its CPUs.
    pub class: CpuClass,
    /// Exclusive CPUs, including isolated ones.
    pub exclusive: CpuSet,
    /// CPUs that it shares with others.
    pub shared: Option<SharedCpus>,
    /// Its memory nodes (`cpuset.mems`).
    pub mems: NodeSet,
    /// Promised memory, one claim per resource.
    pub memory: Vec<MemoryClaim>,
    /// Source of its memory request; `None` if nothing was promised.
    pub memory_source: Option<MemorySource>,
    /// Memory nodes that it gets only some time after its start.
    pub cold_start: Option<ColdStart>,
    /// Ids of devices by resource name.
    pub devices: BTreeMap<String, Vec<String>>,
    /// The winning hint; only for the engine `hints`.
    pub hint: Option<Hint>,
    /// Name of its pool; only for the engine `pools`.
    pub pool: Option<String>,
    /// Whether its CPUs are written to its cgroup.
    pub pin_cpus: bool,
    /// Whether its memory nodes are written to its cgroup.
    pub pin_mems: bool,
    /// Cores of which it uses only one thread, the lowest available one; empty if it uses all threads.
    pub one_thread_of: Vec<CpuSet>,
    /// Its CPU weight as `cpu.shares`; unchanged when absent.
    pub cpu_shares: Option<u64>,
    /// When its memory may move to make room for another container.
    pub memory_priority: MemoryPriority,
    /// Labels of its pod, for affinity rules of later containers.
    pub labels: BTreeMap<String, String>,
    /// `QoS` class of its pod, for the same purpose.
    pub qos: Option<QosClass>,
    /// Affinity rules; also applied when later containers are placed.
    pub affinity: Vec<AffinityRule>,
    /// Why it was placed here, in one sentence.
    pub reason: String,
}

/// A start on slow memory, so that rarely used pages stay there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ColdStart {
    /// Time from the start of the container to its end.
    pub after: Duration,
    /// Its memory nodes after that time.
    pub mems: NodeSet,
    /// Time of its first observation, in nanoseconds of a clock that starts at boot.
    pub began_ns: Option<u64>,
}

/// CPUs that a container shares: a scope without the exclusive CPUs of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SharedCpus {
    /// CPUs where it may run as long as no container has them exclusively.
    pub scope: CpuSet,
    /// Promised CPU time in thousandths of a CPU.
    pub milli_cpus: u64,
    /// CPUs of the scope that are reserved for the system: the container may run there, but they do not count
    /// as capacity for promises.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "CpuSet::is_empty"))]
    pub reserved: CpuSet,
    /// Whether reserved CPUs are none of its fallback CPUs (a strict reservation).
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub avoids_reserved: bool,
    /// CPUs where it runs instead, while exclusive CPUs of others leave its scope less than was promised.
    #[cfg_attr(feature = "serde", serde(rename = "refuge"))]
    pub fallback_cpus: Option<CpuSet>,
    /// CPUs of each node of `fallback_cpus`, and the ordinary memory near them.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "refuge_memory", default, skip_serializing_if = "Vec::is_empty")
    )]
    pub fallback_memory: Vec<(CpuSet, NodeSet)>,
}

impl SharedCpus {
    /// Shared CPUs within a scope.
    pub const fn new(scope: CpuSet, milli_cpus: u64) -> Self {
        Self {
            scope,
            milli_cpus,
            reserved: CpuSet::new(),
            avoids_reserved: false,
            fallback_cpus: None,
            fallback_memory: Vec::new(),
        }
    }

    /// The same on a machine where these CPUs are reserved for the system.
    #[must_use]
    pub(crate) fn beside_reserved(self, reserved: &CpuSet) -> Self {
        Self { reserved: self.scope.intersection(reserved), ..self }
    }

    /// The same, with or without reserved CPUs among its fallback CPUs.
    #[must_use]
    pub(crate) const fn avoiding_reserved(mut self, avoids_reserved: bool) -> Self {
        self.avoids_reserved = avoids_reserved;
        self
    }

    /// CPUs where it may run now, apart from exclusive CPUs of others.
    pub fn reach(&self) -> &CpuSet {
        self.fallback_cpus.as_ref().unwrap_or(&self.scope)
    }
}

/// Use of a container's CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum CpuClass {
    /// Shared with others.
    #[default]
    Shared,
    /// Exclusive.
    Exclusive,
    /// Exclusive, on CPUs that the kernel's scheduler does not balance (`isolcpus`).
    Isolated,
    /// Some exclusive CPUs, and a fraction that is shared.
    Mixed,
    /// CPUs reserved for the system.
    Reserved,
    /// Unchanged: nothing is pinned.
    Preserved,
}

/// Order in which memory of containers moves to a wider zone, first to last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum MemoryPriority {
    /// Without a promise.
    #[default]
    BestEffort,
    /// With a promise for part of it.
    Burstable,
    /// With a promise for all of it.
    Guaranteed,
    /// Requested to stay in place; moved only if nothing else helps.
    Preserved,
    /// Never moved.
    Strict,
}

impl MemoryPriority {
    /// Priority of memory without a wish of its container, by the class of its pod.
    pub const fn of_class(class: QosClass) -> Self {
        match class {
            QosClass::Guaranteed => Self::Guaranteed,
            QosClass::Burstable => Self::Burstable,
            QosClass::BestEffort => Self::BestEffort,
        }
    }
}

/// Source of a container's memory request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum MemorySource {
    /// Its own request.
    Request,
    /// The annotation with exact resources.
    Annotation,
    /// Its `oom_score_adj`, which the kubelet computes from the request.
    OomScoreAdj,
    /// Its limit, if there is no other source.
    Limit,
}

/// A kind of memory with its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum MemoryResource {
    /// Ordinary memory.
    Memory,
    /// Huge pages of this size in bytes.
    Hugepages(u64),
}

/// Promised memory of one kind on a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryClaim {
    /// Kind of memory.
    pub resource: MemoryResource,
    /// Nodes of the zone, which hold it together.
    pub zone: NodeSet,
    /// Size in bytes.
    pub bytes: u64,
    /// Forecast by node of the zone; the sum is `bytes`. The kernel decides page by page, and promises hold
    /// only for whole zones.
    #[cfg_attr(feature = "serde", serde(with = "pairs"))]
    pub by_node: BTreeMap<NodeId, u64>,
}

/// Lists of pairs instead of maps with numbers as keys, which serde cannot read inside an internally tagged
/// enum.
#[cfg(feature = "serde")]
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use numa_topology::id::NodeId;

    pub(super) fn serialize<S: Serializer>(map: &BTreeMap<NodeId, u64>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<NodeId, u64>, D::Error> {
        Ok(Vec::<(NodeId, u64)>::deserialize(from)?.into_iter().collect())
    }
}

impl Grant {
    /// What a scheduler has chosen for a container that is not there yet. As the previous grant of the
    /// container it is kept as far as the engine allows.
    pub fn chosen(exclusive: CpuSet, mems: NodeSet) -> Self {
        Self { engine: CHOSEN, exclusive, mems, ..Self::default() }
    }

    /// Is it only a choice?
    pub(crate) fn is_chosen(&self) -> bool {
        self.engine == CHOSEN
    }

    /// CPUs that the container runs on, where `taken` are the exclusive CPUs of all holders.
    pub fn cpus(&self, taken: &CpuSet) -> CpuSet {
        let mut cpus = match &self.shared {
            Some(shared) => self.exclusive.union(&shared.reach().difference(taken)),
            None => self.exclusive.clone(),
        };
        for core in &self.one_thread_of {
            for sibling in core.intersection(&cpus).iter().skip(1) {
                cpus.remove(sibling);
            }
        }
        cpus
    }

    /// Memory nodes that the container uses, where `taken` are the exclusive CPUs of all holders. On its
    /// fallback CPUs it uses those near its current CPUs, so that its pages follow, and keeps its promises in
    /// its scope.
    pub fn mems(&self, taken: &CpuSet) -> NodeSet {
        let away = self.shared.as_ref().map_or(&[][..], |shared| &shared.fallback_memory);
        if away.is_empty() || self.mems.is_empty() {
            return self.mems.clone();
        }
        let cpus = self.cpus(taken);
        let near = away.iter().filter(|(of_node, _)| !of_node.is_disjoint(&cpus));
        let near = near.fold(NodeSet::new(), |near, (_, mems)| near.union(mems));
        let is_promised = !self.memory.is_empty() || self.cold_start.is_some();
        if is_promised || near.is_empty() { near.union(&self.mems) } else { near }
    }

    /// All memory nodes that it may be using, in its scope or on its fallback CPUs.
    pub fn all_mems(&self) -> NodeSet {
        let away = self.shared.iter().flat_map(|shared| &shared.fallback_memory);
        away.fold(self.mems.clone(), |all, (_, mems)| all.union(mems))
    }

    /// Why it is at its current place.
    pub fn why(&self) -> Cow<'_, str> {
        if self.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some()) {
            let away = "on all shared CPUs as long as exclusive CPUs of others leave too few of these";
            return Cow::Owned(format!("{}; {away}", self.reason));
        }
        Cow::Borrowed(&self.reason)
    }

    /// Forecast of ordinary memory in bytes, by node.
    pub fn memory_by_node(&self) -> BTreeMap<NodeId, u64> {
        self.by_node(MemoryResource::Memory)
    }

    /// Forecast of huge pages in bytes, by resource and node.
    pub fn hugepages_by_node(&self) -> BTreeMap<String, BTreeMap<NodeId, u64>> {
        let kinds = self.memory.iter().map(|claim| claim.resource);
        let kinds = kinds.filter(|resource| matches!(resource, MemoryResource::Hugepages(_)));
        kinds.map(|resource| (resource.to_string(), self.by_node(resource))).collect()
    }

    fn by_node(&self, resource: MemoryResource) -> BTreeMap<NodeId, u64> {
        let claims = self.memory.iter().filter(|claim| claim.resource == resource);
        let mut sum = BTreeMap::new();
        for (node, bytes) in claims.flat_map(|claim| &claim.by_node) {
            let of_node = sum.entry(*node).or_insert(0u64);
            *of_node = of_node.saturating_add(*bytes);
        }
        sum
    }
}

impl MemoryResource {
    /// The kind with this name in Kubernetes.
    pub fn of_name(name: &str) -> Option<Self> {
        match name.strip_prefix("hugepages-") {
            None => (name == "memory").then_some(Self::Memory),
            Some(size) => quantity::whole(size).map(Self::Hugepages),
        }
    }
}

impl fmt::Display for MemoryResource {
    /// Name in Kubernetes: `memory`, `hugepages-2Mi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Memory => f.write_str("memory"),
            Self::Hugepages(size) => match [("Gi", 30), ("Mi", 20), ("Ki", 10)]
                .into_iter()
                .find(|(_, shift)| size >> shift << shift == size && size >> shift > 0)
            {
                Some((unit, shift)) => write!(f, "hugepages-{}{unit}", size >> shift),
                None => write!(f, "hugepages-{size}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_of_a_core_is_the_lowest_of_those_that_are_left() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let grant = Grant {
            exclusive: set("0,4"),
            shared: Some(SharedCpus::new(set("1-3,5-7"), 500)),
            one_thread_of: vec![set("0,4"), set("1,5"), set("2,6")],
            ..Grant::default()
        };
        assert_eq!(grant.cpus(&CpuSet::new()).to_string(), "0-3,7");
        // Another container has CPU 1, so its sibling is used.
        assert_eq!(grant.cpus(&set("0,1,4")).to_string(), "0,2-3,5,7");
    }
}

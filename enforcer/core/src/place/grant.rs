//! What a container was given.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{hints::Hint, pools::AffinityRule, recorded};
use crate::{
    id::NodeId,
    set::{CpuSet, NodeSet},
    workload::QosClass,
};

/// A name that the code has, as of an engine or a policy; an alias, because serde would borrow it from its
/// input.
pub(super) type FixedName = &'static str;

/// Everything that one container was given, and how it came about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Engine that gave it: its [`super::Placement::name`].
    #[serde(deserialize_with = "recorded::fixed_name")]
    pub engine: FixedName,
    /// Policy by which it was given, as in the configuration.
    #[serde(deserialize_with = "recorded::fixed_name")]
    pub policy: FixedName,
    /// How its CPUs are used.
    pub class: CpuClass,
    /// CPUs that nobody else has; isolated ones included.
    pub exclusive: CpuSet,
    /// CPUs that it has together with others.
    pub shared: Option<SharedCpus>,
    /// Its memory nodes (`cpuset.mems`).
    pub mems: NodeSet,
    /// Memory that it was promised, one claim per resource.
    pub memory: Vec<MemoryClaim>,
    /// Where the amount of its memory request comes from; absent where nothing was promised.
    pub memory_source: Option<MemorySource>,
    /// Memory nodes that it gets only some time after its start.
    pub cold_start: Option<ColdStart>,
    /// Ids of devices by resource name.
    pub devices: BTreeMap<String, Vec<String>>,
    /// The hint that won; of the hints engine.
    pub hint: Option<Hint>,
    /// Name of the pool; of the pools engine.
    pub pool: Option<String>,
    /// Its CPUs are written to its cgroup.
    pub pin_cpus: bool,
    /// Its memory nodes are written to its cgroup.
    pub pin_mems: bool,
    /// The cores of which it runs on one thread only, the lowest of those that it could run on; none
    /// where it runs on all.
    pub one_thread_of: Vec<CpuSet>,
    /// Its CPU weight as `cpu.shares`; left as it is when absent.
    pub cpu_shares: Option<u64>,
    /// How its memory may be treated when another needs room.
    pub memory_priority: MemoryPriority,
    /// Labels of its pod, for affinity rules of those that come later.
    pub labels: BTreeMap<String, String>,
    /// `QoS` class of its pod, likewise.
    pub qos: Option<QosClass>,
    /// Its own affinity rules, which pull on those that come later.
    pub affinity: Vec<AffinityRule>,
    /// Why here, in one sentence.
    pub reason: String,
}

/// A start on slow memory, so that what is rarely used stays there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdStart {
    /// Time from the start of the container to its end.
    pub after: Duration,
    /// Its memory nodes from then on.
    pub mems: NodeSet,
    /// When it was first seen, in nanoseconds of a clock that runs since the machine was started.
    pub began_ns: Option<u64>,
}

/// CPUs that a container shares: what others' exclusive CPUs leave of a scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCpus {
    /// Its home: where it may run, if nobody had exclusive CPUs there.
    pub scope: CpuSet,
    /// CPU time that it was promised there, in thousandths of a CPU.
    pub milli_cpus: u64,
    /// CPUs of the scope that are set aside for the system: it runs there too, but they are no room for what
    /// was promised.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub reserved: CpuSet,
    /// Where it runs instead as long as exclusive CPUs of others leave its home less than was promised.
    pub refuge: Option<CpuSet>,
    /// CPUs of each node of that, and the ordinary memory near them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refuge_memory: Vec<(CpuSet, NodeSet)>,
}

impl SharedCpus {
    /// At home in a scope.
    pub const fn new(scope: CpuSet, milli_cpus: u64) -> Self {
        Self { scope, milli_cpus, reserved: CpuSet::new(), refuge: None, refuge_memory: Vec::new() }
    }

    /// The same on a machine where these CPUs are set aside for the system.
    #[must_use]
    pub fn beside_reserved(self, reserved: &CpuSet) -> Self {
        Self { reserved: self.scope.intersection(reserved), ..self }
    }

    /// Where it may run now, if nobody had exclusive CPUs there.
    pub fn reach(&self) -> &CpuSet {
        self.refuge.as_ref().unwrap_or(&self.scope)
    }
}

/// How the CPUs of a container are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuClass {
    /// Together with others.
    #[default]
    Shared,
    /// Alone.
    Exclusive,
    /// Alone, on CPUs that the kernel's scheduler does not balance (`isolcpus`).
    Isolated,
    /// Some alone, and a fraction together with others.
    Mixed,
    /// Those set aside for the system.
    Reserved,
    /// As they are: nothing is pinned.
    Preserved,
}

/// How easily the memory of a container may be moved to a wider zone, from the first to the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPriority {
    /// Promised nothing.
    #[default]
    BestEffort,
    /// Promised some.
    Burstable,
    /// Promised all.
    Guaranteed,
    /// Asked to be left alone; moved when nothing else helps.
    Preserved,
    /// Never moved.
    Strict,
}

/// What says how much memory a container asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemorySource {
    /// Its own request.
    Request,
    /// The annotation that carries exact resources.
    Annotation,
    /// Its `oom_score_adj`, which the kubelet computes from the request.
    OomScoreAdj,
    /// Its limit, since nothing says less.
    Limit,
}

/// A kind of memory that is counted on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryResource {
    /// Ordinary memory.
    Memory,
    /// Huge pages of this size in bytes.
    Hugepages(u64),
}

/// Memory of one kind that was promised on a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryClaim {
    /// Which kind.
    pub resource: MemoryResource,
    /// Nodes that hold it together.
    pub zone: NodeSet,
    /// How much.
    pub bytes: u64,
    /// How it would lie on the zone's nodes; sums to `bytes`. A forecast: the kernel decides page by
    /// page, and only sums over whole zones are promised.
    #[serde(with = "pairs")]
    pub by_node: BTreeMap<NodeId, u64>,
}

/// A list in place of a map whose keys are numbers, which serde cannot read inside of an enum with a tag.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::id::NodeId;

    pub(super) fn serialize<S: Serializer>(map: &BTreeMap<NodeId, u64>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<NodeId, u64>, D::Error> {
        Ok(Vec::<(NodeId, u64)>::deserialize(from)?.into_iter().collect())
    }
}

impl Grant {
    /// CPUs that the container runs on, when `taken` are the exclusive CPUs of all.
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

    /// Memory nodes that the container uses, when `taken` are the exclusive CPUs of all. Away from home they
    /// are those near the CPUs that it runs on, so that its pages follow; what it was promised at home it
    /// keeps.
    pub fn mems(&self, taken: &CpuSet) -> NodeSet {
        let away = self.shared.as_ref().map_or(&[][..], |shared| &shared.refuge_memory);
        if away.is_empty() || self.mems.is_empty() {
            return self.mems.clone();
        }
        let cpus = self.cpus(taken);
        let near = away.iter().filter(|(of_node, _)| !of_node.is_disjoint(&cpus));
        let near = near.fold(NodeSet::new(), |near, (_, mems)| near.union(mems));
        let is_promised = !self.memory.is_empty() || self.cold_start.is_some();
        if is_promised || near.is_empty() { near.union(&self.mems) } else { near }
    }

    /// All memory nodes that it may be using, at home or away.
    pub fn all_mems(&self) -> NodeSet {
        let away = self.shared.iter().flat_map(|shared| &shared.refuge_memory);
        away.fold(self.mems.clone(), |all, (_, mems)| all.union(mems))
    }

    /// Why it is where it is now.
    pub fn why(&self) -> Cow<'_, str> {
        if self.shared.as_ref().is_some_and(|shared| shared.refuge.is_some()) {
            let away = "on all shared CPUs as long as exclusive CPUs of others leave too few of these";
            return Cow::Owned(format!("{}; {away}", self.reason));
        }
        Cow::Borrowed(&self.reason)
    }

    /// Bytes of ordinary memory by node, as forecast.
    pub fn memory_by_node(&self) -> BTreeMap<NodeId, u64> {
        self.by_node(MemoryResource::Memory)
    }

    /// Bytes of huge pages by resource and node, as forecast.
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

impl fmt::Display for MemoryResource {
    /// As Kubernetes names it: `memory`, `hugepages-2Mi`.
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
        // Somebody else has CPU 1, so its sibling takes over.
        assert_eq!(grant.cpus(&set("0,1,4")).to_string(), "0,2-3,5,7");
    }
}

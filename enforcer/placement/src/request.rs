//! Resource requests of pods.
//!
//! The values are those of the manifest, as numbers: millicores, bytes, counts. Their source (a manifest, a
//! container runtime, a rule of the configuration) is not known here. Names, labels and annotations are
//! untrusted: they are compared, never trusted.

use std::collections::BTreeMap;

use crate::{
    allocations::Holder,
    document::Documents,
    grant::{Grant, MemoryResource},
    pod_name::PodName,
    qos::QosClass,
    wishes::{TopologyHint, Wishes},
};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Request of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRequest {
    /// Its name.
    pub name: PodName,
    /// Its `QoS` class.
    pub qos: QosClass,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Parsed values of its structured annotations.
    pub documents: Documents,
    /// Its containers: init containers and sidecars first, in the order of the manifest, then the others.
    pub containers: Vec<ContainerRequest>,
    /// Grants of its containers before a resize or restart, by name. An engine keeps as much of them as is
    /// still valid.
    pub previous: BTreeMap<String, Grant>,
    /// What of it the amounts of its containers do not describe, if anything. An admission passes this over;
    /// predictions of what a node's daemon sees must not.
    pub undescribed: Option<Undescribed>,
}

/// Something of a pod that changes its place, and that the amounts of its containers do not describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Undescribed {
    /// It is critical for its node: the kubelet gives its containers the `oom_score_adj` of a Guaranteed pod.
    NodeCritical,
    /// It asks for resources as a whole.
    PodResources,
    /// It claims resources of drivers.
    ResourceClaims,
}

/// The class of priority that makes a pod critical for its node (`system-node-critical` in
/// pkg/apis/scheduling/types.go).
const NODE_CRITICAL: &str = "system-node-critical";

impl Undescribed {
    /// What a pod with this class of priority has, and with these parts of its specification.
    pub fn of(priority_class: &str, has_own_resources: bool, has_claims: bool) -> Option<Self> {
        let found = [
            (has_own_resources, Self::PodResources),
            (has_claims, Self::ResourceClaims),
            (priority_class == NODE_CRITICAL, Self::NodeCritical),
        ];
        found.into_iter().find_map(|(is_so, undescribed)| is_so.then_some(undescribed))
    }

    /// As a part of a sentence.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeCritical => "it is critical for its node",
            Self::PodResources => "it asks for resources as a whole",
            Self::ResourceClaims => "it claims resources of drivers",
        }
    }
}

/// When a container runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum ContainerKind {
    /// Before the other containers of the pod, one after another.
    Init,
    /// An init container with `restartPolicy: Always`: from its start to the end of the pod.
    Sidecar,
    /// Together with the other containers of the pod.
    #[default]
    App,
}

/// Request of a container; the default requests nothing and allows any node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerRequest {
    /// Its name, unique in its pod.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// Requests; a resource without a request has the value of its limit already.
    pub requests: Resources,
    /// Limits.
    pub limits: Resources,
    /// Number of devices by resource name.
    pub devices: DeviceCounts,
    /// Locations of its devices and mounts, as far as known before placement.
    pub topology_hints: Vec<TopologyHint>,
    /// CPUs that the cgroups above allow; all when absent.
    pub allowed_cpus: Option<CpuSet>,
    /// Nodes that the cgroups above, and rules, allow; all when absent.
    pub allowed_nodes: Option<NodeSet>,
    /// Its `oom_score_adj`, for a running container: the kubelet derives it from the memory request.
    pub oom_score_adj: Option<i32>,
    /// Bytes that it has already, by node, for a running container.
    pub resident_bytes: BTreeMap<NodeId, u64>,
    /// Wishes of its configuration entry, for settings without an annotation.
    pub wishes: Wishes,
}

/// Number of devices by resource name.
pub type DeviceCounts = BTreeMap<String, u64>;

/// Amounts of resources that every node has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: Option<u64>,
    /// Ordinary memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Bytes of huge pages by size of the page in bytes.
    pub hugepages: BTreeMap<u64, u64>,
}

impl Resources {
    /// Amounts by name in Kubernetes: CPU time in thousandths, memory and huge pages in bytes. Other
    /// resources are left out.
    pub fn of_amounts(amounts: &BTreeMap<String, u64>) -> Self {
        let hugepages = amounts.iter().filter_map(|(name, bytes)| match MemoryResource::of_name(name) {
            Some(MemoryResource::Hugepages(size)) if *bytes > 0 => Some((size, *bytes)),
            _ => None,
        });
        Self {
            milli_cpus: amounts.get("cpu").copied(),
            memory_bytes: amounts.get("memory").copied(),
            hugepages: hugepages.collect(),
        }
    }
}

/// The devices among amounts by name: resources with a slash.
pub fn device_counts(amounts: &BTreeMap<String, u64>) -> DeviceCounts {
    let devices = amounts.iter().filter(|(name, count)| name.contains('/') && **count > 0);
    devices.map(|(name, count)| (name.clone(), *count)).collect()
}

impl PodRequest {
    /// A pod of these containers, of the class that follows from them, without labels and annotations.
    pub fn new(name: PodName, containers: Vec<ContainerRequest>) -> Self {
        Self {
            name,
            qos: qos_class(&containers),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            documents: Documents::new(),
            containers,
            previous: BTreeMap::new(),
            undescribed: None,
        }
    }
}

impl ContainerRequest {
    /// A container with limits equal to its requests: thousandths of a CPU, and bytes.
    pub fn guaranteed(name: impl Into<String>, milli_cpus: u64, memory_bytes: u64) -> Self {
        let amount = |amount: u64| Some(amount).filter(|amount| *amount > 0);
        let amounts = Resources {
            milli_cpus: amount(milli_cpus),
            memory_bytes: amount(memory_bytes),
            hugepages: BTreeMap::new(),
        };
        Self { name: name.into(), requests: amounts.clone(), limits: amounts, ..Self::default() }
    }
}

/// The `QoS` class of a pod with these containers, by the rules of Kubernetes (`ComputePodQOS` in
/// pkg/apis/core/v1/helper/qos): Guaranteed if every container, including init containers, has limits of CPU
/// and memory and requests equal to them; `BestEffort` if none requests CPU or memory. A zero counts as no
/// request. Huge pages and devices are ignored.
pub fn qos_class(containers: &[ContainerRequest]) -> QosClass {
    let asked = |amounts: &Resources| {
        [amounts.milli_cpus, amounts.memory_bytes].map(|amount| amount.filter(|amount| *amount > 0))
    };
    let nothing = |container: &ContainerRequest| {
        [&container.requests, &container.limits].iter().all(|side| asked(side) == [None, None])
    };
    let guaranteed = |container: &ContainerRequest| {
        let limits = asked(&container.limits);
        limits.iter().all(Option::is_some) && asked(&container.requests) == limits
    };
    if containers.iter().all(nothing) {
        QosClass::BestEffort
    } else if containers.iter().all(guaranteed) {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

impl PodRequest {
    /// The maximum of an amount that is needed at once: init containers run one after another, each beside
    /// the sidecars started before it; then the other containers run beside all sidecars.
    pub fn peak(&self, amount: impl Fn(&ContainerRequest) -> u64) -> u64 {
        let (mut sidecars, mut starting, mut apps) = (0u64, 0u64, 0u64);
        for container in &self.containers {
            let amount = amount(container);
            match container.kind {
                ContainerKind::Init => starting = starting.max(sidecars.saturating_add(amount)),
                ContainerKind::Sidecar => sidecars = sidecars.saturating_add(amount),
                ContainerKind::App => apps = apps.saturating_add(amount),
            }
        }
        starting.max(apps.saturating_add(sidecars))
    }

    /// The container with that name.
    pub fn container(&self, name: &str) -> Option<&ContainerRequest> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Has this holder ended when the container at position `before` starts? True for earlier init containers
    /// of this pod; their resources are free for it.
    pub fn has_ended(&self, holder: &Holder, before: usize) -> bool {
        let earlier = self.containers.get(..before).unwrap_or(&self.containers);
        *holder.pod() == self.name
            && earlier
                .iter()
                .any(|container| container.kind == ContainerKind::Init && container.name == holder.name())
    }
}

impl ContainerRequest {
    /// The number of CPUs, if the request is a whole number.
    pub fn whole_cpus(&self) -> Option<u64> {
        let milli = self.requests.milli_cpus?;
        milli.is_multiple_of(1000).then_some(milli / 1000)
    }
}

impl PodRequest {
    /// The first wish of its containers, by the order of the configuration, for settings that a pod has only
    /// once.
    pub fn wished<T>(&self, of: impl Fn(&Wishes) -> Option<T>) -> Option<T> {
        let wishes = self.containers.iter().map(|container| &container.wishes);
        let wished = wishes.filter_map(|wishes| Some((wishes.position, of(wishes)?)));
        wished.min_by_key(|(position, _)| *position).map(|(_, wish)| wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(requests: (u64, u64), limits: (u64, u64)) -> ContainerRequest {
        let side = |(cpu, memory)| Resources {
            milli_cpus: Some(cpu),
            memory_bytes: Some(memory).filter(|bytes| *bytes > 0),
            hugepages: BTreeMap::from([(2 << 20, 2 << 20)]),
        };
        ContainerRequest {
            name: "c".into(),
            requests: side(requests),
            limits: side(limits),
            devices: BTreeMap::from([("vendor.com/gpu".into(), 1)]),
            ..ContainerRequest::default()
        }
    }

    #[test]
    fn the_class_follows_cpu_and_memory_of_every_container() {
        let whole = container((2000, 64), (2000, 64));
        let nothing = container((0, 0), (0, 0));
        for (containers, class) in [
            (vec![], QosClass::BestEffort),
            (vec![nothing.clone()], QosClass::BestEffort),
            (vec![whole.clone()], QosClass::Guaranteed),
            (vec![whole.clone(), container((500, 64), (500, 64))], QosClass::Guaranteed),
            (vec![whole.clone(), nothing], QosClass::Burstable),
            (vec![container((1000, 64), (2000, 64))], QosClass::Burstable),
            (vec![container((2000, 0), (2000, 0))], QosClass::Burstable),
            (vec![container((2000, 64), (0, 64))], QosClass::Burstable),
            (vec![whole, container((0, 1), (0, 0))], QosClass::Burstable),
        ] {
            assert_eq!(qos_class(&containers), class, "{containers:?}");
        }
    }
}

//! What a pod asks for.
//!
//! The same as in its manifest, in numbers: millicores, bytes, counts. Where the numbers come from
//! (a manifest, a container runtime, a rule of the configuration) is not known here. Names, labels
//! and annotations are written by the workload's owner: they are compared, never trusted.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Grant, Holder, Wishes, pools::Documents};
use crate::{
    id::NodeId,
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, QosClass, printable},
};

/// Names a pod on its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which of those that have had this name: one that is made again may come before the one before it has
    /// ended. Empty where nobody tells. It is compared, and neither shown nor matched by any rule.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl PodName {
    /// The only one of that name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), uid: String::new() }
    }

    /// The one of that name with this uid.
    #[must_use]
    pub fn with_uid(self, uid: impl Into<String>) -> Self {
        Self { uid: uid.into(), ..self }
    }

    /// A cgroup outside Kubernetes counts as a pod without a namespace, which no pod can be.
    pub fn of_cgroup(cgroup: &CgroupPath) -> Self {
        Self::new("", cgroup.as_str())
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No namespace of Kubernetes starts with a dash: what does stands for something else, by its name.
        if self.namespace.is_empty() || self.namespace.starts_with('-') {
            return f.write_str(&printable(&self.name));
        }
        write!(f, "{}/{}", printable(&self.namespace), printable(&self.name))
    }
}

/// One pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRequest {
    /// Which one.
    pub name: PodName,
    /// Its `QoS` class.
    pub qos: QosClass,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Those of its annotations whose values are documents, read.
    pub documents: Documents,
    /// Its containers: init containers and sidecars first, in the order of the manifest, then the
    /// others.
    pub containers: Vec<ContainerRequest>,
    /// What its containers, by name, had before: of a resize or of a restart. An engine keeps as much
    /// of it as is still valid.
    pub previous: BTreeMap<String, Grant>,
}

/// When a container runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerKind {
    /// Before the containers of the pod, one after another.
    Init,
    /// An init container with `restartPolicy: Always`: from its turn on to the end of the pod.
    Sidecar,
    /// With the other containers of the pod.
    #[default]
    App,
}

/// One container; the default asks for nothing and may be anywhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerRequest {
    /// Its name, unique in its pod.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// What it is promised; a resource without a request has that of its limit already.
    pub requests: Resources,
    /// What it may not exceed.
    pub limits: Resources,
    /// Number of devices by resource name.
    pub devices: DeviceCounts,
    /// Where its devices, mounts and the like are, as far as it is known before placement.
    pub topology_hints: Vec<TopologyHint>,
    /// CPUs that the cgroups above leave it; all when absent.
    pub allowed_cpus: Option<CpuSet>,
    /// Nodes that the cgroups above, and rules, leave it; all when absent.
    pub allowed_nodes: Option<NodeSet>,
    /// Its `oom_score_adj`, for a container that runs: the kubelet's trace of its memory request.
    pub oom_score_adj: Option<i32>,
    /// Bytes that it has on each node already, for a container that runs.
    pub resident_bytes: BTreeMap<NodeId, u64>,
    /// What the configuration wishes for it, where its annotations say nothing.
    pub wishes: Wishes,
}

/// Number of devices by resource name.
pub type DeviceCounts = BTreeMap<String, u64>;

/// Amounts of what every node has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: Option<u64>,
    /// Ordinary memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Bytes of huge pages by size of the page in bytes.
    pub hugepages: BTreeMap<u64, u64>,
}

/// Where something that a container uses is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyHint {
    /// What says so: `mount:PATH`, `device:PATH`, `pod-resources:RESOURCE`.
    pub provider: String,
    /// CPUs near it; empty when not known.
    pub cpus: CpuSet,
    /// Nodes near it; empty when not known.
    pub nodes: NodeSet,
    /// Packages near it; empty when not known.
    pub packages: Vec<i32>,
}

/// The `QoS` class of a pod with these containers, by the rules of Kubernetes (`ComputePodQOS` in
/// pkg/apis/core/v1/helper/qos): Guaranteed when every container, init containers included, has limits
/// of CPU and memory and requests equal to them; `BestEffort` when none asks for CPU or memory. A zero
/// is nothing asked. Huge pages and devices do not count.
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
    /// The most of an amount that is needed at once: init containers run one after another, each beside
    /// the sidecars started before it, then the other containers run beside all sidecars.
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

    /// The container of that name.
    pub fn container(&self, name: &str) -> Option<&ContainerRequest> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Has this holder ended when the container at this place of the list starts? So it is with init
    /// containers of this pod that are before it; what they had is free for it.
    pub fn has_ended(&self, holder: &Holder, before: usize) -> bool {
        let earlier = self.containers.get(..before).unwrap_or(&self.containers);
        *holder.pod() == self.name
            && earlier
                .iter()
                .any(|container| container.kind == ContainerKind::Init && container.name == holder.name())
    }
}

impl ContainerRequest {
    /// Whole CPUs, for a request that is a whole number of them.
    pub fn whole_cpus(&self) -> Option<u64> {
        let milli = self.requests.milli_cpus?;
        milli.is_multiple_of(1000).then_some(milli / 1000)
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

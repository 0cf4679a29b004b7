//! Facts from which cpuset owners are determined: the kubelet's state, containers by their runtime, systemd
//! units.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Kubelet, LxcController, Owner, Ownership};
use crate::workload::{CgroupPath, Origin, Workload, identify};
use numa_topology::set::{CpuSet, NodeSet};

/// Everything that the ownership table reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnershipFacts {
    /// State of the kubelet's static managers.
    pub kubelet: Kubelet,
    /// Containers that the runtime reported, by container id.
    pub containers: BTreeMap<String, KnownContainer>,
    /// Units of systemd with CPUs or memory nodes in their files, by name.
    pub units: BTreeMap<String, UnitSetting>,
    /// Controller of LXC containers, if the host has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lxc: Option<LxcController>,
    /// Cgroup that the daemon itself runs in; `None` if unknown.
    #[serde(default)]
    pub own_cgroup: Option<CgroupPath>,
}

/// A container and its pod by their names. The author of the pod chose these names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownContainer {
    /// Uid of its pod.
    pub pod_uid: String,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// Its name in the pod.
    pub container: String,
    /// Labels of its pod, as far as Kubernetes allows them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// CPU request in thousandths of a CPU.
    #[serde(default)]
    pub milli_cpus: Option<u64>,
    /// CPU request of the whole pod in thousandths, if the runtime reports it.
    #[serde(default)]
    pub pod_milli_cpus: Option<u64>,
    /// Owner that the pod's annotations or variables name.
    pub claim: Option<PodClaim>,
}

/// Mark of another controller on a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodClaim {
    /// Controller that the mark names.
    pub owner: Owner,
    /// Annotation or variable with its value.
    pub evidence: String,
    /// CPUs in the mark.
    pub cpus: Option<CpuSet>,
    /// Memory nodes in the mark.
    pub mems: Option<NodeSet>,
    /// Whether `cpus` and `mems` belong to the pod as a whole and its containers share them.
    #[serde(default)]
    pub of_pod: bool,
}

/// CPUs or memory nodes that a unit file sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSetting {
    /// Path of the unit file.
    pub file: String,
    /// The line in the file: `AllowedCPUs=0-3`.
    pub line: String,
}

impl OwnershipFacts {
    /// Is the workload the daemon's own container, or a container of its pod? False for a systemd unit in
    /// which the daemon runs.
    pub(super) fn is_daemons(&self, workload: &Workload) -> bool {
        let Some(own) = &self.own_cgroup else { return false };
        match &workload.origin {
            Origin::Pod { pod_uid, .. } => {
                let is_in_pod =
                    || matches!(identify(own).origin, Origin::Pod { pod_uid: uid, .. } if uid == *pod_uid);
                own.is_within(&workload.cgroup) || is_in_pod()
            }
            Origin::Container { .. } => own.is_within(&workload.cgroup),
            _ => false,
        }
    }

    /// Owner by the mark on a container or its pod, as far as the mark is plausible.
    pub(super) fn marked(&self, known: &KnownContainer) -> Option<Ownership> {
        let PodClaim { owner, evidence, cpus, mems, .. } = known.claim.clone()?;
        if self.excess(known).is_none() {
            return Some(Ownership { owner, evidence, cpus, mems });
        }
        let evidence = format!("{evidence}, which is more than it asks for");
        Some(Ownership { owner, evidence, cpus: None, mems })
    }

    /// CPUs of a mark that are ignored. A controller gives a container at most the whole CPUs that it
    /// requests, so a mark with more CPUs counts as naming none. The request of a pod is the sum over its
    /// known containers; some containers may not be known yet.
    pub fn excess<'a>(&self, known: &'a KnownContainer) -> Option<&'a CpuSet> {
        let claim = known.claim.as_ref()?;
        let own = known.milli_cpus.unwrap_or(0);
        let asked = if claim.of_pod && !known.pod_uid.is_empty() {
            let others = self
                .containers
                .values()
                .filter(|other| other.pod_uid == known.pod_uid && other.container != known.container);
            let others = others.filter_map(|other| other.milli_cpus);
            others.fold(own, u64::saturating_add).max(known.pod_milli_cpus.unwrap_or(0))
        } else {
            own
        };
        claim.cpus.as_ref().filter(|cpus| cpus.len() as u64 > asked / 1000)
    }

    /// CPUs or memory nodes that the files of a unit set.
    pub(super) fn unit(&self, name: &str) -> Option<&UnitSetting> {
        self.units.get(name)
    }
}

//! What can be seen of those who write cpusets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Kubelet, Owner, Ownership};
use crate::{
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, Origin, Workload, identify},
};

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The kubelet.
    pub kubelet: Kubelet,
    /// Containers that a runtime told of, by id.
    pub containers: BTreeMap<String, KnownContainer>,
    /// Units of systemd whose files name CPUs or memory nodes, by name.
    pub units: BTreeMap<String, UnitSetting>,
    /// Cgroup that the daemon itself runs in; `None` where it is not known.
    #[serde(default)]
    pub own_cgroup: Option<CgroupPath>,
}

/// A container by its names. They are written by whoever makes pods.
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
    /// Thousandths of a CPU that it asks for.
    #[serde(default)]
    pub milli_cpus: Option<u64>,
    /// The same of its pod as a whole, where the runtime tells.
    #[serde(default)]
    pub pod_milli_cpus: Option<u64>,
    /// What the pod says of its owner.
    pub claim: Option<PodClaim>,
}

/// Another controller's mark on a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodClaim {
    /// Whose mark.
    pub owner: Owner,
    /// Annotation or variable, and its value.
    pub evidence: String,
    /// CPUs that it names.
    pub cpus: Option<CpuSet>,
    /// Memory nodes that it names.
    pub mems: Option<NodeSet>,
    /// They are those of the pod, which its containers have together.
    #[serde(default)]
    pub of_pod: bool,
}

/// CPUs or memory nodes in a unit's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSetting {
    /// Which file.
    pub file: String,
    /// Its line: `AllowedCPUs=0-3`.
    pub line: String,
}

impl Facts {
    /// Is this a container of the daemon's own pod, or the daemon's own container? A unit of systemd in which
    /// the daemon runs is none.
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

    /// What the mark on a container or its pod says, as far as it counts.
    pub(super) fn marked(&self, known: &KnownContainer) -> Option<Ownership> {
        let PodClaim { owner, evidence, cpus, mems, .. } = known.claim.clone()?;
        if self.excess(known).is_none() {
            return Some(Ownership { owner, evidence, cpus, mems });
        }
        let evidence = format!("{evidence}, which is more than it asks for");
        Some(Ownership { owner, evidence, cpus: None, mems })
    }

    /// CPUs of a mark that do not count. Nobody is given more CPUs for itself than the whole ones that it
    /// asks for: a mark that names more names none. A pod asks for what its containers ask for, of which not
    /// all need be known yet.
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

    /// The setting of a unit.
    pub(super) fn unit(&self, name: &str) -> Option<&UnitSetting> {
        self.units.get(name)
    }
}

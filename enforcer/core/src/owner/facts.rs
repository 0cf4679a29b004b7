//! What can be seen of those who write cpusets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Kubelet, Owner};
use crate::set::{CpuSet, NodeSet};

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The kubelet.
    pub kubelet: Kubelet,
    /// Containers that a runtime told of, by id.
    pub containers: BTreeMap<String, KnownContainer>,
    /// Units of systemd whose files name CPUs or memory nodes, by name.
    pub units: BTreeMap<String, UnitSetting>,
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
}

/// CPUs or memory nodes in a unit's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSetting {
    /// Which file.
    pub file: String,
    /// Its line: `AllowedCPUs=0-3`.
    pub line: String,
}

impl PodClaim {
    /// Nobody is given more CPUs for itself than the whole ones that it asks for, `milli_cpus` in thousandths: a mark
    /// that names more names none. Returns those that it named.
    pub fn limit(&mut self, milli_cpus: u64) -> Option<CpuSet> {
        let more = |cpus: &mut CpuSet| cpus.len() as u64 > milli_cpus / 1000;
        let named = self.cpus.take_if(more)?;
        self.evidence.push_str(", which is more than it asks for");
        Some(named)
    }
}

impl Facts {
    /// The setting of a unit, or of the template that it is an instance of.
    pub(super) fn unit(&self, name: &str) -> Option<&UnitSetting> {
        self.units.get(name).or_else(|| {
            let (template, instance) = name.split_once('@')?;
            let (_, suffix) = instance.rsplit_once('.')?;
            self.units.get(&format!("{template}@.{suffix}"))
        })
    }
}

//! Who decides on which CPUs and memory nodes a workload may run.
//!
//! Problem: a cpuset that two write is nobody's. The kubelet's static managers, koordlet, katalyst, a DRA
//! driver, systemd and libvirt each think that theirs is the last word. Idea: what can be seen of them on
//! this node becomes [`Facts`]; [`table`] says from these for each workload whose its cpuset is, by what
//! evidence, and where known what it ought to be. We write what is nobody's or ours, and nothing else.
//!
//! Never a guess: where something that would tell cannot be read, the owner is [`Owner::Unknown`], which is
//! not ours. What pods say of themselves (annotations) can only take them away from us, never give us what is
//! not.

mod facts;
mod kubelet;
mod own_settings;
mod table;

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    facts::{Facts, KnownContainer, PodClaim, UnitSetting},
    kubelet::{Claim, ClaimedPod, Kubelet, MemoryBlock},
    own_settings::{OwnSettings, as_in_file, is_same_list},
    table::given_at_creation,
};
use crate::{
    declarations::Declarations,
    model::Model,
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, Workload},
};

/// Whose word counts for a cpuset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// This daemon: placed when it was created, or declared.
    NumaEnforcer,
    /// The kubelet's static CPU manager gave it exclusive CPUs.
    KubeletCpuManager,
    /// The kubelet's static memory manager gave it memory nodes.
    KubeletMemoryManager,
    /// The kubelet's static CPU manager keeps it on the CPUs that nobody has for itself.
    KubeletSharedPool,
    /// Koordinator's node agent.
    Koordlet,
    /// Katalyst's node agent.
    Katalyst,
    /// A driver for dynamic resources that gave it CPUs.
    DraDriver,
    /// systemd, by `AllowedCPUs=` or `AllowedMemoryNodes=` of its unit.
    Systemd,
    /// libvirt, which writes below `machine.slice`.
    Libvirt,
    /// This daemon's own container or pod, which it does not write.
    DaemonItself,
    /// What would tell cannot be read.
    Unknown,
    /// Nobody.
    Nobody,
}

impl Owner {
    /// Every owner, in order.
    pub const ALL: [Self; 12] = [
        Self::NumaEnforcer,
        Self::KubeletCpuManager,
        Self::KubeletMemoryManager,
        Self::KubeletSharedPool,
        Self::Koordlet,
        Self::Katalyst,
        Self::DraDriver,
        Self::Systemd,
        Self::Libvirt,
        Self::DaemonItself,
        Self::Unknown,
        Self::Nobody,
    ];

    /// As in JSON and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NumaEnforcer => "numa-enforcer",
            Self::KubeletCpuManager => "kubelet-cpu-manager",
            Self::KubeletMemoryManager => "kubelet-memory-manager",
            Self::KubeletSharedPool => "kubelet-shared-pool",
            Self::Koordlet => "koordlet",
            Self::Katalyst => "katalyst",
            Self::DraDriver => "dra-driver",
            Self::Systemd => "systemd",
            Self::Libvirt => "libvirt",
            Self::DaemonItself => "daemon-itself",
            Self::Unknown => "unknown",
            Self::Nobody => "nobody",
        }
    }

    /// Is it somebody else, so that nothing may be written?
    pub const fn is_foreign(self) -> bool {
        !matches!(self, Self::NumaEnforcer | Self::Nobody)
    }

    /// In a sentence: `the kubelet's static CPU manager`.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::NumaEnforcer => "numa-enforcer",
            Self::KubeletCpuManager => "the kubelet's static CPU manager",
            Self::KubeletMemoryManager => "the kubelet's static memory manager",
            Self::KubeletSharedPool => "the kubelet's static CPU manager (shared pool)",
            Self::Koordlet => "koordlet",
            Self::Katalyst => "katalyst",
            Self::DraDriver => "a DRA driver",
            Self::Systemd => "systemd",
            Self::Libvirt => "libvirt",
            Self::DaemonItself => "the daemon itself, which does not write its own container",
            Self::Unknown => "an owner that could not be determined",
            Self::Nobody => "nobody",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whose a cpuset is, and how we know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ownership {
    /// Whose.
    pub owner: Owner,
    /// What says so: file, socket or annotation, and its value; empty for nobody.
    pub evidence: String,
    /// CPUs that the owner gave it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Memory nodes that the owner gave it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mems: Option<NodeSet>,
}

impl Ownership {
    /// An owner of whom it is not known what it wants.
    pub fn of(owner: Owner, evidence: impl Into<String>) -> Self {
        Self { owner, evidence: evidence.into(), cpus: None, mems: None }
    }

    /// Why nothing is written: `its cpuset belongs to OWNER: EVIDENCE`.
    pub fn refusal(&self) -> String {
        format!("its cpuset belongs to {}: {}", self.owner.in_words(), self.evidence)
    }
}

/// The owners of all workloads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    by_object: BTreeMap<String, Ownership>,
    claims: Vec<Claim>,
}

impl Owners {
    /// From what was seen. `placed` says of a cgroup whether we placed it when it was created.
    pub fn find(
        facts: &Facts,
        workloads: &[Workload],
        model: &Model,
        declarations: &Declarations,
        placed: impl Fn(&CgroupPath) -> bool,
    ) -> Self {
        let owned = |workload: &Workload| {
            let cpus = model.of(workload).and_then(|figures| figures.cpus.as_ref());
            let declared = declarations.asks_for(&workload.cgroup);
            let subject = table::Subject { workload, cpus, placed: placed(&workload.cgroup), declared };
            (workload.object(), table::owner_of(&subject, facts))
        };
        Self { by_object: workloads.iter().map(owned).collect(), claims: facts.kubelet.claims.clone() }
    }

    /// Whose a workload's cpuset is.
    pub fn of(&self, workload: &Workload) -> Option<&Ownership> {
        self.by_object.get(&workload.object())
    }

    /// The same, if it is somebody else's.
    pub fn foreign(&self, workload: &Workload) -> Option<&Ownership> {
        self.of(workload).filter(|ownership| ownership.owner.is_foreign())
    }

    /// What the kubelet gave away, for workloads that are seen and for those that are not.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }
}

#[cfg(test)]
mod tests;
mod wanted;

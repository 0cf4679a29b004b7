//! Which controller owns the cpuset of a workload: its CPUs and memory nodes.
//!
//! Problem: two controllers that write one cpuset undo each other's writes for as long as both run. The
//! kubelet's static managers, koordlet, katalyst, a DRA driver, systemd and libvirt each assume that they are
//! the only writer. Idea: [`OwnershipFacts`] holds what this node shows of them; [`table`] derives from it
//! the owner of each workload, the evidence, and the expected CPUs where known. The daemon writes only
//! cpusets that are its own or have no owner.
//!
//! Invariants: the owner is never guessed. If a source cannot be read, the owner is [`Owner::Unknown`], which
//! counts as foreign. Annotations of a pod can only take a workload away from the daemon, never give it one.

mod controlled;
mod facts;
mod kubelet;
mod own_settings;
mod table;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray, VariantNames};

pub(crate) use self::table::{OwnershipSubject, owner_of};
pub use self::{
    controlled::LxcController,
    facts::{KnownContainer, OwnershipFacts, PodClaim, UnitSetting},
    kubelet::{Claim, ClaimedPod, Kubelet, MemoryBlock},
    own_settings::{OwnSettings, as_in_file, is_same_list},
    table::given_at_creation,
};
use crate::named::Named as _;
use numa_topology::set::{CpuSet, NodeSet};

/// Controller that owns a cpuset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantArray, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Owner {
    /// This daemon: it placed the workload at creation, or the configuration declares the workload.
    NumaEnforcer,
    /// The kubelet's static CPU manager gave it exclusive CPUs.
    KubeletCpuManager,
    /// The kubelet's static memory manager gave it memory nodes.
    KubeletMemoryManager,
    /// The kubelet's static CPU manager keeps it on the shared pool: CPUs that no container has exclusively.
    KubeletSharedPool,
    /// Koordinator's node agent.
    Koordlet,
    /// Katalyst's node agent.
    Katalyst,
    /// A dynamic resource allocation driver that gave it CPUs.
    DraDriver,
    /// systemd, by `AllowedCPUs=` or `AllowedMemoryNodes=` of its unit.
    Systemd,
    /// libvirt, which writes below `machine.slice`.
    Libvirt,
    /// Slurm, which sets the cpusets of jobs, steps and tasks.
    Slurm,
    /// Nomad, which divides CPUs between allocations.
    Nomad,
    /// Flux, which constrains jobs to their cores.
    Flux,
    /// LXD, which balances its containers over CPUs.
    Lxd,
    /// Incus, which balances its containers over CPUs.
    Incus,
    /// Proxmox VE, which balances its containers over CPUs.
    Proxmox,
    /// The daemon's own container or pod, which the daemon does not write.
    DaemonItself,
    /// Unknown: a source that would tell cannot be read.
    Unknown,
    /// No controller. Its name in JSON and labels stays `nobody`, which readers of reports compare with.
    #[serde(rename = "nobody")]
    #[strum(serialize = "nobody")]
    Unowned,
}

impl Owner {
    /// Every owner, in order.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Does another controller own it, so that the daemon must not write it?
    pub const fn is_foreign(self) -> bool {
        !matches!(self, Self::NumaEnforcer | Self::Unowned)
    }

    /// Name for a sentence: `the kubelet's static CPU manager`.
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
            Self::Slurm => "Slurm",
            Self::Nomad => "Nomad",
            Self::Flux => "Flux",
            Self::Lxd => "LXD",
            Self::Incus => "Incus",
            Self::Proxmox => "Proxmox VE",
            Self::DaemonItself => "the daemon itself, which does not write its own container",
            Self::Unknown => "an owner that could not be determined",
            Self::Unowned => "nobody",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Owner of a cpuset, and the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ownership {
    /// The owner.
    pub owner: Owner,
    /// Evidence: file, socket or annotation with its value; empty if there is no owner.
    pub evidence: String,
    /// CPUs that the owner gave it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Memory nodes that the owner gave it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mems: Option<NodeSet>,
}

impl Ownership {
    /// An owner with unknown CPUs and memory nodes.
    pub fn of(owner: Owner, evidence: impl Into<String>) -> Self {
        Self { owner, evidence: evidence.into(), cpus: None, mems: None }
    }

    /// Why the daemon writes nothing: `its cpuset belongs to OWNER: EVIDENCE`.
    pub fn refusal(&self) -> String {
        format!("its cpuset belongs to {}: {}", self.owner.in_words(), self.evidence)
    }
}

#[cfg(test)]
mod tests;
mod wanted;

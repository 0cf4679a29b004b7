//! What one turn yields: the plan, and for each declared workload its target or the reason why it has none.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{
    partitions::{AddedAbove, WantedPartition},
    protected::ProtectedWorkload,
    target::CpusetTarget,
};
use crate::{considered::DecisionTrace, plan::Plan, workload::CgroupPath};
use numa_topology::set::NodeSet;

/// Planned steps, and declared workloads without steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Steps, workload by workload.
    pub plan: Plan,
    /// Declared workloads that are in place.
    pub in_place: Vec<CgroupPath>,
    /// Declared workloads that are not in place and get no steps.
    pub refused: Vec<Refusal>,
    /// CPU nodes on which each placed declared workload should run, in place or not.
    #[serde(default)]
    pub aims: BTreeMap<CgroupPath, NodeSet>,
    /// Target cpuset of each placed workload, and how far the workload is.
    #[serde(default)]
    pub targets: BTreeMap<CgroupPath, CpusetTarget>,
    /// Workloads that should have a partition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<CgroupPath, WantedPartition>,
    /// Of these, workloads without one, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub without_partition: BTreeMap<CgroupPath, String>,
    /// The partition that each addition to a cgroup above is for; tells which workload a refusal is about.
    #[serde(skip)]
    pub added_above: AddedAbove,
    /// Input of the decision about each declared workload and each container; shown by `explain`.
    #[serde(skip)]
    pub considered: BTreeMap<CgroupPath, DecisionTrace>,
    /// Workloads with guarded memory nodes; internal.
    #[serde(skip)]
    pub guarded: Vec<ProtectedWorkload>,
}

/// Reason why a declared workload is left where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Its cgroup.
    pub workload: CgroupPath,
    /// Kind of reason.
    pub cause: RefusalCause,
    /// The reason in one sentence with figures.
    pub reason: String,
}

/// Kind of the reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum RefusalCause {
    /// All CPUs are on one NUMA node, so there is no choice.
    OneNode,
    /// No node has room.
    NoPlace,
    /// Its cpuset could not be read.
    NotSeen,
    /// It was brought to the same goal within the cool-down.
    CoolDown,
    /// Another program writes its cpuset again and again.
    Drift,
    /// Its cpuset has another owner.
    OtherOwner,
    /// A cgroup above it, which the daemon may not widen, lacks some of its grant.
    AboveTooNarrow,
    /// Its cgroup has no cpuset files, because the controller is not enabled above it.
    NoController,
    /// It runs only on isolated CPUs, which the daemon did not grant and its entry does not ask for.
    PinnedToIsolated,
    /// A process in it has set a memory policy or a CPU affinity itself, which a write would change.
    SelfPlacement,
}

impl RefusalCause {
    /// Every cause, in order.
    pub const ALL: [Self; 10] = [
        Self::OneNode,
        Self::NoPlace,
        Self::NotSeen,
        Self::CoolDown,
        Self::Drift,
        Self::OtherOwner,
        Self::AboveTooNarrow,
        Self::NoController,
        Self::PinnedToIsolated,
        Self::SelfPlacement,
    ];
}

//! Changes of cpusets and memory policies, as the kernel side reports them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::EventCounts;
use crate::{memory_policy::PolicyMode, workload::CgroupPath};
use numa_topology::set::NodeSet;

/// Changes since the last sample, and totals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Changes in the order of the reports; the latest ones if there were too many.
    pub latest: Vec<Change>,
    /// Totals since the programs were first attached. `limited` ones came while a similar one was unread.
    pub counts: EventCounts,
}

/// A cpuset that another program wrote, or a memory policy that was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Time of the kernel's monotonic clock in nanoseconds.
    pub time_ns: u64,
    /// The workload; `None` if it was gone before its event was read.
    pub workload: Option<CgroupPath>,
    /// Kernel id of the changed cgroup, or of the cgroup of the thread that set the policy.
    pub cgroup_id: u64,
    /// Thread that made the change.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its `comm`.
    pub command: String,
    /// The change.
    pub what: ChangeKind,
}

/// Kind of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ChangeKind {
    /// A file of its cpuset.
    CpusetWritten {
        /// The file.
        file: CpusetFile,
    },
    /// A memory policy.
    PolicySet {
        /// Set for the thread, or for a range of addresses.
        scope: PolicyScope,
        /// The mode.
        mode: PolicyMode,
        /// Nodes of the policy with ids up to 63.
        numa_nodes: NodeSet,
    },
}

/// Files of a cpuset that take a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum CpusetFile {
    /// `cpuset.cpus`
    Cpus,
    /// `cpuset.mems`
    Mems,
    /// Another, such as `cpuset.cpus.exclusive`.
    Other,
}

/// Scope of a memory policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyScope {
    /// Allocations of the thread: `set_mempolicy(2)`.
    Task,
    /// A range of addresses: `mbind(2)`.
    Range,
}

/// Memory policies that were set, by scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyCounts {
    /// Policies of threads.
    pub tasks: u64,
    /// Policies of ranges of addresses.
    pub ranges: u64,
}

/// Writes by file.
pub type CpusetWriteCounts = BTreeMap<CpusetFile, u64>;
/// Memory policies by mode.
pub type Policies = BTreeMap<PolicyMode, PolicyCounts>;

//! Who changed where a workload may run or have its memory, as the kernel side tells it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EventCounts;
use crate::{memory_policy::PolicyMode, set::NodeSet, workload::CgroupPath};

/// Changes since the sample before, and how many there were in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// In the order in which they were told; the latest ones where there were too many.
    pub latest: Vec<Change>,
    /// Since the programs were first attached. `limited` ones came while one like it was unread.
    pub counts: EventCounts,
}

/// A cpuset that somebody else than this daemon wrote, or a memory policy that was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Time of the kernel's monotonic clock in nanoseconds.
    pub time_ns: u64,
    /// The workload; `None` when it was gone before anybody looked.
    pub workload: Option<CgroupPath>,
    /// Id of the cgroup whose cpuset it is, or whose thread set the policy.
    pub cgroup_id: u64,
    /// Thread that did it.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its `comm`.
    pub command: String,
    /// What was done.
    pub what: ChangeKind,
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ChangeKind {
    /// A file of its cpuset.
    CpusetWritten {
        /// Which one.
        file: CpusetFile,
    },
    /// A memory policy.
    PolicySet {
        /// Of the thread, or of a range of addresses.
        scope: PolicyScope,
        /// Which one.
        mode: PolicyMode,
        /// The nodes that it names, of those with ids up to 63.
        numa_nodes: NodeSet,
    },
}

/// Files of a cpuset that take a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpusetFile {
    /// `cpuset.cpus`
    Cpus,
    /// `cpuset.mems`
    Mems,
    /// Another, such as `cpuset.cpus.exclusive`.
    Other,
}

impl CpusetFile {
    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Mems => "mems",
            Self::Other => "other",
        }
    }
}

/// What a memory policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyScope {
    /// What the thread allocates: `set_mempolicy(2)`.
    Task,
    /// A range of addresses: `mbind(2)`.
    Range,
}

/// Memory policies that were set, by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyCounts {
    /// Of threads.
    pub tasks: u64,
    /// Of ranges of addresses.
    pub ranges: u64,
}

/// Writes by file.
pub type CpusetWrites = BTreeMap<CpusetFile, u64>;
/// Memory policies by mode.
pub type Policies = BTreeMap<PolicyMode, PolicyCounts>;

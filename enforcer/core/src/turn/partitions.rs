//! Partitions that the daemon has set, and partitions that workloads should have.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{partition::Partition, workload::CgroupPath};
use numa_topology::set::CpuSet;

/// Partition settings that the daemon has written at any time, and not put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitioned {
    /// Cgroups that it made partition roots.
    pub begun: BTreeSet<CgroupPath>,
    /// Cgroups with a `cpuset.cpus.exclusive` that it set.
    pub exclusive: BTreeSet<CgroupPath>,
}

impl Partitioned {
    /// All cgroups with such a setting.
    pub fn all(&self) -> BTreeSet<CgroupPath> {
        self.begun.union(&self.exclusive).cloned().collect()
    }
}

/// The partition that a workload should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WantedPartition {
    /// Kernel id of the cgroup, if known.
    pub cgroup_id: Option<u64>,
    /// CPUs of the partition: all CPUs of the workload.
    pub cpus: CpuSet,
    /// Kind of partition.
    pub kind: Partition,
}

/// The partition that each addition is for, by the cgroup above and its new set.
pub type AddedAbove = BTreeMap<(CgroupPath, CpuSet), CgroupPath>;

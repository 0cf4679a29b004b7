//! Workloads that stay because of settings of their own processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workload::CgroupPath;
use numa_topology::set::CpuSet;

/// A workload that is left where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelfPlaced {
    /// The setting that a write would change.
    pub reason: String,
    /// CPUs that its threads are pinned to.
    #[serde(default)]
    pub pinned: CpuSet,
    /// True if it is in its place, and only a move of its pages, or to a better place, is left out.
    #[serde(default)]
    pub keeps_place: bool,
}

/// Workloads that are left alone, by cgroup.
pub type SelfPlacedWorkloads = BTreeMap<CgroupPath, SelfPlaced>;

//! Where a decision wants a workload's cpuset, and how far the workload is from that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hosted::Cpuset;

/// Target cpuset of a workload, and how far the workload is from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Target")]
pub struct CpusetTarget {
    /// Kernel id of its cgroup; a recreated cgroup has another one.
    pub cgroup_id: Option<u64>,
    /// CPUs and memory nodes.
    pub cpuset: Cpuset,
    /// Distance to the target.
    pub standing: DriftStatus,
}

/// State of a workload's cpuset against its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Standing")]
pub enum DriftStatus {
    /// The cpuset is the target.
    InPlace,
    /// The target was not reached yet.
    OnItsWay,
    /// It was reached, and another program has written the cpuset since.
    Drifted,
    /// As `Drifted`, after the last repair that is allowed for now.
    LeftAlone,
}

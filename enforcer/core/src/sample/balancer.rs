//! Actions of the kernel's NUMA balancer on the tasks of a workload, and scans that it skipped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tasks that the kernel's balancer wanted on another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalancerSteps {
    /// Moved to the node of their memory.
    pub moved: u64,
    /// Exchanged for another task.
    pub swapped: u64,
    /// Left on their node, because the move failed.
    pub stuck: u64,
}

/// Scans for hinting faults that the kernel skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanSkips {
    /// Tasks that were not scanned because their cpuset has memory of a single node.
    pub one_node: Option<u64>,
    /// Mappings with a memory policy or kind that is not scanned.
    pub unsuitable: Option<u64>,
    /// Mappings that were skipped for now.
    pub passed: Option<u64>,
}

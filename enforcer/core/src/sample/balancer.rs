//! What the kernel's own NUMA balancer did with the tasks of a workload, and where it did not look.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tasks that the kernel's balancer wanted elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalancerSteps {
    /// Moved to the node of their memory.
    pub moved: u64,
    /// Exchanged for another task.
    pub swapped: u64,
    /// Left where they are, because that could not be done.
    pub stuck: u64,
}

/// Scans for hinting faults that the kernel did not make; of what it does not tell here, none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanSkips {
    /// Tasks that were not scanned because their cpuset has memory of one node.
    pub one_node: Option<u64>,
    /// Mappings that their memory policy or kind forbids to scan.
    pub unsuitable: Option<u64>,
    /// Mappings that were passed over for now.
    pub passed: Option<u64>,
}

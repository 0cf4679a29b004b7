//! What the DRA driver has prepared, and how its calls ended.

use std::collections::BTreeMap;

use numa_topology::id::NodeId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resource claims of this node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimsReport {
    /// Prepared claims.
    pub claims: usize,
    /// Containers that have what claims give.
    pub containers: usize,
    /// Times that a container named a claim that gave it nothing.
    pub spoofed: u64,
    /// What claims may have, by NUMA node.
    pub nodes: BTreeMap<NodeId, ClaimedNodeReport>,
    /// Calls since the daemon started.
    pub calls: ClaimCallTotals,
}

/// What claims may have of a node, and what they have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedNodeReport {
    /// CPUs that claims may have exclusively.
    pub exclusive_capacity: u64,
    /// CPUs that they have exclusively.
    pub exclusive_cpus: u64,
    /// CPUs that are exclusive to no claim and to no container.
    pub shared_cpus: u64,
    /// Bytes of memory that claims may have.
    pub memory_capacity: u64,
    /// Bytes that they were promised.
    pub memory_promised: u64,
}

/// Counts of the kubelet's calls and of writes to the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimCallTotals {
    /// Whether the kubelet has registered the driver.
    pub is_registered: bool,
    /// Claims that were prepared, or were prepared already.
    pub prepared: u64,
    /// Claims that were refused.
    pub refused: u64,
    /// Time of these calls, waits included, in seconds.
    pub prepare_seconds: f64,
    /// Claims that were given up, or were unknown.
    pub given_up: u64,
    /// Claims that could not be given up.
    pub kept: u64,
    /// Writes of slices.
    pub slice_writes: u64,
}

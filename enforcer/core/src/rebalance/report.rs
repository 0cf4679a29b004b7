//! A plan of moves as it is printed: which workload goes where, its cost and its gain.
//!
//! Keys are a contract (docs/schema/rebalance.schema.json). Ids are in the kernel's list format, sizes are
//! bytes, times seconds, ratios from 0 to 1.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{turn::Move, workload::CgroupPath};
use numa_topology::degraded::Degraded;

/// Version of [`RebalanceReport`]: raised when a key goes away or changes its meaning.
pub const REBALANCE_SCHEMA_VERSION: u32 = 2;

/// Moves that give workloads better places, in the order in which they are made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebalanceReport {
    /// Version of this format.
    pub schema_version: u32,
    /// The moves. Those with the same `group` are made together.
    pub moves: Vec<Move>,
    /// Workloads that are not moved although their place has a fault or could have one, with the reason.
    pub left: Vec<UnmovedWorkload>,
    /// Bytes of all moves together.
    pub bytes: u64,
    /// Bytes that may be moved: the budget.
    pub budget_bytes: u64,
    /// Seconds that all moves together are expected to take.
    pub seconds: f64,
    /// CPU seconds that all moves together are expected to save within the horizon.
    pub gain: f64,
    /// CPU seconds that they cost.
    pub cost: f64,
    /// Missing sources and their consequence.
    #[serde(default)]
    pub degraded: Vec<Degraded>,
}

/// A workload that is not moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LeftAs")]
pub struct UnmovedWorkload {
    /// Cgroup of the workload.
    pub workload: CgroupPath,
    /// True if its place has a fault that a move could fix.
    pub ailing: bool,
    /// Why it is not moved.
    pub reason: String,
}

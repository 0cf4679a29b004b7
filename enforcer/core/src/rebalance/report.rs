//! A plan of moves as it is printed: which workload goes where, its cost and its gain.
//!
//! Keys are a contract (docs/schema/rebalance.schema.json). Ids are in the kernel's list format, sizes are
//! bytes, times seconds, ratios from 0 to 1.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::{CgroupPath, QosClass};
use numa_topology::{
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

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

/// One workload that settles on a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Number of the group, from 1; moves of one group are made together or not at all.
    pub group: u32,
    /// Cgroup of the workload.
    pub workload: CgroupPath,
    /// Its `QoS` class.
    pub qos: QosClass,
    /// Node on which its CPUs and its memory will be.
    pub to: NodeId,
    /// Its CPUs now.
    pub cpus_from: Cpus,
    /// Its CPUs after the move; `null` if they stay.
    pub cpus_to: Option<Cpus>,
    /// Bytes to move, by their present node.
    pub bytes_from: BTreeMap<NodeId, u64>,
    /// Bytes to move.
    pub bytes: u64,
    /// Seconds that this is expected to take.
    pub seconds: f64,
    /// Figures before the move.
    pub now: Figures,
    /// Expected figures after the move.
    pub then: Figures,
    /// CPU seconds that the group saves within the horizon, before its cost.
    pub gain: f64,
    /// CPU seconds that the group costs.
    pub cost: f64,
    /// The reason in one sentence, with the figures that decided.
    pub reason: String,
}

/// CPUs of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cpus {
    /// Exclusive CPUs; empty if it shares its CPUs.
    pub exclusive: CpuSet,
    /// Nodes of the exclusive CPUs, or of the shared ones.
    pub nodes: NodeSet,
}

/// Locality figures of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Share of accesses that are remote; `null` with too few observations.
    pub remote_ratio: Option<f64>,
    /// CPU seconds lost per second.
    pub lost: f64,
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

//! A plan of moves as it is shown and written: who goes where, what that costs and what it is good for.
//!
//! Keys are a contract (docs/schema/rebalance.schema.json). Ids are in the kernel's list format, sizes are
//! bytes, times seconds, ratios from 0 to 1.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, QosClass},
};

/// Version of [`RebalanceReport`]: raised when a key goes away or changes its meaning.
pub const REBALANCE_SCHEMA_VERSION: u32 = 2;

/// Moves that give the host better places, in the order in which they are to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebalanceReport {
    /// Version of this format.
    pub schema_version: u32,
    /// The moves. Those with the same `group` are made together.
    pub moves: Vec<Move>,
    /// Who is not moved although something is wrong, or could be, and why.
    pub left: Vec<LeftAs>,
    /// Bytes of all moves together.
    pub bytes: u64,
    /// Bytes that could have been moved: the budget.
    pub budget_bytes: u64,
    /// Seconds that all moves together are expected to take.
    pub seconds: f64,
    /// CPU seconds that all moves together are expected to save within the horizon.
    pub gain: f64,
    /// CPU seconds that they cost.
    pub cost: f64,
    /// What could not be seen.
    #[serde(default)]
    pub degraded: Vec<Degraded>,
}

/// One workload that settles on a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Number of the group, from 1; moves of one group are made together or not at all.
    pub group: u32,
    /// Who.
    pub workload: CgroupPath,
    /// Its `QoS` class.
    pub qos: QosClass,
    /// Node on which its CPUs and its memory will be.
    pub to: NodeId,
    /// Its CPUs now.
    pub cpus_from: Cpus,
    /// Its CPUs then; `null` where they stay.
    pub cpus_to: Option<Cpus>,
    /// Bytes to move, by the node that they are on now.
    pub bytes_from: BTreeMap<NodeId, u64>,
    /// Bytes to move.
    pub bytes: u64,
    /// Seconds that this is expected to take.
    pub seconds: f64,
    /// Figures now.
    pub now: Figures,
    /// Figures as expected then.
    pub then: Figures,
    /// CPU seconds that the group saves within the horizon, without what it costs.
    pub gain: f64,
    /// CPU seconds that the group costs.
    pub cost: f64,
    /// Why, in one sentence with the figures that decided.
    pub reason: String,
}

/// CPUs of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cpus {
    /// Those that it has for itself; empty where it shares them.
    pub exclusive: CpuSet,
    /// Their nodes, or those on which it shares.
    pub nodes: NodeSet,
}

/// How a workload fares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Share of accesses that are remote; `null` where too little was seen.
    pub remote_ratio: Option<f64>,
    /// CPU seconds lost per second.
    pub lost: f64,
}

/// Somebody who stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftAs {
    /// Who.
    pub workload: CgroupPath,
    /// Is something wrong with it that a move could mend?
    pub ailing: bool,
    /// Why it is not moved.
    pub reason: String,
}

//! The move of one workload to another node, as it is planned, recorded and printed.
//!
//! Keys are a contract (docs/schema/rebalance.schema.json). Ids are in the kernel's list format, sizes are
//! bytes, times seconds, ratios from 0 to 1.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::{CgroupPath, QosClass};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

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

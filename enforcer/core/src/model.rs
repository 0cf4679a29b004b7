//! From two samples to figures: rates, residency per node, remote ratios.
//!
//! **Residency** is where the pages are; **traffic** is what is accessed. They are never mixed up.
//! The model is a pure function of its inputs and keeps `None` where a sample has none.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::NodeId,
    sample::NodeBytes,
    set::{CpuSet, NodeSet},
    workload::CgroupPath,
};

/// Figures of every workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Time between the two samples; `None` when there was only one.
    pub interval_ns: Option<u64>,
    /// By cgroup.
    pub workloads: BTreeMap<CgroupPath, WorkloadModel>,
}

/// Figures of one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadModel {
    /// CPUs it may use.
    pub cpus: Option<CpuSet>,
    /// Nodes it may allocate on.
    pub mems: Option<NodeSet>,
    /// Nodes of the CPUs it may use.
    pub cpu_nodes: NodeSet,
    /// Threads.
    pub tasks: Option<u64>,
    /// Where its memory is.
    pub bytes_by_node: Option<BTreeMap<NodeId, NodeBytes>>,
    /// Share of its run time on each node, 0 to 1, summing to 1.
    pub run_share: Option<BTreeMap<NodeId, f64>>,
    /// Share of its memory on nodes other than those of its CPUs, 0 to 1.
    pub remote_residency: Option<f64>,
    /// Estimate of what it accesses.
    pub traffic: Option<Traffic>,
    /// Placements on another node per second.
    pub migrations_per_second: Option<f64>,
    /// CPU time per second of wall time, in CPUs.
    pub cpus_used: Option<f64>,
}

/// Estimate of remote memory accesses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Remote accesses over all accesses, 0 to 1.
    pub remote_ratio: f64,
    /// What it was computed from.
    pub source: TrafficSource,
    /// Number of observations behind it: clock ticks, faulted pages or hardware samples.
    pub samples: u64,
}

/// Where a traffic figure comes from, least trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficSource {
    /// Run-time share times residency.
    Placement,
    /// NUMA hinting faults.
    HintFaults,
    /// Hardware counters.
    Hardware,
}

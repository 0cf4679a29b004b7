//! The audit report: one host, its workloads and its findings. Its serde form is the JSON of `numa-enforcer
//! audit -o json`.
//!
//! Equal input gives equal bytes: everything is sorted, and nothing here reads the time.

mod baseline;
mod flow;
mod report;
mod verdict;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::{
    finding::{Finding, Severity},
    model::Traffic,
    owner::Ownership,
    sample::{HostSettings, NodeBytes},
    workload::{CgroupPath, Origin},
};
use numa_topology::{
    Topology,
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Version of the serde form of [`Audit`].
pub const AUDIT_SCHEMA_VERSION: u32 = 1;

pub use self::{
    baseline::Baseline,
    flow::{NodeTraffic, TrafficMap},
    report::AuditInputs,
};

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// [`AUDIT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Program that wrote the report.
    pub tool: ReportingTool,
    /// Time of the sample, by RFC 3339 in UTC; absent for a captured tree, which does not record its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<String>,
    /// Host of the report.
    pub host: AuditedHost,
    /// Missing sources and their consequence.
    pub degraded: Vec<Degraded>,
    /// The machine.
    pub topology: Topology,
    /// Host-wide settings.
    pub settings: HostSettings,
    /// Audited workloads.
    pub workloads: Vec<AuditedWorkload>,
    /// Traffic between nodes; absent without `--sample`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_map: Option<TrafficMap>,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
    /// The report in numbers.
    pub summary: Summary,
}

/// The program that wrote the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Tool")]
pub struct ReportingTool {
    /// `numa-enforcer`.
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// The commit that it is built from, in a release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// The host of the report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Host")]
pub struct AuditedHost {
    /// Host name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Option<String>,
    /// First `model name` of `/proc/cpuinfo`.
    pub cpu_model: Option<String>,
    /// `v1`, `v2` or `hybrid`.
    pub cgroup_version: Option<String>,
}

/// One workload and its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditedWorkload {
    /// Cgroup of the workload.
    pub cgroup: CgroupPath,
    /// Name for people.
    pub name: String,
    /// Kind of workload and the names behind it.
    pub origin: Origin,
    /// Owner of its cpuset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Ownership>,
    /// CPUs it may use.
    pub cpus: Option<CpuSet>,
    /// Nodes it may allocate on.
    pub mems: Option<NodeSet>,
    /// Nodes of its CPUs.
    pub numa_nodes: NodeSet,
    /// Threads.
    pub tasks: Option<u64>,
    /// Its memory by node.
    pub bytes_by_numa: Option<BTreeMap<NodeId, NodeBytes>>,
    /// Share of its memory away from its CPUs, 0 to 1.
    pub remote_residency: Option<f64>,
    /// Share of its accesses that are remote; `null` without `--sample`.
    pub traffic: Option<Traffic>,
    /// Verdict in one word.
    pub verdict: AuditVerdict,
    /// Ids of its findings.
    pub findings: Vec<String>,
}

/// Alignment of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum AuditVerdict {
    /// CPUs and memory are on the same nodes.
    Aligned,
    /// CPUs and memory are mostly on the same nodes.
    Partial,
    /// CPUs and memory are on different nodes.
    Misaligned,
    /// There are too few measurements.
    Unknown,
}

/// The report in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// All workloads.
    pub total: usize,
    /// Aligned workloads.
    pub aligned: usize,
    /// Partly aligned workloads.
    pub partial: usize,
    /// Misaligned workloads.
    pub misaligned: usize,
    /// Workloads with an unknown verdict.
    pub unknown: usize,
    /// Of these, workloads that are unknown only because they may run on several nodes and their traffic was
    /// not sampled.
    #[serde(default)]
    pub unsampled: usize,
    /// Findings left out because an earlier audit has them.
    #[serde(default, skip_serializing_if = "is_none_known")]
    pub known: usize,
    /// Severity of the worst finding.
    pub worst: Option<Severity>,
    /// Exit code of the command.
    pub exit_code: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_none_known(known: &usize) -> bool {
    *known == 0
}

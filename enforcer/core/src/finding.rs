//! Findings: what is wrong, how we know, what it costs, and what to do about it.
//!
//! A finding's id is stable: the same misalignment of the same object has the same id in every run,
//! so that a baseline can leave known ones out. A finding without evidence must not exist.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::CgroupPath;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Costs performance.
    Warning,
    /// Costs much performance, or breaks what was promised to the workload.
    Critical,
}

/// The rules that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// `cpuset.cpus` and `cpuset.mems` name different nodes.
    CpusetMismatch,
    /// Memory is on nodes that the workload's CPUs are not on.
    RemoteResidency,
    /// Most memory accesses go to another node than the CPU that makes them.
    RemoteTraffic,
    /// The CPUs span nodes although one node would hold the workload.
    SpansNodes,
    /// A declared workload is not where its placement says.
    Drift,
    /// A thread's own affinity leaves it outside the node of its workload.
    ThreadAffinity,
}

/// One value that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// File or counter.
    pub source: String,
    /// Value as read.
    pub value: String,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `RULE:OBJECT`, stable between runs.
    pub id: String,
    /// Rule that is broken.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// Cgroup it is about.
    pub object: CgroupPath,
    /// One sentence.
    pub summary: String,
    /// What was read.
    pub evidence: Vec<Evidence>,
    /// What it costs.
    pub impact: String,
    /// Command that mends it.
    pub remedy: String,
}

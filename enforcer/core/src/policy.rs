//! What people asked for: the daemon's settings and the workloads they declare.
//!
//! This is the schema of the configuration file; unknown keys are refused. Reading the file is the
//! daemon's business.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// `observe` never writes.
    pub mode: Mode,
    /// Seconds between two samples.
    pub interval_seconds: f64,
    /// Declared workloads.
    #[serde(rename = "workload")]
    pub workloads: Vec<WorkloadRule>,
}

/// May the daemon write?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Never writes.
    #[default]
    Observe,
    /// Corrects declared workloads.
    Enforce,
}

/// A `[[workload]]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadRule {
    /// What people call it.
    pub name: String,
    /// Glob over cgroup paths; `*` does not cross a `/`, `**` does.
    pub cgroup: String,
    /// CPUs it needs.
    pub cpus: u32,
    /// Memory it needs: `512MiB`, `2G`.
    #[serde(default)]
    pub memory: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { mode: Mode::Observe, interval_seconds: 10.0, workloads: Vec::new() }
    }
}

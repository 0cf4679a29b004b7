//! What could not be seen or done, by name.
//!
//! A source that is missing is never a silent pass: it becomes one of these, and the reports show it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A source that is not available, and what that costs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Degraded {
    /// Short stable name: `bpf`, `task-iterator`, `numa-balancing`, `hmat`, `cgroup:/a/b`.
    pub source: String,
    /// Why it is missing, with path, value and cause.
    pub reason: String,
    /// What the reader of the report does not get because of it.
    pub effect: String,
}

impl Degraded {
    /// A degraded source, what broke it, and what is lost.
    pub fn new(source: impl Into<String>, reason: impl Into<String>, effect: impl Into<String>) -> Self {
        Self { source: source.into(), reason: reason.into(), effect: effect.into() }
    }
}

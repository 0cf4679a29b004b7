//! How a declared workload uses its CPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declared use of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeclaredClass {
    /// CPUs of its own.
    Exclusive,
    /// CPUs shared with others.
    Shared,
    /// CPUs of its own, from `isolcpus=` if there are enough; only for the engine `pools`.
    Isolated,
    /// CPUs reserved for the system; only for the engine `pools`.
    Reserved,
}

//! What the daemon measures of a node's workloads, in its published state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Locality of the workloads that run on the node.
///
/// It decides nothing about admissions. A scheduler prefers nodes where less is remote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredLocality {
    /// Percent of the workloads' memory that is remote to their CPUs, rounded down to 0, 10, 25, 50 or 75, so
    /// that the object changes seldom.
    #[schemars(range(max = 100))]
    pub remote_percent: u8,
}

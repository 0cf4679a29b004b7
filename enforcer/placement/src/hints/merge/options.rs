//! How candidates of a merge are compared.

use crate::settings::{HintsSettings, NumaAllocationStrategy, TopologyPolicy};

/// Comparison of candidates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// For equal width, the smaller average distance is better (`prefer-closest-numa-nodes`).
    pub prefer_closest: bool,
    /// Only single preferred nodes count (`single-numa-node`).
    pub single_node: bool,
    /// Tie-break between two masks that are otherwise equal.
    pub strategy: NumaAllocationStrategy,
}

impl From<&HintsSettings> for MergeOptions {
    fn from(settings: &HintsSettings) -> Self {
        let single_node = settings.policy == TopologyPolicy::SingleNumaNode;
        let prefer_closest = settings.prefer_closest() && !single_node;
        Self { prefer_closest, single_node, strategy: settings.numa_allocation_strategy }
    }
}

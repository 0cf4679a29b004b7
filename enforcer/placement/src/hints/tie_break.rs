//! The key that decides between sets of nodes of equal width and distance.
//!
//! The order of sets has these keys: width, distance (`prefer-closest-numa-nodes`), the tie-break, and the
//! lower ids. Exactly one tie-break applies to a question, the first of this table:
//!
//! | tie-break | applies if | better is |
//! |---|---|---|
//! | [`Residence`](TieBreak::Residence) | the container has memory already | the set with more of it |
//! | [`Usage`](TieBreak::Usage) | `numa-allocation-strategy` is set | the fuller or the emptier set |
//! | [`Ids`](TieBreak::Ids) | the profile is `kubelet`, which has no other key | the set with lower ids |
//! | [`SharedCpus`](TieBreak::SharedCpus) | otherwise | the set with less cost for shared CPUs |
//!
//! Residence and usage are scores of hints, so the merge compares them; the other two never give it a score
//! to compare.

use crate::settings::{HintsSettings, NumaAllocationStrategy};

/// What decides between sets of nodes of equal width and distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TieBreak {
    /// Bytes that the container has on the nodes; they replace the scores of its hints.
    Residence,
    /// Scores of the hints, by the use of their nodes.
    Usage(NumaAllocationStrategy),
    /// Ids of the nodes.
    Ids,
    /// Cost for containers that share CPUs.
    SharedCpus,
}

impl TieBreak {
    /// The first row of the table that applies.
    pub(super) fn of(settings: &HintsSettings, has_memory: bool) -> Self {
        match settings.numa_allocation_strategy {
            _ if has_memory => Self::Residence,
            NumaAllocationStrategy::None if settings.is_kubelet() => Self::Ids,
            NumaAllocationStrategy::None => Self::SharedCpus,
            strategy => Self::Usage(strategy),
        }
    }

    /// How the merge compares scores of hints.
    pub(super) const fn of_scores(self) -> NumaAllocationStrategy {
        match self {
            // A score is the share of the container's memory.
            Self::Residence => NumaAllocationStrategy::MostAllocated,
            Self::Usage(strategy) => strategy,
            Self::Ids | Self::SharedCpus => NumaAllocationStrategy::None,
        }
    }
}

//! How full sets of nodes are, as the score of a hint.

use super::{
    MemoryStock,
    offer::{now, when_empty},
};
use crate::place::{
    MemoryResource,
    hints::{Mask, positions},
};

/// What each node has of one kind of memory, and what of it is promised.
#[derive(Debug)]
pub(super) struct Fullness {
    nodes: Vec<(u64, u64)>,
}

impl Fullness {
    /// Of all nodes that take part in hints.
    pub(super) fn of(stock: &MemoryStock<'_>, resource: MemoryResource) -> Self {
        let node = |node: usize| {
            let has = when_empty(stock, 1 << node, resource);
            (has, has.saturating_sub(now(stock, 1 << node, resource)))
        };
        Self { nodes: (0..stock.nodes.len()).map(node).collect() }
    }

    /// How much of these nodes is promised, from 1 (nothing) to 100 (all).
    pub(super) fn score(&self, mask: Mask) -> u8 {
        let nodes = positions(mask).filter_map(|node| self.nodes.get(node));
        let (has, promised) = nodes.fold((0u64, 0u64), |(has, promised), node| {
            (has.saturating_add(node.0), promised.saturating_add(node.1))
        });
        // Seven bits are room enough for the factor of 99.
        let shift = 7u32.saturating_sub(has.leading_zeros());
        let share = ((promised >> shift) * 99).checked_div(has >> shift).unwrap_or(0);
        u8::try_from(1 + share).map_or(100, |score| score.min(100))
    }
}

//! Use of sets of nodes, as the score of a hint.

use super::{
    MemoryStock,
    stock::{now, when_empty},
};
use crate::{
    MemoryResource,
    hints::{Mask, Sums},
};

/// Capacity and promises of sets of nodes, for one kind of memory.
#[derive(Debug)]
pub(super) struct Fullness {
    has: Sums,
    promised: Sums,
}

impl Fullness {
    /// Fullness of all nodes that take part in hints.
    pub(super) fn of(stock: &MemoryStock<'_>, resource: MemoryResource) -> Self {
        let nodes = || (0..stock.nodes.len()).map(|node| stock.apart(node));
        let has: Vec<u64> = nodes().map(|node| when_empty(stock, node, resource)).collect();
        let left = nodes().map(|node| now(stock, node, resource));
        let promised = has.iter().zip(left).map(|(has, left)| has.saturating_sub(left)).collect();
        Self { has: Sums::new(has), promised: Sums::new(promised) }
    }

    /// Promised share of these nodes, from 1 (nothing) to 100 (all).
    pub(super) fn score(&self, mask: Mask) -> u8 {
        let (has, promised) = (self.has.at(mask), self.promised.at(mask));
        // Seven bits are enough for the factor of 99.
        let shift = 7u32.saturating_sub(has.leading_zeros());
        let share = ((promised >> shift) * 99).checked_div(has >> shift).unwrap_or(0);
        u8::try_from(1 + share).map_or(100, |score| score.min(100))
    }
}

//! One amount for every set of nodes.
//!
//! Problem: a resource that lists the suitable sets of nodes checks each of the 2^N sets, and a sum over the
//! nodes of a set for each check dominates the cost. Idea: the sum of a set is that of the set without one of
//! its nodes, plus that node's amount, so each sum costs one addition. Questions beyond sums (what is *near*
//! a set, the minimum over all supersets) take one pass over the table per node, which pairs every set with
//! the same set plus that node.
//!
//! Cost: 2^N additions for sums, N x 2^(N-1) for passes. The limit is [`MAX_ENUMERATED_NODES`] nodes.

use super::{MAX_ENUMERATED_NODES, Mask, positions};

/// Amounts by set of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table(Vec<u64>);

impl Table {
    /// Sums over the nodes of each set; they saturate.
    pub(crate) fn of_sums(by_node: &[u64]) -> Self {
        let mut sums = vec![0u64; 1 << by_node.len().min(MAX_ENUMERATED_NODES)];
        for (position, amount) in by_node.iter().take(MAX_ENUMERATED_NODES).enumerate() {
            let (without, with) = sums.split_at_mut(1 << position);
            for (with, without) in with.iter_mut().zip(without) {
                *with = without.saturating_add(*amount);
            }
        }
        Self(sums)
    }

    /// For each set of nodes, the amounts near any of its nodes, for amounts that are near sets of nodes.
    pub(crate) fn of_near(nodes: usize, near: impl IntoIterator<Item = (Mask, u64)>) -> Self {
        let all = (1 << nodes.min(MAX_ENUMERATED_NODES)) - 1;
        let mut inside = vec![0u64; all + 1];
        for (mask, count) in near {
            if let Some(slot) = usize::try_from(mask).ok().and_then(|mask| inside.get_mut(mask)) {
                *slot = slot.saturating_add(count);
            }
        }
        each_pair(&mut inside, |without, with| *with = with.saturating_add(*without));
        // Amounts far from a set are near only the other nodes.
        let total = inside[all];
        Self((0..=all).map(|set| total.saturating_sub(inside[all & !set])).collect())
    }

    /// A table of amounts by set, in ascending order of the masks.
    pub(crate) const fn of_amounts(by_set: Vec<u64>) -> Self {
        Self(by_set)
    }

    /// Limits all amounts to `most`.
    pub(crate) fn at_most(mut self, most: u64) -> Self {
        self.0.iter_mut().for_each(|amount| *amount = (*amount).min(most));
        self
    }

    /// Amount of a set; 0 for a set outside the table.
    pub(crate) fn at(&self, mask: Mask) -> u64 {
        usize::try_from(mask).ok().and_then(|set| self.0.get(set)).copied().unwrap_or(0)
    }
}

/// Sums over sets of nodes, precomputed for few nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sums {
    /// For at most [`MAX_ENUMERATED_NODES`] nodes.
    BySet(Table),
    /// For more nodes.
    ByNode(Vec<u64>),
}

impl Sums {
    /// Sums over the amount of each node, by position.
    pub(crate) fn new(by_node: Vec<u64>) -> Self {
        if by_node.len() <= MAX_ENUMERATED_NODES {
            Self::BySet(Table::of_sums(&by_node))
        } else {
            Self::ByNode(by_node)
        }
    }

    /// Sum over the nodes of a set; saturates.
    pub(crate) fn at(&self, mask: Mask) -> u64 {
        match self {
            Self::BySet(table) => table.at(mask),
            Self::ByNode(by_node) => {
                let amounts = positions(mask).filter_map(|node| by_node.get(node));
                amounts.fold(0, |sum, amount| sum.saturating_add(*amount))
            }
        }
    }
}

/// For each node: calls `step` with the entry of every set without it and that of the same set with it. The
/// length of the table must be a power of two.
pub(crate) fn each_pair<T>(table: &mut [T], step: impl Fn(&mut T, &mut T)) {
    let mut half = 1;
    while half < table.len() {
        for block in table.chunks_exact_mut(2 * half) {
            let (without, with) = block.split_at_mut(half);
            without.iter_mut().zip(with).for_each(|(without, with)| step(without, with));
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_table_says_what_counting_says(
            by_node in proptest::collection::vec(prop_oneof![0u64..9, Just(u64::MAX)], 0..7),
            near in proptest::collection::vec((1u64..128, 0u64..9), 0..9),
        ) {
            let sums = Table::of_sums(&by_node);
            let near: Vec<(Mask, u64)> =
                near.into_iter().map(|(mask, count)| (mask & ((1 << by_node.len()) - 1), count)).collect();
            let near: Vec<(Mask, u64)> = near.into_iter().filter(|(mask, _)| *mask != 0).collect();
            let by_near = Table::of_near(by_node.len(), near.iter().copied());
            for set in 0..1u64 << by_node.len() {
                let sum = positions(set).fold(0u64, |sum, node| sum.saturating_add(by_node[node]));
                prop_assert_eq!(sums.at(set), sum);
                let count: u64 = near.iter().filter(|(mask, _)| mask & set != 0).map(|(_, count)| count).sum();
                prop_assert_eq!(by_near.at(set), count);
            }
            prop_assert_eq!(sums.at(Mask::MAX), 0);
            let all = (1 << by_node.len()) - 1;
            prop_assert_eq!(Sums::ByNode(by_node.clone()).at(all), Sums::new(by_node).at(all));
        }
    }
}

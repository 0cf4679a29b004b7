//! The merge: one set of nodes from what every resource offers.
//!
//! Problem: every resource lists the sets of nodes that would do for it, and one set for all is
//! sought. By definition it is the best result over the cross product of all lists, where the result
//! of one combination is what its sets have in common, and is preferred when all sets are the same
//! one and preferred in their lists. The cross product has (2^N - 1)^resources elements, so it is
//! never walked. Idea: the definition has a closed form.
//!
//! - The preferred answer is the best set that is preferred in every list ([`agreed`]).
//! - Only when there is none, the answer is the best of all sets that are the intersection of one
//!   set of each list ([`closure`]), for every combination is then a non-preferred one.
//!
//! The best set is that of one total order ([`order`]), so the order of offers, resources and hints
//! never shows.
//!
//! Terminology: an *anywhere* hint names no nodes. Bits of a hint's mask beyond the last node of the
//! index stand for nodes that the machine does not have: they count for the width of a hint and for
//! whether two hints are the same, and are never part of an answer.
//!
//! Cost: see the modules; O(hints) for the preferred answer, O(resources x N x 2^N) for the other one
//! on up to [`LISTED_NODES`] nodes. What is exact and what is bounded beyond that is said in
//! [`closure`].

mod agreed;
mod closure;
mod list;
mod order;
mod scores;
#[cfg(test)]
mod tests;

use self::{
    list::List,
    order::{Best, Order},
    scores::Scores,
};
use super::{Mask, NodeIndex, Offer};
use crate::policy::placement::NumaAllocationStrategy;

/// Up to this many nodes every set of nodes may be looked at.
pub const LISTED_NODES: usize = 16;

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
    offers: impl IntoIterator<Item = &'a Offer>,
    options: MergeOptions,
) -> Merged {
    let lists: Vec<List<'a>> = offers.into_iter().map(|offer| List::of(offer, nodes, options)).collect();
    let all = nodes.all();
    let found = preferred(nodes, &lists, options).map(|mask| Merged { mask: Some(mask), preferred: true });
    // Of different single nodes nothing is common, so `single_node` has no other answer.
    let found = found.or_else(|| {
        let other = if options.single_node { None } else { not_preferred(nodes, &lists, options) };
        other.map(|mask| Merged { mask: Some(mask), preferred: false })
    });
    let merged = found.unwrap_or(Merged { mask: Some(all), preferred: false });
    Merged { mask: merged.mask.filter(|&mask| !(options.single_node && mask == all)), ..merged }
}

fn preferred(nodes: &NodeIndex, lists: &[List<'_>], options: MergeOptions) -> Option<Mask> {
    let order = Order::of_preferred(nodes, options);
    let scores = Scores::new(lists, nodes.all(), options.strategy, |hint| hint.preferred);
    let mut best = Best::new(&order, &scores);
    agreed::visit(lists, nodes.all(), |mask| best.consider(mask));
    best.found()
}

fn not_preferred(nodes: &NodeIndex, lists: &[List<'_>], options: MergeOptions) -> Option<Mask> {
    let order = Order::of_others(nodes, options, list::widest_of_the_narrowest(lists));
    let scores = Scores::new(lists, nodes.all(), options.strategy, |_| true);
    let mut best = Best::new(&order, &scores);
    closure::visit(lists, nodes, |mask| best.consider(mask));
    best.found()
}

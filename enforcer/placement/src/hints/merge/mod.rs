//! The merge: one set of nodes from the offers of all resources.
//!
//! Problem: every resource lists the sets of nodes that suit it, and one set must suit all. By definition it
//! is the best result over the cross product of all lists. The result of one combination is the intersection
//! of its sets; it is preferred if all sets are equal and preferred in their lists. The cross product has
//! (2^N - 1)^resources elements, so it is never enumerated. Idea: the definition has a closed form.
//!
//! - The preferred answer is the best set that is preferred in every list ([`agreed`]).
//! - Only if there is none, the answer is the best set that is the intersection of one set of each list
//!   ([`closure`]), because every combination is then a non-preferred one.
//! - If there are too many sets of nodes to list, both are computed from the amounts ([`amounts`]).
//!
//! One total order ([`order`]) determines the best set, so the order of offers, resources and hints has no
//! effect.
//!
//! Terminology: an *anywhere* hint names no nodes. Bits of a hint's mask after the last node of the index
//! stand for nodes that the machine does not have: they count for the width of a hint and for the equality of
//! hints, and are never part of an answer.
//!
//! Cost: O(hints) for the preferred answer, O(resources x N x 2^N) for the other one on up to
//! [`MAX_ENUMERATED_NODES`] nodes. [`closure`] and [`amounts`] state what is exact and what is bounded beyond
//! that.

mod agreed;
mod amounts;
mod closure;
mod considered;
mod list;
mod options;
mod order;
mod scores;
#[cfg(test)]
mod tests;

pub use self::considered::{Comparison, MergeCandidate, candidates};
pub use self::options::MergeOptions;
use self::{
    list::HintLists,
    order::{Best, NodeSetOrder},
    scores::Scores,
};
use std::borrow::Cow;

use super::{MAX_ENUMERATED_NODES, Mask, MaskHint, NodeIndex, Offer, Threshold};

/// Maximum number of common sets of the lists that are searched, if lists and thresholds have no preferred
/// set in common.
const BASES: usize = 256;

/// Result of the merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// The nodes; `None` only with `single_node`.
    pub mask: Option<Mask>,
    /// Whether it is as narrow as an empty machine would allow, for every resource.
    pub preferred: bool,
}

/// Merges the offers of all resources.
pub fn merge<'a>(
    nodes: &NodeIndex,
    offers: impl IntoIterator<Item = &'a Offer>,
    options: MergeOptions,
) -> Merged {
    of_lists(nodes, &HintLists::new(offers, nodes, options), options)
}

/// The best set of nodes that is in the list of each resource, preferred or not; `None` if there is no such
/// set.
pub fn complete<'a>(
    nodes: &NodeIndex,
    offers: impl IntoIterator<Item = &'a Offer>,
    options: MergeOptions,
) -> Option<Mask> {
    let offers: Vec<Cow<'_, Offer>> = offers.into_iter().map(all_preferred).collect();
    let options = MergeOptions { single_node: false, ..options };
    let thresholds = || offers.iter().filter(|offer| matches!(***offer, Offer::Threshold(_)));
    if thresholds().next().is_none() {
        let lists = HintLists::new(offers.iter().map(AsRef::as_ref), nodes, options);
        return preferred(nodes, &lists, options);
    }
    // Preferred sets have one width: the narrowest at which every resource has enough.
    (1..=nodes.all().count_ones()).find_map(|width| {
        let of_width = |offer: &Cow<'_, Offer>| match &**offer {
            Offer::Threshold(threshold) => Offer::Threshold(Threshold { width, ..threshold.clone() }),
            other => other.clone(),
        };
        let reaches = |offer: &Offer| match offer {
            Offer::Threshold(threshold) => threshold.is_reached_by(width),
            _ => true,
        };
        let offers: Vec<Offer> = offers.iter().map(of_width).collect();
        if !offers.iter().all(reaches) {
            return None;
        }
        preferred(nodes, &HintLists::new(&offers, nodes, options), options)
    })
}

/// The same offer with all hints preferred.
fn all_preferred(offer: &Offer) -> Cow<'_, Offer> {
    match offer {
        Offer::Listed(hints) => {
            let preferred = |hint: &MaskHint| MaskHint { preferred: true, ..*hint };
            Cow::Owned(Offer::Listed(hints.iter().map(preferred).collect()))
        }
        other => Cow::Borrowed(other),
    }
}

fn of_lists(nodes: &NodeIndex, lists: &HintLists<'_>, options: MergeOptions) -> Merged {
    let all = nodes.all();
    let found = preferred(nodes, lists, options).map(|mask| Merged { mask: Some(mask), preferred: true });
    // Different single nodes have nothing in common, so `single_node` has no other answer.
    let found = found.or_else(|| {
        let other = if options.single_node { None } else { not_preferred(nodes, lists, options) };
        other.map(|mask| Merged { mask: Some(mask), preferred: false })
    });
    let merged = found.unwrap_or(Merged { mask: Some(all), preferred: false });
    Merged { mask: merged.mask.filter(|&mask| !(options.single_node && mask == all)), ..merged }
}

fn preferred(nodes: &NodeIndex, lists: &HintLists<'_>, options: MergeOptions) -> Option<Mask> {
    let order = NodeSetOrder::of_preferred(nodes, options);
    let scores = Scores::new(&lists.listed, nodes.all(), options.strategy, |hint| hint.preferred);
    let mut best = Best::new(&order, &scores);
    each_preferred(nodes, lists, &order, |mask| best.consider(mask));
    best.found()
}

fn not_preferred(nodes: &NodeIndex, lists: &HintLists<'_>, options: MergeOptions) -> Option<Mask> {
    let wanted = amounts::widest_of_the_narrowest(nodes, lists);
    let order = NodeSetOrder::of_others(nodes, options, wanted);
    let scores = Scores::new(&lists.listed, nodes.all(), options.strategy, |_| true);
    let mut best = Best::new(&order, &scores);
    each_other(nodes, lists, &order, wanted, |mask| best.consider(mask));
    best.found()
}

/// Visits every set that all prefer; of sets that only thresholds define, the best.
fn each_preferred(
    nodes: &NodeIndex,
    lists: &HintLists<'_>,
    order: &NodeSetOrder<'_>,
    mut visit: impl FnMut(Mask),
) {
    let all = nodes.all();
    if lists.thresholds.is_empty() {
        agreed::visit(&lists.listed, all, |mask| visit(mask & all));
    } else if lists.listed.iter().all(|list| list.preference().anywhere) {
        amounts::preferred(nodes, &lists.thresholds, order).into_iter().for_each(visit);
    } else {
        agreed::visit(&lists.listed, all, |mask| {
            if mask & !all == 0 && lists.thresholds.iter().all(|threshold| threshold.prefers(mask)) {
                visit(mask);
            }
        });
    }
}

/// Visits every set that is common to one hint of each list; of sets within a common set of the lists that
/// differ by thresholds, the best.
fn each_other(
    nodes: &NodeIndex,
    lists: &HintLists<'_>,
    order: &NodeSetOrder<'_>,
    wanted: u32,
    mut visit: impl FnMut(Mask),
) {
    if lists.thresholds.is_empty() {
        closure::visit(&lists.listed, nodes, visit);
        return;
    }
    let mut bases = Vec::new();
    closure::visit(&lists.listed, nodes, |mask| bases.push(mask));
    // No subset is wider than the set, and the wanted width is that of the set itself.
    bases.sort_by_key(|base| (order.detour(base.count_ones().min(wanted)), *base));
    for base in bases.into_iter().take(BASES) {
        amounts::common(nodes, &lists.thresholds, base, order, wanted).into_iter().for_each(&mut visit);
    }
}

//! The merge for more nodes than sets can be listed of: computed from the amounts.
//!
//! Problem: a threshold stands for all sets of nodes that have enough, up to 2^64 of them. Idea: such lists
//! are closed upwards (an additional node never hurts), so both answers have a form that can be searched.
//!
//! - A set is preferred by all if it has the width that all of them want and enough of everything.
//! - A set m is the intersection of one set of each threshold exactly if every node outside m can be *denied*
//!   to some threshold, so that each can do without all that it is denied ([`denial`]). Denying less is
//!   always possible, so every width from the narrowest one up occurs: without other lists the desired width
//!   of a non-preferred answer always exists.
//!
//! So for a fixed width the search finds the best set of that many nodes, by distance and then by ids, under
//! linear conditions ([`search`]).
//!
//! Cost: O(N^2) without distances and with one amount that is short, because no step is wasted. In general
//! the problem is as hard as packing a knapsack, and the search is **bounded** by a number of steps (see
//! [`search`]): after them, the best set so far is the answer. The definition always allows it, but a better
//! one may exist.

mod denial;
mod search;

use self::{
    denial::ExclusionPacking,
    search::{Cover, CoverSearch, Peers},
};
use super::{list::HintLists, order::NodeSetOrder};
use crate::hints::{Mask, NodeIndex, Threshold, positions};

/// The best set that all thresholds prefer.
pub(super) fn preferred(
    nodes: &NodeIndex,
    thresholds: &[&Threshold],
    order: &NodeSetOrder<'_>,
) -> Option<Mask> {
    let width = thresholds.first()?.width;
    if thresholds.iter().any(|threshold| threshold.width != width) {
        return None;
    }
    sufficient(nodes, thresholds, order, width)
}

/// Desired width of a non-preferred answer: that of the narrowest hint of the most demanding resource; 0 if
/// no hint names nodes.
pub(super) fn widest_of_the_narrowest(nodes: &NodeIndex, lists: &HintLists<'_>) -> u32 {
    let listed = lists.listed.iter().filter_map(|list| list.masks().map(Mask::count_ones).min());
    let amounts = lists.thresholds.iter().filter_map(|threshold| narrowest(nodes, threshold));
    listed.chain(amounts).max().unwrap_or(0)
}

/// Number of nodes of the narrowest sufficient set; none if not even all nodes suffice.
fn narrowest(nodes: &NodeIndex, threshold: &Threshold) -> Option<u32> {
    let order = NodeSetOrder::by_ids();
    let widest = nodes.all().count_ones();
    threshold.suffices(nodes.all()).then_some(())?;
    (1..widest).find(|width| sufficient(nodes, &[threshold], &order, *width).is_some()).or(Some(widest))
}

/// The best set of this width that has enough for all thresholds.
fn sufficient(
    nodes: &NodeIndex,
    thresholds: &[&Threshold],
    order: &NodeSetOrder<'_>,
    width: u32,
) -> Option<Mask> {
    let must = thresholds.iter().fold(0, |must, threshold| must | threshold.must);
    if must & !nodes.all() != 0 {
        return None;
    }
    let needs = || thresholds.iter().flat_map(|threshold| &threshold.needs);
    let mut covers: Vec<Cover> = needs()
        .map(|need| Cover::new(|node| need.at(node).min(need.amount), need.amount, nodes.len()))
        .collect();
    let peers = Peers::new(nodes.len(), order, |better, worse| {
        covers.iter().all(|cover| cover.value(better) >= cover.value(worse))
            && (must >> worse & 1 == 0 || must >> better & 1 == 1)
    });
    if covers.len() > 1 {
        covers.push(Cover::sum_of(&covers, nodes.len()));
    }
    CoverSearch::new(&covers, &peers, order).best(nodes.all(), must, width, |_| true)
}

/// The best set within `base` that is the intersection of it and one set of each threshold. All nodes
/// together satisfy each threshold.
pub(super) fn common(
    nodes: &NodeIndex,
    thresholds: &[&Threshold],
    base: Mask,
    order: &NodeSetOrder<'_>,
    wanted: u32,
) -> Option<Mask> {
    let widest = base.count_ones();
    if widest <= wanted.max(1) {
        return Some(base);
    }
    let denial = ExclusionPacking::new(nodes, thresholds);
    let covers = denial.covers(base);
    let peers = Peers::new(nodes.len(), order, |better, worse| denial.is_dearer(better, worse));
    let held =
        positions(base).filter(|node| !denial.is_deniable(*node)).fold(0, |held, node| held | 1 << node);
    let mut widths = wanted.max(1)..widest;
    let mut left = Vec::new();
    let search = |width| {
        let possible = |mask: Mask| denial.is_possible(base & !mask, &mut left);
        CoverSearch::new(&covers, &peers, order).best(base, held, width, possible)
    };
    widths.find_map(search).or(Some(base))
}

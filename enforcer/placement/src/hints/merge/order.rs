//! The total order of sets of nodes, and the best set by it.
//!
//! Preferred sets: the narrower one is better. Others: those of the wanted width (the need of the most
//! demanding resource) come first, then narrower ones from the widest down, then wider ones from the
//! narrowest up. Ties: with `prefer_closest` the smaller average distance, for which sums suffice because
//! only sets of equal width get here; then the score, if requested; then the lower ids, which is the smaller
//! integer.
//!
//! A set without a score is never compared by score. To keep this independent of the order of hints, the
//! lowest of otherwise equal sets is compared with all others; if it has no score it stays.

use std::cmp::Ordering;

use super::{options::MergeOptions, scores::Scores};
use crate::hints::{Mask, NodeDistances, NodeIndex};

/// The order of sets, apart from score and ids.
#[derive(Debug)]
pub(super) struct NodeSetOrder<'a> {
    /// The best width; `None` if narrower is always better.
    wanted: Option<u32>,
    /// Distances, if they decide.
    distances: Option<NodeDistances<'a>>,
}

impl<'a> NodeSetOrder<'a> {
    /// Order of preferred sets.
    pub(super) fn of_preferred(nodes: &'a NodeIndex, options: MergeOptions) -> Self {
        Self { wanted: None, distances: distances(nodes, options) }
    }

    /// Order of non-preferred sets.
    pub(super) fn of_others(nodes: &'a NodeIndex, options: MergeOptions, wanted: u32) -> Self {
        Self { wanted: Some(wanted), distances: distances(nodes, options) }
    }

    /// Order of sets of equal width, without distances.
    pub(super) const fn by_ids() -> NodeSetOrder<'static> {
        NodeSetOrder { wanted: None, distances: None }
    }

    /// Distances between all nodes, if they matter.
    pub(super) const fn distances(&self) -> Option<NodeDistances<'a>> {
        self.distances
    }

    /// Would exchanging the two nodes leave the distances within any set unchanged?
    pub(super) fn same_place(&self, one: usize, other: usize) -> bool {
        self.distances.is_none_or(|distances| {
            let mut others = (0..distances.len()).filter(|node| *node != one && *node != other);
            distances.pair(one, one) == distances.pair(other, other)
                && others.all(|node| distances.pair(one, node) == distances.pair(other, node))
        })
    }

    /// The best width; `None` if narrower is always better.
    pub(super) const fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    /// Rank of the width relative to the best one; smaller is better.
    pub(super) fn detour(&self, width: u32) -> u32 {
        match self.wanted {
            None => width,
            Some(wanted) if width <= wanted => wanted - width,
            Some(wanted) => Mask::BITS + (width - wanted),
        }
    }

    /// Sum of the distances between all nodes of a set, including each to itself; 0 if distances do not
    /// matter.
    pub(super) fn spread(&self, mask: Mask) -> u64 {
        self.distances.map_or(0, |distances| distances.spread(mask))
    }
}

/// Distances, if requested and known between all nodes.
fn distances(nodes: &NodeIndex, options: MergeOptions) -> Option<NodeDistances<'_>> {
    nodes.known_distances().filter(|_| options.prefer_closest)
}

/// The best of the sets that were considered.
#[derive(Debug)]
pub(super) struct Best<'a> {
    order: &'a NodeSetOrder<'a>,
    scores: &'a Scores,
    leading: Option<Leading>,
}

/// Sets that are equal but for score and ids.
#[derive(Debug, Clone, Copy)]
struct Leading {
    detour: u32,
    spread: u64,
    lowest: Mask,
    /// The set with the best score, the lowest of several.
    favourite: Option<Mask>,
}

impl<'a> Best<'a> {
    /// No set considered yet.
    pub(super) const fn new(order: &'a NodeSetOrder<'a>, scores: &'a Scores) -> Self {
        Self { order, scores, leading: None }
    }

    /// Considers a set; the empty set is never a candidate.
    pub(super) fn consider(&mut self, mask: Mask) {
        if mask == 0 {
            return;
        }
        let detour = self.order.detour(mask.count_ones());
        if self.leading.is_some_and(|leading| leading.detour < detour) {
            return;
        }
        let spread = self.order.spread(mask);
        let favourite = self.scores.has(mask).then_some(mask);
        let alone = Leading { detour, spread, lowest: mask, favourite };
        self.leading = Some(match self.leading {
            None => alone,
            Some(leading) => match (detour, spread).cmp(&(leading.detour, leading.spread)) {
                Ordering::Less => alone,
                Ordering::Greater => leading,
                Ordering::Equal => Leading {
                    lowest: leading.lowest.min(mask),
                    favourite: self.scores.better(leading.favourite, favourite),
                    ..leading
                },
            },
        });
    }

    /// The best considered set, if any.
    pub(super) fn found(&self) -> Option<Mask> {
        let leading = self.leading?;
        let favourite = leading.favourite.filter(|_| self.scores.has(leading.lowest));
        Some(favourite.unwrap_or(leading.lowest))
    }
}

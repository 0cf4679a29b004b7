//! The total order of sets of nodes, and the best set by it.
//!
//! Preferred sets: the narrower one. Others: those of the wanted width (what the resource that needs
//! the most nodes could do with) come first, then narrower ones from the widest down, then wider
//! ones from the narrowest up. Equal so far: with `prefer_closest` the smaller average distance, for
//! which sums suffice, as only sets of equal width get here; then the score, when one is asked for;
//! then the one with the lower ids, which is the smaller integer.
//!
//! A set without a score is never compared by score. So that this stays independent of the order of
//! hints: among otherwise equal sets the lowest is compared with all others; if it has no score it
//! stays.

use std::cmp::Ordering;

use super::{MergeOptions, scores::Scores};
use crate::place::hints::{Mask, NodeIndex, masks::positions};

/// How sets compare, but for score and ids.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// The width that is best; none when narrower is always better.
    wanted: Option<u32>,
    /// A full table when distances decide.
    distances: Option<&'a [Vec<u32>]>,
}

impl<'a> Order<'a> {
    /// That of preferred sets.
    pub(super) fn of_preferred(nodes: &'a NodeIndex, options: MergeOptions) -> Self {
        Self { wanted: None, distances: table(nodes, options) }
    }

    /// That of sets that are not preferred.
    pub(super) fn of_others(nodes: &'a NodeIndex, options: MergeOptions, wanted: u32) -> Self {
        Self { wanted: Some(wanted), distances: table(nodes, options) }
    }

    /// That of sets of equal width, without distances.
    pub(super) const fn by_ids() -> Order<'static> {
        Order { wanted: None, distances: None }
    }

    /// Distances between all nodes, when they matter.
    pub(super) const fn distances(&self) -> Option<&'a [Vec<u32>]> {
        self.distances
    }

    /// Would exchanging one node for the other change no distance within any set?
    pub(super) fn same_place(&self, one: usize, other: usize) -> bool {
        self.distances.is_none_or(|table| {
            let pair = |from: usize, to: usize| u64::from(table[from][to]) + u64::from(table[to][from]);
            let others = (0..table.len()).filter(|node| *node != one && *node != other);
            table[one][one] == table[other][other]
                && others.into_iter().all(|node| pair(one, node) == pair(other, node))
        })
    }

    /// The width that is best; none when narrower is always better.
    pub(super) const fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    /// How far the width is from the best one; smaller is better.
    pub(super) fn detour(&self, width: u32) -> u32 {
        match self.wanted {
            None => width,
            Some(wanted) if width <= wanted => wanted - width,
            Some(wanted) => Mask::BITS + (width - wanted),
        }
    }

    /// Sum of the distances between all nodes of a set, each to itself included; 0 when distances do
    /// not matter.
    pub(super) fn spread(&self, mask: Mask) -> u64 {
        self.distances.map_or(0, |table| {
            positions(mask)
                .map(|from| positions(mask).map(|to| u64::from(table[from][to])).sum::<u64>())
                .sum()
        })
    }
}

/// Distances, when they are wanted and known between all nodes.
fn table(nodes: &NodeIndex, options: MergeOptions) -> Option<&[Vec<u32>]> {
    let table = nodes.distances();
    let full = table.len() == nodes.len() && table.iter().all(|row| row.len() == nodes.len());
    (options.prefer_closest && full).then_some(table)
}

/// The best of the sets that were considered.
#[derive(Debug)]
pub(super) struct Best<'a> {
    order: &'a Order<'a>,
    scores: &'a Scores,
    leading: Option<Leading>,
}

/// Sets that are equal but for score and ids.
#[derive(Debug, Clone, Copy)]
struct Leading {
    detour: u32,
    spread: u64,
    lowest: Mask,
    /// The one with the best score, the lowest of several.
    favourite: Option<Mask>,
}

impl<'a> Best<'a> {
    /// Nothing considered yet.
    pub(super) const fn new(order: &'a Order<'a>, scores: &'a Scores) -> Self {
        Self { order, scores, leading: None }
    }

    /// Considers a set; the empty one is no candidate.
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

    /// The best of all, if there was any.
    pub(super) fn found(&self) -> Option<Mask> {
        let leading = self.leading?;
        let favourite = leading.favourite.filter(|_| self.scores.has(leading.lowest));
        Some(favourite.unwrap_or(leading.lowest))
    }
}

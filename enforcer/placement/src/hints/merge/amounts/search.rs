//! The best set of a given number of nodes under linear conditions.
//!
//! Problem: choose `width` nodes such that each condition's values add up to its target (and a last
//! check holds), with the smallest sum of distances, and of those the lowest ids. Idea: depth-first,
//! one node in or out at a time. A branch is left as soon as it cannot be completed: the greatest open values
//! do not reach a target, or a lower bound of the distances is above the best so far.
//!
//! - Distances first: nodes near those already chosen are tried first, and only what is strictly
//!   nearer is followed. That gives the smallest sum.
//! - Ids then: the highest node is left out first, so the first set within that sum is the lowest.
//! - When a lower node has at least as much of everything as a higher one, and both have the same
//!   distances, then the higher one is never in the best set without the lower one ([`Peers`]). Equal
//!   nodes, the usual case, are so tried in one order only.
//!
//! The lower bound: every open node costs its distances to the chosen ones, and half of those to the
//! nearest open ones that would have to join it; the cheapest of them are counted.
//!
//! Cost: O(conditions x N + N^2 with distances) per step and at most [`STEPS`] steps for each of the two
//! parts, without allocations. With a single condition and no distances no step is wasted.

use std::cmp::Reverse;

use super::super::order::NodeSetOrder;
use crate::hints::{Mask, NodeDistances, NodeIndex, positions};

/// Maximum number of steps of one part of a search.
pub(super) const STEPS: u32 = 2_000;

const LARGEST: usize = NodeIndex::LARGEST;

/// A condition: the values of the chosen nodes add up to at least the target.
#[derive(Debug)]
pub(super) struct Cover {
    values: [u64; LARGEST],
    target: u64,
    /// Positions, the greatest value first.
    ranked: Vec<usize>,
}

impl Cover {
    /// A condition with the value of each node.
    pub(super) fn new(value: impl Fn(usize) -> u64, target: u64, nodes: usize) -> Self {
        let values = std::array::from_fn(|node| if node < nodes { value(node) } else { 0 });
        let mut ranked: Vec<usize> = (0..nodes.min(LARGEST)).collect();
        ranked.sort_by_key(|node| Reverse(values[*node]));
        Self { values, target, ranked }
    }

    /// Combination of several conditions: the sum of each in parts of its target. Detects sets that meet each
    /// condition alone with different nodes, but not all together.
    pub(super) fn sum_of(covers: &[Self], nodes: usize) -> Self {
        let asking = || covers.iter().filter(|cover| cover.target > 0);
        let share = |cover: &Self, node: usize| part(cover.values[node], cover.target, true);
        let target = asking().fold(0_u64, |sum, _| sum.saturating_add(PARTS));
        Self::new(
            |node| asking().fold(0_u64, |sum, cover| sum.saturating_add(share(cover, node))),
            target,
            nodes,
        )
    }

    /// Value of this node.
    pub(super) const fn value(&self, node: usize) -> u64 {
        self.values[node]
    }

    /// Can `left` of the open nodes complete the chosen ones?
    fn can_be_met(&self, state: SearchState) -> bool {
        let had = positions(state.chosen).map(|node| self.values[node]).sum::<u64>();
        let open = self.ranked.iter().filter(|node| state.open >> **node & 1 == 1);
        had + open.take(state.left as usize).map(|node| self.values[*node]).sum::<u64>() >= self.target
    }
}

/// Number of parts of a target.
pub(super) const PARTS: u64 = 1 << 32;

/// A value in parts of a nonzero target, rounded up or down.
pub(super) fn part(value: u64, target: u64, up: bool) -> u64 {
    let scaled = u128::from(value.min(target)) * u128::from(PARTS);
    let target = u128::from(target.max(1));
    let parts = if up { scaled.div_ceil(target) } else { scaled / target };
    u64::try_from(parts).unwrap_or(PARTS)
}

/// Pairs of nodes with a fixed order: the best set never has the later one without the earlier one.
#[derive(Debug)]
pub(super) struct Peers {
    /// Lower nodes that come first, by position.
    before: [Mask; LARGEST],
    /// Higher nodes that come later.
    after: [Mask; LARGEST],
}

impl Peers {
    /// `is_as_good(i, j)`: does node i have at least as much of everything as j?
    pub(super) fn new(
        nodes: usize,
        order: &NodeSetOrder<'_>,
        is_as_good: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let mut peers = Self { before: [0; LARGEST], after: [0; LARGEST] };
        for high in 0..nodes.min(LARGEST) {
            for low in (0..high).filter(|low| is_as_good(*low, high) && order.same_place(*low, high)) {
                peers.before[high] |= 1 << low;
                peers.after[low] |= 1 << high;
            }
        }
        peers
    }
}

/// State of a search: some nodes are chosen, some are open.
#[derive(Debug, Clone, Copy)]
struct SearchState {
    chosen: Mask,
    open: Mask,
    /// Number of open nodes that must still be chosen.
    left: u32,
}

/// The search for one width.
#[derive(Debug)]
pub(super) struct CoverSearch<'a> {
    covers: &'a [Cover],
    peers: &'a Peers,
    near: Option<DistanceBounds<'a>>,
    steps: u32,
}

impl<'a> CoverSearch<'a> {
    /// A search under these conditions.
    pub(super) fn new(covers: &'a [Cover], peers: &'a Peers, order: &NodeSetOrder<'a>) -> Self {
        let near = order.distances().map(DistanceBounds::new);
        Self { covers, peers, near, steps: STEPS }
    }

    /// The best set of `width` nodes of `base` that contains `held` and passes the last check.
    pub(super) fn best(
        mut self,
        base: Mask,
        held: Mask,
        width: u32,
        mut check: impl FnMut(Mask) -> bool,
    ) -> Option<Mask> {
        let left = width.checked_sub(held.count_ones())?;
        let start = SearchState { chosen: held, open: base & !held, left };
        let mut nearest = None;
        if self.near.is_some() {
            self.nearest(start, &mut check, &mut nearest);
            nearest?;
            self.steps = STEPS;
        }
        let limit = nearest.map(|(spread, _)| spread);
        self.lowest(start, limit, &mut check).or(nearest.map(|(_, mask)| mask))
    }

    /// Searches sets that are strictly nearer than the best so far.
    fn nearest(
        &mut self,
        state: SearchState,
        check: &mut impl FnMut(Mask) -> bool,
        best: &mut Option<(u64, Mask)>,
    ) {
        let limit = best.map(|(spread, _)| spread);
        let Some(near) = self.near.as_ref().filter(|_| self.steps > 0) else { return };
        self.steps -= 1;
        if state.left == 0 {
            let spread = near.distances.spread(state.chosen);
            if limit.is_none_or(|limit| spread < limit) && self.is_open(state) && check(state.chosen) {
                *best = Some((spread, state.chosen));
            }
            return;
        }
        if !self.is_open(state) {
            return;
        }
        let (bound, next) = near.bound(state);
        if limit.is_some_and(|limit| bound >= limit) {
            return;
        }
        for state in [self.with(state, next), Some(self.without(state, next))].into_iter().flatten() {
            self.nearest(state, check, best);
        }
    }

    /// The lowest set within the limit of distance.
    fn lowest(
        &mut self,
        state: SearchState,
        limit: Option<u64>,
        check: &mut impl FnMut(Mask) -> bool,
    ) -> Option<Mask> {
        if self.steps == 0 || !self.is_open(state) {
            return None;
        }
        self.steps -= 1;
        if let (Some(near), Some(limit)) = (&self.near, limit)
            && near.bound(state).0 > limit
        {
            return None;
        }
        if state.left == 0 {
            return check(state.chosen).then_some(state.chosen);
        }
        let highest = (Mask::BITS - 1 - state.open.leading_zeros()) as usize;
        if let Some(mask) = self.lowest(self.without(state, highest), limit, check) {
            return Some(mask);
        }
        self.lowest(self.with(state, highest)?, limit, check)
    }

    /// Can it be completed, by the bounds?
    fn is_open(&self, state: SearchState) -> bool {
        state.open.count_ones() >= state.left && self.covers.iter().all(|cover| cover.can_be_met(state))
    }

    /// Chooses this node and those that come before it.
    fn with(&self, state: SearchState, node: usize) -> Option<SearchState> {
        let more = (self.peers.before[node] & state.open) | 1 << node;
        let left = state.left.checked_sub(more.count_ones())?;
        Some(SearchState { chosen: state.chosen | more, open: state.open & !more, left })
    }

    /// Excludes this node and those that come after it.
    fn without(&self, state: SearchState, node: usize) -> SearchState {
        SearchState { open: state.open & !(self.peers.after[node] | 1 << node), ..state }
    }
}

/// Distances, prepared for bounds.
#[derive(Debug)]
struct DistanceBounds<'a> {
    distances: NodeDistances<'a>,
    /// Distance in both directions; to itself once.
    pairs: Vec<[u64; LARGEST]>,
    /// For each node the others, nearest first.
    ranked: Vec<Vec<usize>>,
}

impl<'a> DistanceBounds<'a> {
    fn new(distances: NodeDistances<'a>) -> Self {
        let nodes = distances.len();
        let row = |from| std::array::from_fn(|to| if to < nodes { distances.pair(from, to) } else { 0 });
        let pairs: Vec<[u64; LARGEST]> = (0..nodes).map(row).collect();
        let ranked = |from: usize| {
            let mut others: Vec<usize> = (0..nodes).filter(|to| *to != from).collect();
            others.sort_by_key(|to| pairs[from][*to]);
            others
        };
        Self { distances, ranked: (0..nodes).map(ranked).collect(), pairs }
    }

    /// Sum of the distances between a node and those of a set.
    fn links(&self, node: usize, mask: Mask) -> u64 {
        positions(mask).map(|other| self.pairs[node][other]).sum()
    }

    /// Lower bound of the distances of a completed set, and the apparently nearest open node.
    fn bound(&self, state: SearchState) -> (u64, usize) {
        // All values are doubled, so that half a distance is an integer.
        let mut costs = [u64::MAX; LARGEST];
        let company = state.left.saturating_sub(1) as usize;
        let (mut cheapest, mut next) = (u64::MAX, 0);
        let mut count = 0;
        for node in positions(state.open) {
            let joined = self.pairs[node][node] + self.links(node, state.chosen);
            let open = self.ranked[node].iter().filter(|other| state.open >> **other & 1 == 1);
            let company: u64 = open.take(company).map(|other| self.pairs[node][*other]).sum();
            let cost = 2 * joined + company;
            if cost < cheapest {
                (cheapest, next) = (cost, node);
            }
            costs[count] = cost;
            count += 1;
        }
        let left = (state.left as usize).min(count);
        let costs = &mut costs[..count];
        if left > 0 && left < count {
            costs.select_nth_unstable(left - 1);
        }
        let open: u64 = costs[..left].iter().sum();
        (self.distances.spread(state.chosen) + open.div_ceil(2), next)
    }
}

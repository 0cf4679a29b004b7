//! Which nodes can be left out by someone.
//!
//! Problem: is a set m the intersection of one sufficient set of each threshold? Each threshold's set
//! lacks some of the nodes outside m, and each of those is lacking somewhere. Idea: *deny* every node
//! outside m to one threshold. A threshold can be denied nodes up to its *slack*, what all nodes have
//! together beyond the amount. So the nodes are packed into the slacks: what costs nothing at once,
//! the others from the dearest down, each where it hurts least, and with steps back.
//!
//! Cost: O(N x needs) when nothing is tight. Steps back are **bounded** by [`STEPS`]; a set that is not
//! packed by then counts as impossible.

use super::search::{Cover, PARTS, part};
use crate::place::hints::{Mask, Need, NodeIndex, Threshold, index::bits};

/// Steps of one packing.
const STEPS: u32 = 2_000;

/// One amount of a threshold.
#[derive(Debug)]
struct Slack<'a> {
    need: &'a Need,
    slack: u64,
}

/// What can be denied to each threshold.
#[derive(Debug)]
pub(super) struct Denial<'a> {
    nodes: usize,
    thresholds: Vec<(Mask, Vec<Slack<'a>>)>,
}

impl<'a> Denial<'a> {
    /// For thresholds that all nodes together satisfy.
    pub(super) fn new(nodes: &NodeIndex, thresholds: &[&'a Threshold]) -> Self {
        let slack = |need: &'a Need| {
            let all = (0..nodes.len()).map(|node| need.at(node)).sum::<u64>();
            Slack { need, slack: all.saturating_sub(need.amount) }
        };
        let of = |threshold: &&'a Threshold| (threshold.must, threshold.needs.iter().map(slack).collect());
        Self { nodes: nodes.len(), thresholds: thresholds.iter().map(of).collect() }
    }

    /// Conditions that every set of `base` meets whose other nodes can all be denied.
    pub(super) fn covers(&self, base: Mask) -> Vec<Cover> {
        if let [(_, slacks)] = self.thresholds.as_slice() {
            // Nothing but sets that suffice.
            let cover = |slack: &Slack<'_>| {
                let lost = |node: usize| if base >> node & 1 == 1 { slack.need.at(node) } else { 0 };
                let total = (0..self.nodes).map(lost).sum::<u64>();
                Cover::new(lost, total.saturating_sub(slack.slack), self.nodes)
            };
            return slacks.iter().map(cover).collect();
        }
        // A node that is denied costs a part of somebody's slack, and each has but one.
        let cost = |node: usize| {
            if base >> node & 1 == 0 {
                return 0;
            }
            let least = (0..self.thresholds.len()).filter_map(|threshold| self.parts(threshold, node)).min();
            least.unwrap_or(PARTS)
        };
        let total = (0..self.nodes).map(cost).sum::<u64>();
        let slack = PARTS.saturating_mul(u64::try_from(self.thresholds.len()).unwrap_or(u64::MAX));
        vec![Cover::new(cost, total.saturating_sub(slack), self.nodes)]
    }

    /// What denying this node costs this threshold, as the mean part of its slacks; none when it
    /// cannot be denied.
    fn parts(&self, threshold: usize, node: usize) -> Option<u64> {
        let (must, slacks) = &self.thresholds[threshold];
        let possible = must >> node & 1 == 0 && slacks.iter().all(|slack| slack.need.at(node) <= slack.slack);
        let sum = || slacks.iter().map(|slack| part(slack.need.at(node), slack.slack, false)).sum::<u64>();
        let count = u64::try_from(slacks.len()).unwrap_or(u64::MAX).max(1);
        possible.then(|| sum() / count)
    }

    /// Can this node be denied to anybody?
    pub(super) fn is_deniable(&self, node: usize) -> bool {
        (0..self.thresholds.len()).any(|threshold| self.parts(threshold, node).is_some())
    }

    /// Is the first node at least as hard to deny as the other, to each threshold?
    pub(super) fn is_dearer(&self, one: usize, other: usize) -> bool {
        self.thresholds.iter().all(|(must, slacks)| {
            let held = |node: usize| {
                must >> node & 1 == 1 || slacks.iter().any(|slack| slack.need.at(node) > slack.slack)
            };
            held(one) || !held(other) && slacks.iter().all(|slack| slack.need.at(one) >= slack.need.at(other))
        })
    }

    /// Can all of these nodes be denied together?
    pub(super) fn is_possible(&self, nodes: Mask) -> bool {
        let mut left: Vec<Vec<u64>> = self
            .thresholds
            .iter()
            .map(|(_, slacks)| slacks.iter().map(|slack| slack.slack).collect())
            .collect();
        // A node that costs somebody nothing is denied there.
        let priced = |node: usize| {
            let parts = (0..self.thresholds.len()).filter_map(|threshold| self.parts(threshold, node));
            parts.min().unwrap_or(u64::MAX)
        };
        let free = |node: usize| {
            let nothing = |(must, slacks): &(Mask, Vec<Slack<'_>>)| {
                must >> node & 1 == 0 && slacks.iter().all(|slack| slack.need.at(node) == 0)
            };
            self.thresholds.iter().any(nothing)
        };
        let mut dear: Vec<(u64, usize)> =
            bits(nodes).filter(|node| !free(*node)).map(|node| (priced(node), node)).collect();
        dear.sort_unstable_by(|a, b| b.cmp(a));
        let mut steps = STEPS;
        self.pack(&dear, &mut left, &mut steps)
    }

    fn pack(&self, nodes: &[(u64, usize)], left: &mut [Vec<u64>], steps: &mut u32) -> bool {
        let Some(((_, node), rest)) = nodes.split_first() else { return true };
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        let mut tried: u64 = 0;
        // Where it hurts least first; a threshold beyond the 64th is never tried.
        while let Some(threshold) = self.least_hurt(*node, left, tried) {
            tried |= 1 << threshold;
            self.charge(threshold, *node, left, u64::checked_sub);
            if self.pack(rest, left, steps) {
                return true;
            }
            self.charge(threshold, *node, left, u64::checked_add);
        }
        false
    }

    fn charge(
        &self,
        threshold: usize,
        node: usize,
        left: &mut [Vec<u64>],
        change: fn(u64, u64) -> Option<u64>,
    ) {
        for (left, slack) in left[threshold].iter_mut().zip(&self.thresholds[threshold].1) {
            *left = change(*left, slack.need.at(node)).unwrap_or(*left);
        }
    }

    /// Of the thresholds that were not tried and can still be denied this node, the one that loses
    /// the smallest part of what is left.
    fn least_hurt(&self, node: usize, left: &[Vec<u64>], tried: u64) -> Option<usize> {
        let hurt = |threshold: usize| {
            let (must, slacks) = &self.thresholds[threshold];
            let fits = slacks.iter().zip(&left[threshold]).all(|(slack, left)| slack.need.at(node) <= *left);
            let parts = slacks.iter().zip(&left[threshold]);
            let worst = parts.map(|(slack, left)| part(slack.need.at(node), *left, true)).max().unwrap_or(0);
            (must >> node & 1 == 0 && fits).then_some((worst, threshold))
        };
        let open = (0..self.thresholds.len().min(64)).filter(|threshold| tried >> threshold & 1 == 0);
        open.filter_map(hurt).min().map(|(_, threshold)| threshold)
    }
}

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
use crate::place::hints::{Mask, Need, NodeIndex, Threshold, masks::positions};

/// Steps of one packing.
const STEPS: u32 = 2_000;

/// One amount of a threshold.
#[derive(Debug)]
struct Slack<'a> {
    need: &'a Need,
    slack: u64,
}

/// One threshold, as somebody who has to do without nodes.
#[derive(Debug)]
struct Party<'a> {
    must: Mask,
    slacks: Vec<Slack<'a>>,
    /// Slacks of those before it.
    first: usize,
}

/// What can be denied to each threshold.
#[derive(Debug)]
pub(super) struct Denial<'a> {
    nodes: usize,
    thresholds: Vec<Party<'a>>,
}

impl<'a> Denial<'a> {
    /// For thresholds that all nodes together satisfy.
    pub(super) fn new(nodes: &NodeIndex, thresholds: &[&'a Threshold]) -> Self {
        let slack = |need: &'a Need| {
            let all = (0..nodes.len()).map(|node| need.at(node)).sum::<u64>();
            Slack { need, slack: all.saturating_sub(need.amount) }
        };
        let mut first = 0;
        let of = |threshold: &&'a Threshold| {
            let party =
                Party { must: threshold.must, slacks: threshold.needs.iter().map(slack).collect(), first };
            first += party.slacks.len();
            party
        };
        Self { nodes: nodes.len(), thresholds: thresholds.iter().map(of).collect() }
    }

    /// Conditions that every set of `base` meets whose other nodes can all be denied.
    pub(super) fn covers(&self, base: Mask) -> Vec<Cover> {
        if let [Party { slacks, .. }] = self.thresholds.as_slice() {
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
            let least = self.thresholds.iter().filter_map(|party| party.parts(node)).min();
            least.unwrap_or(PARTS)
        };
        let total = (0..self.nodes).map(cost).sum::<u64>();
        let slack = PARTS.saturating_mul(u64::try_from(self.thresholds.len()).unwrap_or(u64::MAX));
        vec![Cover::new(cost, total.saturating_sub(slack), self.nodes)]
    }

    /// Can this node be denied to anybody?
    pub(super) fn is_deniable(&self, node: usize) -> bool {
        self.thresholds.iter().any(|party| party.parts(node).is_some())
    }

    /// Is the first node at least as hard to deny as the other, to each threshold?
    pub(super) fn is_dearer(&self, one: usize, other: usize) -> bool {
        self.thresholds.iter().all(|party| {
            let held = |node: usize| {
                party.must_have(node) || party.slacks.iter().any(|slack| slack.need.at(node) > slack.slack)
            };
            let costs_more = || party.slacks.iter().all(|slack| slack.need.at(one) >= slack.need.at(other));
            held(one) || !held(other) && costs_more()
        })
    }

    /// Can all of these nodes be denied together? `left` is room for the calculation.
    pub(super) fn is_possible(&self, nodes: Mask, left: &mut Vec<u64>) -> bool {
        left.clear();
        left.extend(self.thresholds.iter().flat_map(|party| &party.slacks).map(|slack| slack.slack));
        // A node that costs somebody nothing is denied there; the others come from the dearest down.
        let free = |party: &Party<'_>, node: usize| {
            !party.must_have(node) && party.slacks.iter().all(|slack| slack.need.at(node) == 0)
        };
        let mut dear = [(0, 0); NodeIndex::LARGEST];
        let mut count = 0;
        for node in positions(nodes) {
            if !self.thresholds.iter().any(|party| free(party, node)) {
                let price = self.thresholds.iter().filter_map(|party| party.parts(node)).min();
                dear[count] = (price.unwrap_or(u64::MAX), node);
                count += 1;
            }
        }
        let dear = &mut dear[..count];
        dear.sort_unstable_by(|a, b| b.cmp(a));
        let mut steps = STEPS;
        self.pack(dear, left, &mut steps)
    }

    fn pack(&self, nodes: &[(u64, usize)], left: &mut [u64], steps: &mut u32) -> bool {
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

    fn charge(&self, party: usize, node: usize, left: &mut [u64], change: fn(u64, u64) -> Option<u64>) {
        let party = &self.thresholds[party];
        for (left, slack) in left[party.first..].iter_mut().zip(&party.slacks) {
            *left = change(*left, slack.need.at(node)).unwrap_or(*left);
        }
    }

    /// Of the thresholds that were not tried and can still be denied this node, the one that loses
    /// the smallest part of what is left.
    fn least_hurt(&self, node: usize, left: &[u64], tried: u64) -> Option<usize> {
        let hurt = |index: usize| {
            let party = &self.thresholds[index];
            let parts = || party.slacks.iter().map(|slack| slack.need.at(node)).zip(&left[party.first..]);
            let possible = !party.must_have(node) && parts().all(|(lost, left)| lost <= *left);
            let worst = parts().map(|(lost, left)| part(lost, *left, true)).max().unwrap_or(0);
            possible.then_some((worst, index))
        };
        let open = (0..self.thresholds.len().min(64)).filter(|index| tried >> index & 1 == 0);
        open.filter_map(hurt).min().map(|(_, index)| index)
    }
}

impl Party<'_> {
    fn must_have(&self, node: usize) -> bool {
        self.must >> node & 1 == 1
    }

    /// What denying this node costs, as the mean part of the slacks; none when it cannot be denied.
    fn parts(&self, node: usize) -> Option<u64> {
        let possible =
            !self.must_have(node) && self.slacks.iter().all(|slack| slack.need.at(node) <= slack.slack);
        let sum =
            || self.slacks.iter().map(|slack| part(slack.need.at(node), slack.slack, false)).sum::<u64>();
        let count = u64::try_from(self.slacks.len()).unwrap_or(u64::MAX).max(1);
        possible.then(|| sum() / count)
    }
}

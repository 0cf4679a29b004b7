//! Sets of nodes that thresholds can do without.
//!
//! Problem: is a set m the intersection of one sufficient set of each threshold? Each threshold's set lacks
//! some of the nodes outside m, and each of those nodes is lacking in some set. Idea: *deny* every node
//! outside m to one threshold. A threshold can be denied nodes up to its *slack*: what all nodes have
//! together beyond its amount. So the nodes are packed into the slacks: nodes without cost first, then the
//! others from the most expensive down, each where it takes the smallest part, with backtracking.
//!
//! Cost: O(N x needs) if no slack is tight. Backtracking is **bounded** by [`STEPS`]; a set that is not
//! packed by then counts as impossible.

use super::search::{Cover, PARTS, part};
use crate::hints::{Mask, Need, NodeIndex, Threshold, positions};

/// Maximum number of steps of one packing.
const STEPS: u32 = 2_000;

/// Slack of one amount of a threshold.
#[derive(Debug)]
struct Slack<'a> {
    need: &'a Need,
    slack: u64,
}

/// One threshold, which nodes can be denied to.
#[derive(Debug)]
struct Bin<'a> {
    must: Mask,
    slacks: Vec<Slack<'a>>,
    /// Number of slacks of the thresholds before it.
    first: usize,
}

/// Packs denied nodes into the slacks of thresholds.
#[derive(Debug)]
pub(super) struct ExclusionPacking<'a> {
    nodes: usize,
    thresholds: Vec<Bin<'a>>,
}

impl<'a> ExclusionPacking<'a> {
    /// For thresholds that all nodes together satisfy.
    pub(super) fn new(nodes: &NodeIndex, thresholds: &[&'a Threshold]) -> Self {
        let slack = |need: &'a Need| {
            let all = (0..nodes.len()).map(|node| need.at(node)).sum::<u64>();
            Slack { need, slack: all.saturating_sub(need.amount) }
        };
        let mut first = 0;
        let of = |threshold: &&'a Threshold| {
            let party =
                Bin { must: threshold.must, slacks: threshold.needs.iter().map(slack).collect(), first };
            first += party.slacks.len();
            party
        };
        Self { nodes: nodes.len(), thresholds: thresholds.iter().map(of).collect() }
    }

    /// Conditions for sets of `base` with all other nodes denied.
    pub(super) fn covers(&self, base: Mask) -> Vec<Cover> {
        if let [Bin { slacks, .. }] = self.thresholds.as_slice() {
            // Only sets that suffice.
            let cover = |slack: &Slack<'_>| {
                let lost = |node: usize| if base >> node & 1 == 1 { slack.need.at(node) } else { 0 };
                let total = (0..self.nodes).map(lost).sum::<u64>();
                Cover::new(lost, total.saturating_sub(slack.slack), self.nodes)
            };
            return slacks.iter().map(cover).collect();
        }
        // A denied node uses a part of the slack of one threshold.
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

    /// Can this node be denied to any threshold?
    pub(super) fn is_deniable(&self, node: usize) -> bool {
        self.thresholds.iter().any(|party| party.parts(node).is_some())
    }

    /// Is the first node at least as expensive to deny as the other, for each threshold?
    pub(super) fn is_dearer(&self, one: usize, other: usize) -> bool {
        self.thresholds.iter().all(|party| {
            let held = |node: usize| {
                party.must_have(node) || party.slacks.iter().any(|slack| slack.need.at(node) > slack.slack)
            };
            let costs_more = || party.slacks.iter().all(|slack| slack.need.at(one) >= slack.need.at(other));
            held(one) || !held(other) && costs_more()
        })
    }

    /// Can all of these nodes be denied together? `left` is scratch space.
    pub(super) fn is_possible(&self, nodes: Mask, left: &mut Vec<u64>) -> bool {
        left.clear();
        left.extend(self.thresholds.iter().flat_map(|party| &party.slacks).map(|slack| slack.slack));
        // A node that costs a threshold nothing is denied to it; the others come from the most expensive
        // down.
        let free = |party: &Bin<'_>, node: usize| {
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
        // The smallest relative cost first; a threshold after the 64th is never tried.
        while let Some(threshold) = self.least_hurt(*node, left, tried) {
            tried |= 1 << threshold;
            self.deduct(threshold, *node, left, u64::checked_sub);
            if self.pack(rest, left, steps) {
                return true;
            }
            self.deduct(threshold, *node, left, u64::checked_add);
        }
        false
    }

    fn deduct(&self, party: usize, node: usize, left: &mut [u64], change: fn(u64, u64) -> Option<u64>) {
        let party = &self.thresholds[party];
        for (left, slack) in left[party.first..].iter_mut().zip(&party.slacks) {
            *left = change(*left, slack.need.at(node)).unwrap_or(*left);
        }
    }

    /// The untried threshold that can still be denied this node and loses the smallest part of its remaining
    /// slack.
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

impl Bin<'_> {
    fn must_have(&self, node: usize) -> bool {
        self.must >> node & 1 == 1
    }

    /// Cost of denying this node, as the mean part of the slacks; none if it cannot be denied.
    fn parts(&self, node: usize) -> Option<u64> {
        let possible =
            !self.must_have(node) && self.slacks.iter().all(|slack| slack.need.at(node) <= slack.slack);
        let sum =
            || self.slacks.iter().map(|slack| part(slack.need.at(node), slack.slack, false)).sum::<u64>();
        let count = u64::try_from(self.slacks.len()).unwrap_or(u64::MAX).max(1);
        possible.then(|| sum() / count)
    }
}

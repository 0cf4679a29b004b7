//! Number of CPUs from each of several nodes that give equal parts.
//!
//! Problem: G groups of CPUs (single CPUs or cores) are to come in equal parts from as few nodes as
//! possible. For k nodes the even part is G / k groups each, which every one must have; the G % k
//! groups that remain are handed out in rounds to a subset of the nodes. Of all choices of k nodes and
//! of subsets, that is the best after which free CPUs are spread most evenly over all nodes (smallest
//! standard deviation); of equal ones the first in order of nodes, larger subsets before smaller ones,
//! both lexicographically.
//!
//! Idea: what is left in total is the same for all choices, so the smallest standard deviation is the
//! smallest sum of squares, an integer; its fall by taking t of a free CPUs is t(2a - t), the *gain*.
//! It grows with a, so the k nodes with the most free CPUs show whether any choice of k nodes exists, and
//! give a lower bound for the best. The search then walks sets of nodes in order and skips all that cannot
//! beat the best known one: bounded by the most that later nodes can gain, and by the most that the remainder
//! can gain without the rounds. Subsets with at most one group per node need no walk: the best are the nodes
//! with the most CPUs left.
//! node need no walk: the best are the nodes with the most CPUs left.
//!
//! Cost: small if nodes are alike or one order stands out, exponential at worst, and **bounded**: after
//! [`EFFORT`], and on more than [`NODES`] nodes, it is the best choice found so far, at least as good as that
//! of the nodes with the most free CPUs. That takes some milliseconds on 64 nodes. Up to 12 nodes the bound
//! is not reached.
//!
//! Invariant: groups are never split: a subset of nodes with enough CPUs but not enough whole groups is not a
//! choice.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Share of one node, in groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Its even part.
    pub(super) even: usize,
    /// Its part of the remainder.
    pub(super) extra: usize,
}

/// Maximum cost of the walk, in visited nodes.
const EFFORT: usize = 150_000;
/// Maximum number of nodes for an exhaustive search.
const NODES: usize = 64;

/// Shares by position of the node, with a sum of `groups` groups of `size` CPUs, from at least `at_least`
/// nodes if possible.
pub(super) fn find(free: &[usize], groups: usize, size: usize, at_least: usize) -> Option<Vec<Share>> {
    find_within(EFFORT, free, groups, size, at_least)
}

/// [`find`] with another bound.
pub(super) fn find_within(
    effort: usize,
    free: &[usize],
    groups: usize,
    size: usize,
    at_least: usize,
) -> Option<Vec<Share>> {
    let most = groups.min(free.len());
    if most == 0 {
        return None;
    }
    let first = at_least.clamp(1, most);
    let mut fullest: Vec<usize> = (0..free.len()).collect();
    fullest.sort_by_key(|node| Reverse(free[*node]));
    (first..=most).chain((1..first).rev()).find_map(|width| {
        let parts = EqualParts { free, size, even: groups / width, remainder: groups % width };
        let mut nodes = fullest[..width].to_vec();
        if nodes.iter().any(|node| free[*node] < parts.even * size) {
            return None;
        }
        nodes.sort_unstable();
        let mut effort = if free.len() > NODES { 0 } else { effort };
        let known = parts.choice(&nodes, 0, &mut effort)?;
        let choice = if effort == 0 { known } else { ShareSearch::new(&parts, width, known, effort).best() };
        Some(choice.shares(&parts, free.len()))
    })
}

/// The problem for one number of nodes.
#[derive(Debug)]
struct EqualParts<'a> {
    free: &'a [usize],
    size: usize,
    /// Groups that each node gives.
    even: usize,
    /// Additional groups, fewer than there are nodes.
    remainder: usize,
}

/// Nodes, and their parts of the remainder.
#[derive(Debug, Clone)]
struct ShareChoice {
    nodes: Vec<usize>,
    extra: Vec<(usize, usize)>,
    gain: u64,
}

impl ShareChoice {
    fn shares(self, parts: &EqualParts<'_>, nodes: usize) -> Vec<Share> {
        let mut shares = vec![Share::default(); nodes];
        self.nodes.into_iter().for_each(|node| shares[node].even = parts.even);
        self.extra.into_iter().for_each(|(node, extra)| shares[node].extra = extra);
        shares
    }
}

impl EqualParts<'_> {
    /// CPUs left on a node after its even part.
    fn left(&self, node: usize) -> usize {
        self.free[node] - self.even * self.size
    }

    /// Gain of a node that gives its even part.
    fn even_gain(&self, node: usize) -> u64 {
        gain(self.free[node], self.even * self.size)
    }

    /// The best choice with exactly these nodes, all of which can give their even part; none if it would gain
    /// less than the floor, or if the remainder cannot be divided.
    fn choice(&self, nodes: &[usize], floor: u64, effort: &mut usize) -> Option<ShareChoice> {
        let even_gain: u64 = nodes.iter().map(|node| self.even_gain(*node)).sum();
        // Nodes with room for another group, in order.
        let roomy: Vec<usize> = nodes.iter().copied().filter(|node| self.left(*node) >= self.size).collect();
        let limit = self.greedy_gain(&roomy)?;
        if even_gain + limit < floor {
            return None;
        }
        *effort = effort.saturating_sub(nodes.len() * (self.remainder + 1));
        let mut best = self.one_each(&roomy);
        let widest = roomy.len().min(self.remainder.saturating_sub(1));
        let mut subset: Vec<usize> = (0..widest).collect();
        while !subset.is_empty() && best.as_ref().is_none_or(|(known, _)| *known < limit && *effort > 0) {
            *effort = effort.saturating_sub(subset.len());
            let found = self.rounds(subset.iter().map(|at| roomy[*at]).collect());
            if found.as_ref().map(|(gain, _)| *gain) > best.as_ref().map(|(gain, _)| *gain) {
                best = found;
            }
            if !advance(&mut subset, roomy.len()) {
                subset = (0..subset.len() - 1).collect();
            }
        }
        let (gain, extra) = best?;
        Some(ShareChoice { nodes: nodes.to_vec(), extra, gain: even_gain + gain })
    }

    /// One group from each of the nodes with the most CPUs left.
    fn one_each(&self, roomy: &[usize]) -> Option<(u64, Vec<(usize, usize)>)> {
        let mut fullest = roomy.to_vec();
        fullest.sort_by_key(|node| Reverse(self.left(*node)));
        let chosen = fullest.get(..self.remainder)?;
        let gain = chosen.iter().map(|node| gain(self.left(*node), self.size)).sum();
        Some((gain, chosen.iter().map(|node| (*node, 1)).collect()))
    }

    /// Divides the remainder in rounds: one group from each node that still has one.
    fn rounds(&self, subset: Vec<usize>) -> Option<(u64, Vec<(usize, usize)>)> {
        let rooms: usize = subset.iter().map(|node| self.left(*node) / self.size).sum();
        if rooms < self.remainder {
            return None;
        }
        let mut given: Vec<(usize, usize)> = subset.into_iter().map(|node| (node, 0)).collect();
        let mut missing = self.remainder;
        while missing > 0 {
            let able = given.iter_mut().filter(|(node, given)| *given < self.left(*node) / self.size);
            for (_, given) in able.take(missing) {
                *given += 1;
                missing -= 1;
            }
        }
        let gain = given.iter().map(|(node, given)| gain(self.left(*node), given * self.size)).sum();
        Some((gain, given))
    }

    /// Gain of the remainder if every group comes from the node with the most CPUs left: an upper bound. None
    /// if these nodes do not have that many groups.
    fn greedy_gain(&self, roomy: &[usize]) -> Option<u64> {
        let mut left: BinaryHeap<usize> = roomy.iter().map(|node| self.left(*node)).collect();
        (0..self.remainder).try_fold(0, |sum, _| {
            let most = left.pop().filter(|left| *left >= self.size)?;
            left.push(most - self.size);
            Some(sum + gain(most, self.size))
        })
    }
}

/// Decrease of the sum of squares when `taken` of the `free` CPUs are taken.
fn gain(free: usize, taken: usize) -> u64 {
    (taken as u64) * (2 * free as u64 - taken as u64)
}

/// The next combination of the same size of `of` items in lexicographic order.
fn advance(combination: &mut [usize], of: usize) -> bool {
    let width = combination.len();
    let Some(at) = (0..width).rev().find(|at| combination[*at] + width < of + at) else { return false };
    let first = combination[at] + 1;
    combination[at..].iter_mut().zip(first..).for_each(|(slot, value)| *slot = value);
    true
}

/// The walk through all sets of a given number of nodes.
#[derive(Debug)]
struct ShareSearch<'a> {
    parts: &'a EqualParts<'a>,
    width: usize,
    /// Nodes that can give the even part, in order.
    able: Vec<usize>,
    /// `[first][n]`: maximum gain of n able nodes from position `first` on by their even parts.
    ahead: Vec<Vec<u64>>,
    /// Maximum gain of the remainder.
    remainder: u64,
    /// Minimum gain of a useful choice.
    floor: u64,
    known: ShareChoice,
    chosen: Vec<usize>,
    effort: usize,
}

impl<'a> ShareSearch<'a> {
    fn new(parts: &'a EqualParts<'a>, width: usize, known: ShareChoice, effort: usize) -> Self {
        let able: Vec<usize> =
            (0..parts.free.len()).filter(|node| parts.free[*node] >= parts.even * parts.size).collect();
        let ahead = (0..=able.len()).map(|first| {
            let mut gains: Vec<u64> = able[first..].iter().map(|node| parts.even_gain(*node)).collect();
            gains.sort_unstable_by_key(|gain| Reverse(*gain));
            let sums = gains.iter().scan(0, |sum, gain| {
                *sum += gain;
                Some(*sum)
            });
            std::iter::once(0).chain(sums).collect()
        });
        let ahead = ahead.collect();
        let roomy: Vec<usize> = able.iter().copied().filter(|node| parts.left(*node) >= parts.size).collect();
        let remainder = parts.greedy_gain(&roomy).unwrap_or(0);
        Self { parts, width, ahead, able, remainder, floor: known.gain, known, chosen: Vec::new(), effort }
    }

    fn best(mut self) -> ShareChoice {
        self.walk(0, 0);
        self.known
    }

    fn walk(&mut self, from: usize, gained: u64) {
        let missing = self.width - self.chosen.len();
        if missing == 0 {
            if let Some(choice) = self.parts.choice(&self.chosen, self.floor, &mut self.effort)
                && choice.gain >= self.floor
            {
                self.floor = choice.gain + 1;
                self.known = choice;
            }
            return;
        }
        for at in from..=self.able.len() - missing {
            if self.effort == 0 || gained + self.ahead[at][missing] + self.remainder < self.floor {
                return;
            }
            self.effort -= 1;
            let node = self.able[at];
            self.chosen.push(node);
            self.walk(at + 1, gained + self.parts.even_gain(node));
            self.chosen.pop();
        }
    }
}

//! Sets that the merge considered, for explanations.
//!
//! The best sets in order, each with the comparison with the chosen one that decided. This runs only on
//! request and never changes an answer. With thresholds, sets are searched and not listed, so only the ones
//! found are named.

use std::fmt;

use super::{
    HintLists, MergeOptions, amounts, each_other, each_preferred, not_preferred, order::NodeSetOrder,
    preferred, scores::Scores,
};
use crate::{
    hints::{Mask, NodeIndex, Offer},
    words,
};

/// A set of nodes that could have been the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeCandidate {
    /// The nodes.
    pub mask: Mask,
    /// Does every resource prefer it?
    pub preferred: bool,
    /// The advantage of the chosen set; `None` for the chosen set itself.
    pub because: Option<Comparison>,
}

/// Comparison that decided against a set of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// Every resource prefers the chosen set, and not this one.
    NotPreferred,
    /// The number of nodes is not the best one.
    Width {
        /// Its number of nodes.
        own: u32,
        /// That of the chosen set.
        chosen: u32,
        /// Number of nodes that the most demanding resource needs; `None` if fewer is always better.
        wanted: Option<u32>,
    },
    /// The nodes are farther from each other.
    Distance {
        /// Its average distance, as a sum and a count.
        own: (u64, u64),
        /// That of the chosen set.
        chosen: (u64, u64),
    },
    /// The use of its nodes suits the strategy less.
    Score {
        /// Its mean score, as a sum and a count.
        own: (u64, u64),
        /// That of the chosen set.
        chosen: (u64, u64),
    },
    /// Equally good, but with higher ids.
    Ids,
}

/// The best sets, at most `limit`, the chosen one first; empty if the resources have no set in common.
pub fn candidates<'a>(
    nodes: &NodeIndex,
    offers: impl IntoIterator<Item = &'a Offer>,
    options: MergeOptions,
    limit: usize,
) -> Vec<MergeCandidate> {
    let lists = HintLists::new(offers, nodes, options);
    let mut found = Vec::new();
    let best = preferred(nodes, &lists, options);
    if let Some(chosen) = best {
        let order = NodeSetOrder::of_preferred(nodes, options);
        let scores = Scores::new(&lists.listed, nodes.all(), options.strategy, |hint| hint.preferred);
        let ranked = ranked(&order, chosen, |visit| each_preferred(nodes, &lists, &order, visit));
        found.extend(ranked.into_iter().map(|mask| {
            let because = (mask != chosen).then(|| compared(&order, &scores, mask, chosen));
            MergeCandidate { mask, preferred: true, because }
        }));
    }
    if found.len() < limit && !options.single_node {
        let wanted = amounts::widest_of_the_narrowest(nodes, &lists);
        let order = NodeSetOrder::of_others(nodes, options, wanted);
        let scores = Scores::new(&lists.listed, nodes.all(), options.strategy, |_| true);
        let first = best.or_else(|| not_preferred(nodes, &lists, options));
        let ranked = first.map_or_else(Vec::new, |first| {
            ranked(&order, first, |visit| each_other(nodes, &lists, &order, wanted, visit))
        });
        let others = ranked.into_iter().filter(|mask| !found.iter().any(|known| known.mask == *mask));
        let others: Vec<MergeCandidate> = others
            .map(|mask| {
                let because = match (best, first) {
                    (Some(_), _) => Some(Comparison::NotPreferred),
                    (None, Some(first)) if first != mask => Some(compared(&order, &scores, mask, first)),
                    (None, _) => None,
                };
                MergeCandidate { mask, preferred: false, because }
            })
            .collect();
        found.extend(others);
    }
    found.truncate(limit);
    found
}

/// All visited sets, the chosen one first and the others by the order.
fn ranked(order: &NodeSetOrder<'_>, chosen: Mask, each: impl FnOnce(&mut dyn FnMut(Mask))) -> Vec<Mask> {
    let mut ranked = vec![];
    each(&mut |mask| {
        ranked.push((mask != chosen, order.detour(mask.count_ones()), order.spread(mask), mask));
    });
    ranked.retain(|(.., mask)| *mask != 0);
    ranked.sort_unstable();
    ranked.dedup();
    ranked.into_iter().map(|(.., mask)| mask).collect()
}

fn compared(order: &NodeSetOrder<'_>, scores: &Scores, mask: Mask, chosen: Mask) -> Comparison {
    let (own, best) = (mask.count_ones(), chosen.count_ones());
    if own != best {
        return Comparison::Width { own, chosen: best, wanted: order.wanted() };
    }
    let pairs = u64::from(own) * u64::from(own);
    let (far, near) = (order.spread(mask), order.spread(chosen));
    if far != near {
        return Comparison::Distance { own: (far, pairs), chosen: (near, pairs) };
    }
    match (scores.mean(mask), scores.mean(chosen)) {
        (Some(own), Some(chosen)) if own.0 * chosen.1 != chosen.0 * own.1 => {
            Comparison::Score { own, chosen }
        }
        _ => Comparison::Ids,
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotPreferred => f.write_str("not every resource prefers it"),
            Self::Width { own, chosen, wanted: None } => {
                write!(f, "{}, the chosen set has {chosen}", nodes(own))
            }
            Self::Width { own, chosen, wanted: Some(wanted) } => {
                write!(f, "{}, and {wanted} are needed; the chosen set has {chosen}", nodes(own))
            }
            Self::Distance { own, chosen } => {
                write!(f, "average distance {}, the chosen set has {}", MeanText(own), MeanText(chosen))
            }
            Self::Score { own, chosen } => {
                write!(f, "score {}, the chosen set has {}", MeanText(own), MeanText(chosen))
            }
            Self::Ids => f.write_str("as good, the lowest ids are taken"),
        }
    }
}

/// `1 node`, `2 nodes`.
fn nodes(number: u32) -> String {
    words::count(number as usize, "node")
}

/// A mean with two places after the point, rounded down.
struct MeanText((u64, u64));

impl fmt::Display for MeanText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self((sum, count)) = *self;
        let count = count.max(1);
        write!(f, "{}.{:02}", sum / count, sum % count * 100 / count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hints::{MaskHint, Need, Threshold},
        settings::NumaAllocationStrategy,
    };

    fn machine() -> NodeIndex {
        let table =
            vec![vec![10, 11, 12, 12], vec![11, 10, 12, 12], vec![12, 12, 10, 11], vec![12, 12, 11, 10]];
        NodeIndex::new(&"0-3".parse().unwrap()).with_distances(table)
    }

    fn listed(hints: &[(Mask, bool, u8)]) -> Offer {
        let hint =
            |&(mask, preferred, score): &(Mask, bool, u8)| MaskHint { mask: Some(mask), preferred, score };
        Offer::Listed(hints.iter().map(hint).collect())
    }

    fn told(offers: &[Offer], options: MergeOptions) -> Vec<(Mask, bool, String)> {
        let considered = candidates(&machine(), offers, options, 4);
        let text =
            |because: Option<Comparison>| because.map_or_else(|| "chosen".to_owned(), |b| b.to_string());
        considered.into_iter().map(|c| (c.mask, c.preferred, text(c.because))).collect()
    }

    #[track_caller]
    fn expect(offers: &[Offer], options: MergeOptions, expected: &[(Mask, bool, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(m, p, text)| (*m, *p, (*text).to_owned())).collect();
        assert_eq!(told(offers, options), expected);
    }

    #[test]
    fn each_set_is_told_what_decided_against_it() {
        let closest = MergeOptions { prefer_closest: true, ..MergeOptions::default() };
        expect(
            &[listed(&[(0b0011, true, 0), (0b0101, true, 0), (0b0111, true, 0), (0b1100, true, 0)])],
            closest,
            &[
                (0b0011, true, "chosen"),
                (0b1100, true, "as good, the lowest ids are taken"),
                (0b0101, true, "average distance 11.00, the chosen set has 10.50"),
                (0b0111, true, "3 nodes, the chosen set has 2"),
            ],
        );
        expect(
            &[listed(&[(0b0001, true, 0), (0b0011, false, 0)]), listed(&[(0b0001, true, 0)])],
            closest,
            &[(0b0001, true, "chosen")],
        );
        expect(
            &[listed(&[(0b0001, true, 0), (0b0011, false, 0)])],
            closest,
            &[(0b0001, true, "chosen"), (0b0011, false, "not every resource prefers it")],
        );
        expect(
            &[listed(&[(0b0011, false, 0), (0b0111, false, 0)]), listed(&[(0b0110, true, 0)])],
            closest,
            &[(0b0110, false, "chosen"), (0b0010, false, "1 node, and 2 are needed; the chosen set has 2")],
        );
        expect(&[listed(&[(0b0001, true, 0)]), listed(&[(0b0010, true, 0)])], closest, &[]);
    }

    #[test]
    fn the_score_decides_where_it_decided() {
        let most =
            MergeOptions { strategy: NumaAllocationStrategy::MostAllocated, ..MergeOptions::default() };
        expect(
            &[listed(&[(0b01, true, 20), (0b10, true, 80)]), listed(&[(0b01, true, 0), (0b10, true, 61)])],
            most,
            &[(0b10, true, "chosen"), (0b01, true, "score 20.00, the chosen set has 70.50")],
        );
    }

    #[test]
    fn the_first_one_is_what_the_merge_finds_also_without_lists() {
        let nodes = NodeIndex::new(&"0-39".parse().unwrap());
        let threshold = |free: u64, width| {
            let needs = vec![Need { free: vec![free; 40], amount: 8 }];
            Offer::Threshold(Threshold { needs, width, must: 0 })
        };
        for (offers, preferred) in
            [([threshold(8, 1), threshold(9, 1)], true), ([threshold(8, 1), threshold(3, 1)], false)]
        {
            let merged = super::super::merge(&nodes, &offers, MergeOptions::default());
            let considered = candidates(&nodes, &offers, MergeOptions::default(), 4);
            assert_eq!(
                considered[0],
                MergeCandidate { mask: merged.mask.unwrap(), preferred, because: None }
            );
        }
    }
}

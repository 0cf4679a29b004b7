//! Scores of sets of nodes by use, for the tie-break.
//!
//! Each hint may have a score from 1 to 100. The score of a set of nodes is the mean over the resources that
//! scored exactly that set. A resource without a score does not count; of several scores by one resource, the
//! one that the strategy prefers counts. Means are compared as fractions. Without a strategy or any score,
//! nothing is stored or compared.

use std::cmp::Ordering;

use super::list::HintList;
use crate::{
    hints::{Mask, MaskHint},
    settings::NumaAllocationStrategy,
};

/// Scores of sets of nodes.
#[derive(Debug)]
pub(super) struct Scores {
    strategy: NumaAllocationStrategy,
    /// Ascending by mask.
    means: Vec<(Mask, MeanScore)>,
}

/// A mean as a sum and a count.
type MeanScore = (u64, u64);

impl Scores {
    /// Scores from hints for which `counts` is true, for their nodes on the machine.
    pub(super) fn new(
        lists: &[HintList<'_>],
        all: Mask,
        strategy: NumaAllocationStrategy,
        counts: impl Fn(&MaskHint) -> bool,
    ) -> Self {
        let mut means: Vec<(Mask, MeanScore)> = Vec::new();
        if strategy != NumaAllocationStrategy::None {
            let scored = |hint: &&MaskHint| hint.score > 0 && counts(hint);
            for list in lists {
                let of_hint = |hint: &MaskHint| {
                    let mean = (u64::from(hint.score), 1);
                    hint.mask.map(|mask| (mask & all, mean))
                };
                let mut own: Vec<_> = list.hints().iter().filter(scored).filter_map(of_hint).collect();
                own.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| by_strategy(strategy, b.1, a.1)));
                own.dedup_by_key(|(mask, _)| *mask);
                means.extend(own);
            }
            means.sort_by_key(|(mask, _)| *mask);
            means.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    kept.1 = (kept.1.0 + later.1.0, kept.1.1 + later.1.1);
                }
                same
            });
        }
        Self { strategy, means }
    }

    /// Does this set have a score?
    pub(super) fn has(&self, mask: Mask) -> bool {
        self.mean(mask).is_some()
    }

    /// The set with the better score; of equal ones the lower set.
    pub(super) fn better(&self, a: Option<Mask>, b: Option<Mask>) -> Option<Mask> {
        let (Some(left), Some(right)) = (a, b) else { return a.or(b) };
        let (Some(of_left), Some(of_right)) = (self.mean(left), self.mean(right)) else { return a };
        match by_strategy(self.strategy, of_left, of_right) {
            Ordering::Greater => a,
            Ordering::Less => b,
            Ordering::Equal => Some(left.min(right)),
        }
    }

    /// The mean score of a set, as a sum and a count.
    pub(super) fn mean(&self, mask: Mask) -> Option<MeanScore> {
        let at = self.means.binary_search_by_key(&mask, |(mask, _)| *mask).ok()?;
        Some(self.means[at].1)
    }
}

/// Greater is better.
fn by_strategy(strategy: NumaAllocationStrategy, a: MeanScore, b: MeanScore) -> Ordering {
    let ascending = (a.0 * b.1).cmp(&(b.0 * a.1));
    match strategy {
        NumaAllocationStrategy::None => Ordering::Equal,
        NumaAllocationStrategy::MostAllocated => ascending,
        NumaAllocationStrategy::LeastAllocated => ascending.reverse(),
    }
}

//! A question to all resources, and the policy's decision about the answers.
//!
//! Problem: the kubelet aligns only Guaranteed pods; others should get locality as well, without being
//! rejected for it. Idea: offers are *firm* or *soft*. Firm ones are those that the kubelet makes; only they
//! decide about admission. Soft ones (shared CPUs, memory of other classes) take part as long as one
//! preferred place has everything, and give way otherwise.
//!
//! 1. Firm and soft offers are merged. A preferred answer is taken.
//! 2. Otherwise only the firm ones are merged, without the soft promises of others, and the policy decides
//!    whether the answer is good enough. If it need not be preferred, the best set that has everything is
//!    taken, if there is one: the intersection of the sets of several resources may have too little of each.
//!    The profile `kubelet` takes the intersection.
//! 3. If no firm offer has a preference, the soft ones choose: the emptiest of the suitable single nodes
//!    (first the node with most of the container's memory), or the best set of nodes if no single node is
//!    suitable.
//!
//! One key decides between places that are equally good for all resources ([`TieBreak`]), whatever the class
//! of the pod. By the cost for containers that share CPUs, exclusive CPUs displace no container if possible,
//! and sharing containers go where the shared CPUs are emptiest.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    Mask, MaskHint, NodeIndex, Offer, Offers, Sums, Threshold,
    merge::{MergeOptions, Merged, complete, merge},
    numa_first_fit, of_width, positions,
    shared::Burden,
    tie_break::TieBreak,
};
use crate::{
    QosClass,
    settings::{HintsSettings, TopologyPolicy},
};

/// Offers of the resources for a container or a pod, and the rules to judge them.
pub(super) struct NodeSetQuestion<'a> {
    pub(super) nodes: &'a NodeIndex,
    pub(super) settings: &'a HintsSettings,
    pub(super) qos: QosClass,
    /// Offers that decide about admission.
    pub(super) firm: Offers,
    /// Offers that do not.
    pub(super) soft: Offers,
    /// Bytes that it has already, by position of the node; empty if it has none.
    pub(super) resident: Vec<u64>,
}

/// A place that is good enough for the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The set of nodes; its mask is `None` if any node is suitable.
    pub(super) merged: Merged,
    /// Whether soft promises of others were ignored.
    pub(super) over_soft: bool,
    /// Level of [`LocalMemory`](super::local::LocalMemory) of the memory offers.
    pub(super) level: usize,
}

impl Alignment {
    const fn new(merged: Merged, over_soft: bool) -> Self {
        Self { merged, over_soft, level: 0 }
    }
}

impl NodeSetQuestion<'_> {
    /// The place; `None` if the policy does not accept the best one. `firm_alone` repeats the question
    /// without soft promises of others, if there are any; `burden` is the cost of a place for containers that
    /// share CPUs.
    pub(super) fn answer(
        &mut self,
        firm_alone: impl FnOnce() -> Option<Offers>,
        burden: impl Fn(Mask) -> Burden,
    ) -> Option<Alignment> {
        self.score_by_residence();
        let legacy = matches!(
            self.settings.policy,
            TopologyPolicy::NumaManager | TopologyPolicy::NumaManagerBestEffort
        );
        if !has_preference(&self.firm) {
            let merged = self.soft_choice(burden);
            return Some(Alignment::new(merged, false));
        }
        if legacy {
            return self.first_fit();
        }
        let all = merge(self.nodes, self.offers(), self.options());
        if all.preferred {
            let merged = self.least_burden(self.at_its_memory(all, self.offers()), burden);
            return Some(Alignment::new(merged, false));
        }
        let alone = firm_alone();
        let over_soft = alone.is_some();
        if let Some(mut alone) = alone {
            score_by_residence(&mut alone, &self.resident);
            self.firm = alone;
        }
        let firm = || self.firm.iter().map(|(_, offer)| offer);
        let merged = self.at_its_memory(merge(self.nodes, firm(), self.options()), firm());
        let admitted = merged.preferred || self.settings.policy == TopologyPolicy::BestEffort;
        admitted.then(|| {
            let merged = self.with_everything(merged, firm());
            let merged = if merged.preferred { merged } else { self.least_burden(merged, burden) };
            Alignment::new(merged, over_soft)
        })
    }

    /// `merged` if it is preferred; else the best set that has everything, if there is one.
    fn with_everything<'b>(&self, merged: Merged, offers: impl Iterator<Item = &'b Offer>) -> Merged {
        if merged.preferred || self.settings.is_kubelet() {
            return merged;
        }
        let mask = complete(self.nodes, offers, self.options()).or(merged.mask);
        Merged { mask, ..merged }
    }

    /// Does each firm offer have enough at this place?
    pub(super) fn has_everything(&self, settled: Alignment) -> bool {
        let accepted = |mask| self.firm.iter().all(|(_, offer)| accepts(offer, mask));
        settled.merged.mask.is_none_or(accepted)
    }

    /// All offers, firm ones first.
    pub(super) fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.firm.iter().chain(&self.soft).map(|(_, offer)| offer)
    }

    /// Comparison of sets of nodes.
    pub(super) fn options(&self) -> MergeOptions {
        MergeOptions { strategy: self.tie_break().of_scores(), ..MergeOptions::from(self.settings) }
    }

    fn tie_break(&self) -> TieBreak {
        TieBreak::of(self.settings, !self.resident.is_empty())
    }

    /// Sets of nodes that are too many to list have no scores: among the single nodes as good as the one
    /// found, the one with most of the container's memory.
    fn at_its_memory<'b>(&self, found: Merged, offers: impl Iterator<Item = &'b Offer>) -> Merged {
        let is_single = found.preferred && found.mask.is_some_and(Mask::is_power_of_two);
        if self.tie_break() != TieBreak::Residence || !is_single {
            return found;
        }
        let (mut as_good, mut listed) = (self.nodes.all(), true);
        for offer in offers {
            listed &= !matches!(offer, Offer::Threshold(_));
            let is_preferred = |node: &Mask| prefers(offer, *node);
            as_good = positions(as_good)
                .map(|position| 1 << position)
                .filter(is_preferred)
                .fold(0, |all, node| all | node);
        }
        if listed {
            return found;
        }
        let singles = positions(as_good).map(|position| 1 << position);
        let most = singles.max_by_key(|node| (self.resident_on(*node), Reverse(*node)));
        most.map_or(found, |node| Merged { mask: Some(node), ..found })
    }

    /// Bytes that the container has on these nodes.
    pub(super) fn resident_on(&self, mask: Mask) -> u64 {
        let held = positions(mask).filter_map(|position| self.resident.get(position));
        held.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Among the sets of nodes as good as the one found, and equally wide and close, the one with the lowest
    /// cost for containers that share CPUs, if that cost is the [`TieBreak`]. A non-preferred set is as good
    /// as another one that has enough of everything.
    fn least_burden(&self, found: Merged, burden: impl Fn(Mask) -> Burden) -> Merged {
        let decides = self.tie_break() == TieBreak::SharedCpus;
        let Some(mask) = found.mask.filter(|_| decides) else { return found };
        let costs = burden(mask);
        if costs == (0, 0) || costs.0 == 0 && !(found.preferred && mask.is_power_of_two()) {
            return found;
        }
        let (spread, all, width) = (self.spread(mask), self.nodes.all(), mask.count_ones());
        let as_good = if found.preferred {
            fit_for_all(self.offers(), all, width, true)
        } else {
            fit_for_all(self.firm.iter().map(|(_, offer)| offer), all, width, false)
        };
        if !as_good.contains(&mask) {
            return found;
        }
        let as_good = as_good.into_iter().filter(|other| self.spread(*other) <= spread);
        let best = as_good.map(|other| (burden(other), other != mask, other)).min();
        best.filter(|(least, ..)| *least < costs)
            .map_or(found, |(.., mask)| Merged { mask: Some(mask), ..found })
    }

    /// Sum of the distances within a set of nodes; 0 if distances do not matter or are not all known.
    fn spread(&self, mask: Mask) -> u64 {
        let distances = self.nodes.known_distances().filter(|_| self.options().prefer_closest);
        distances.map_or(0, |distances| distances.spread(mask))
    }

    fn soft_choice(&self, burden: impl Fn(Mask) -> Burden) -> Merged {
        if !has_preference(&self.soft) {
            return merge(self.nodes, self.offers(), self.options());
        }
        let do_alone =
            self.offers().fold(self.nodes.all(), |nodes, offer| nodes & single_nodes(offer, nodes));
        let singles = positions(do_alone).map(|position| 1 << position);
        let held = |mask: Mask| Reverse(self.resident.get(mask.trailing_zeros() as usize).copied());
        let best = singles.min_by_key(|mask| (held(*mask), burden(*mask), *mask));
        best.map_or_else(
            || {
                let options = MergeOptions { single_node: false, ..self.options() };
                self.with_everything(merge(self.nodes, self.offers(), options), self.offers())
            },
            |mask| Merged { mask: Some(mask), preferred: true },
        )
    }

    /// The older protocol: strict only for Guaranteed pods, and only without best-effort.
    fn first_fit(&self) -> Option<Alignment> {
        let firm = || self.firm.iter().map(|(_, offer)| offer);
        let lists: Vec<Vec<Mask>> = firm().filter_map(|offer| masks_of(offer, self.nodes)).collect();
        let mask = numa_first_fit(self.nodes, &lists);
        let strict = self.settings.policy == TopologyPolicy::NumaManager && self.qos == QosClass::Guaranteed;
        let has_everything = |mask: Mask| firm().all(|offer| accepts(offer, mask));
        let preferred = mask.is_some_and(has_everything);
        (mask.is_some() || !strict).then_some(Alignment::new(Merged { mask, preferred }, false))
    }

    fn score_by_residence(&mut self) {
        score_by_residence(&mut self.firm, &self.resident);
        score_by_residence(&mut self.soft, &self.resident);
    }
}

/// Does any of these have a preference?
fn has_preference(offers: &Offers) -> bool {
    offers.iter().any(|(_, offer)| *offer != Offer::NoPreference)
}

/// Are these nodes suitable?
pub(super) fn accepts(offer: &Offer, mask: Mask) -> bool {
    match offer {
        Offer::NoPreference => true,
        Offer::Listed(hints) => hints.iter().any(|hint| hint.mask.is_none_or(|listed| listed == mask)),
        Offer::Threshold(threshold) => threshold.suffices(mask),
    }
}

/// Are these as few nodes as the resource needs?
pub(super) fn prefers(offer: &Offer, mask: Mask) -> bool {
    match offer {
        Offer::NoPreference => true,
        Offer::Listed(hints) => {
            hints.iter().any(|hint| hint.preferred && hint.mask.is_none_or(|listed| listed == mask))
        }
        Offer::Threshold(threshold) => threshold.suffices(mask) && threshold.width == mask.count_ones(),
    }
}

/// The nodes that are suitable alone. One pass over the list, which may be long.
fn single_nodes(offer: &Offer, nodes: Mask) -> Mask {
    match offer {
        Offer::NoPreference => nodes,
        Offer::Listed(hints) => hints.iter().fold(0, |alone, hint| match hint.mask {
            None => alone | nodes,
            Some(mask) if mask.is_power_of_two() => alone | mask & nodes,
            Some(_) => alone,
        }),
        Offer::Threshold(threshold) => {
            let does = |node: &Mask| threshold.suffices(*node);
            positions(nodes).map(|position| 1 << position).filter(does).fold(0, |alone, node| alone | node)
        }
    }
}

/// Sets of `width` nodes that every resource accepts, or prefers. One pass over each list.
fn fit_for_all<'a>(
    offers: impl Iterator<Item = &'a Offer>,
    all: Mask,
    width: u32,
    preferred: bool,
) -> BTreeSet<Mask> {
    let (mut thresholds, mut listed) = (Vec::new(), None::<BTreeSet<Mask>>);
    for offer in offers {
        match offer {
            Offer::NoPreference => {}
            Offer::Threshold(_) => thresholds.push(offer),
            Offer::Listed(hints) => {
                let fit = || hints.iter().filter(|hint| hint.preferred || !preferred);
                if fit().any(|hint| hint.mask.is_none()) {
                    continue;
                }
                let masks = fit().filter_map(|hint| hint.mask);
                let masks: BTreeSet<Mask> =
                    masks.filter(|mask| mask & !all == 0 && mask.count_ones() == width).collect();
                listed = Some(listed.map_or_else(|| masks.clone(), |both| &both & &masks));
            }
        }
    }
    let mut masks = listed.unwrap_or_else(|| sets(all, width).collect());
    let is_fit = |threshold: &&Offer, mask: Mask| {
        if preferred { prefers(threshold, mask) } else { accepts(threshold, mask) }
    };
    masks.retain(|mask| thresholds.iter().all(|threshold| is_fit(threshold, *mask)));
    masks
}

/// Sets of `width` nodes, in order of their positions, up to a limit.
fn sets(all: Mask, width: u32) -> impl Iterator<Item = Mask> {
    of_width(all.count_ones() as usize, width as usize).take(SETS)
}

/// Maximum number of sets that are compared by their cost for others.
const SETS: usize = 4096;

/// Scores sets of nodes by the container's memory there, so that of equally suitable ones the least memory
/// moves.
fn score_by_residence(offers: &mut Offers, resident: &[u64]) {
    let all = resident.iter().fold(0u128, |sum, bytes| sum + u128::from(*bytes));
    if all == 0 {
        return;
    }
    // Seven bits are enough for the factor of 99.
    let shift = (128 - all.leading_zeros()).saturating_sub(57);
    let sums = Sums::new(resident.iter().map(|bytes| bytes >> shift).collect());
    let all = u64::try_from(all >> shift).unwrap_or(u64::MAX).max(1);
    let score = |mask: Mask| u8::try_from(1 + sums.at(mask) * 99 / all).map_or(100, |score| score.min(100));
    for (_, offer) in offers {
        if let Offer::Listed(hints) = offer {
            for hint in hints {
                hint.score = hint.mask.map_or(0, score);
            }
        }
    }
}

/// The list for the older protocol; none for a resource without a preference.
fn masks_of(offer: &Offer, nodes: &NodeIndex) -> Option<Vec<Mask>> {
    match offer {
        Offer::NoPreference => None,
        Offer::Listed(hints) if hints.iter().any(|hint| hint.mask.is_none()) => None,
        Offer::Listed(hints) => Some(minimal(hints.iter().filter_map(|hint: &MaskHint| hint.mask).collect())),
        Offer::Threshold(threshold) => Some(minimal(masks_of_threshold(threshold, nodes))),
    }
}

/// The sets without a listed subset: with all the wider ones every two lists would have a set in common.
fn minimal(mut masks: Vec<Mask>) -> Vec<Mask> {
    masks.sort_by_key(|mask| mask.count_ones());
    let mut minimal: Vec<Mask> = Vec::new();
    for mask in masks {
        if !minimal.iter().any(|part| part & mask == *part) {
            minimal.push(mask);
        }
    }
    minimal
}

/// For a machine with too many sets of nodes to list: those of one and of two nodes, and the run of the
/// lowest nodes that has enough.
fn masks_of_threshold(threshold: &Threshold, nodes: &NodeIndex) -> Vec<Mask> {
    let single = |position: usize| 1 << position;
    let all = nodes.all();
    let singles = positions(all).map(single);
    let pairs = positions(all)
        .flat_map(|low| positions(all).filter(move |high| low < *high).map(move |high| 1 << low | 1 << high));
    let runs = positions(all).scan(0, |run: &mut Mask, position| {
        *run |= 1 << position;
        Some(*run)
    });
    singles.chain(pairs).chain(runs).filter(|mask| threshold.suffices(*mask)).collect()
}

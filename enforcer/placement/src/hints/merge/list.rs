//! Offers of the resources in the form that the merge works on.
//!
//! Defines what "no preference" and "cannot be satisfied" mean for the cross product, and drops hints that do
//! not count. Lists that can be used unchanged are not copied.

use std::borrow::Cow;

use super::options::MergeOptions;
use crate::hints::{Mask, MaskHint, NodeIndex, Offer, Threshold};

/// Offers of all resources.
#[derive(Debug)]
pub(super) struct HintLists<'a> {
    /// Listed offers.
    pub(super) listed: Vec<HintList<'a>>,
    /// Thresholds that all nodes together satisfy.
    pub(super) thresholds: Vec<&'a Threshold>,
}

/// The hints of one resource.
#[derive(Debug)]
pub(super) struct HintList<'a> {
    hints: Cow<'a, [MaskHint]>,
}

/// Summary of the preferred hints of one resource.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Preference {
    /// Whether one is for any nodes, so that the list agrees with every other one.
    pub(super) anywhere: bool,
    /// Nodes that any of them names.
    pub(super) named: Mask,
}

const ANYWHERE: MaskHint = MaskHint { mask: None, preferred: true, score: 0 };
const NOWHERE: MaskHint = MaskHint { mask: None, preferred: false, score: 0 };

impl<'a> HintLists<'a> {
    /// The lists of all offers; thresholds are expanded if sets of the nodes are listed.
    pub(super) fn new(
        offers: impl IntoIterator<Item = &'a Offer>,
        nodes: &NodeIndex,
        options: MergeOptions,
    ) -> Self {
        let mut lists = Self { listed: Vec::new(), thresholds: Vec::new() };
        for offer in offers {
            let hints = match offer {
                Offer::NoPreference => Cow::Borrowed([ANYWHERE].as_slice()),
                Offer::Listed(hints) => Cow::Borrowed(hints.as_slice()),
                Offer::Threshold(threshold) if options.single_node => {
                    Cow::Owned(threshold.single_nodes(nodes.len()))
                }
                Offer::Threshold(threshold) if nodes.is_listed() => Cow::Owned(threshold.listed(nodes.len())),
                Offer::Threshold(threshold) if threshold.suffices(nodes.all()) => {
                    lists.thresholds.push(threshold);
                    continue;
                }
                Offer::Threshold(_) => Cow::Borrowed([].as_slice()),
            };
            lists.listed.push(HintList::new(hints, options.single_node));
        }
        lists
    }
}

impl<'a> HintList<'a> {
    fn new(hints: Cow<'a, [MaskHint]>, single_node: bool) -> Self {
        let hints = if hints.is_empty() { Cow::Borrowed([NOWHERE].as_slice()) } else { hints };
        if !single_node {
            return Self { hints };
        }
        let counts = |hint: &MaskHint| hint.preferred && hint.mask.is_none_or(u64::is_power_of_two);
        Self { hints: Cow::Owned(hints.iter().copied().filter(counts).collect()) }
    }

    /// The hints.
    pub(super) fn hints(&self) -> &[MaskHint] {
        &self.hints
    }

    /// The masks of preferred hints that name nodes.
    pub(super) fn preferred(&self) -> impl Iterator<Item = Mask> + '_ {
        self.hints.iter().filter(|hint| hint.preferred).filter_map(|hint| hint.mask)
    }

    /// The masks of all hints that name nodes.
    pub(super) fn masks(&self) -> impl Iterator<Item = Mask> + '_ {
        self.hints.iter().filter_map(|hint| hint.mask)
    }

    /// Summary of its preferred hints.
    pub(super) fn preference(&self) -> Preference {
        let preferred = self.hints.iter().filter(|hint| hint.preferred);
        preferred.fold(Preference::default(), |seen, hint| match hint.mask {
            None => Preference { anywhere: true, ..seen },
            Some(mask) => Preference { named: seen.named | mask, ..seen },
        })
    }
}

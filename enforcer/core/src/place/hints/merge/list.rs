//! What one resource offers, in the one form that the merge works on.
//!
//! Says what "no preference" and "cannot be satisfied" mean for the cross product, and leaves out the
//! hints that do not count. Never copies a list that can be used as it is.

use std::borrow::Cow;

use super::{LISTED_NODES, MergeOptions};
use crate::place::hints::{Mask, MaskHint, NodeIndex, Offer};

/// The hints of one resource.
#[derive(Debug)]
pub(super) struct List<'a> {
    hints: Cow<'a, [MaskHint]>,
}

const ANYWHERE: MaskHint = MaskHint { mask: None, preferred: true, score: 0 };
const NOWHERE: MaskHint = MaskHint { mask: None, preferred: false, score: 0 };

impl<'a> List<'a> {
    /// The list of one offer.
    pub(super) fn of(offer: &'a Offer, nodes: &NodeIndex, options: MergeOptions) -> Self {
        let hints = match offer {
            Offer::NoPreference => Cow::Borrowed([ANYWHERE].as_slice()),
            Offer::Listed(hints) => or_nowhere(Cow::Borrowed(hints.as_slice())),
            Offer::Threshold(threshold) => {
                or_nowhere(Cow::Owned(threshold.listed(nodes.len().min(LISTED_NODES))))
            }
        };
        if !options.single_node {
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

    /// Is a preferred hint for any nodes among them, so that this list agrees with every other one?
    pub(super) fn agrees_with_all(&self) -> bool {
        self.hints.iter().any(|hint| hint.preferred && hint.mask.is_none())
    }
}

fn or_nowhere(hints: Cow<'_, [MaskHint]>) -> Cow<'_, [MaskHint]> {
    if hints.is_empty() { Cow::Borrowed(&[NOWHERE]) } else { hints }
}

/// The width that a non-preferred answer should have: the narrowest hint of the resource that needs
/// the most nodes; 0 when no hint names nodes.
pub(super) fn widest_of_the_narrowest(lists: &[List<'_>]) -> u32 {
    lists.iter().filter_map(|list| list.masks().map(Mask::count_ones).min()).max().unwrap_or(0)
}

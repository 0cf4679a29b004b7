//! Sets of nodes that every resource prefers.
//!
//! All agree on a set if every list has it as a preferred hint, or has a preferred hint for any nodes, which
//! agrees with every set. If all lists have such a hint, the set of all nodes is one more. Idea: an
//! intersection of sets of masks. Masks of up to [`MAX_ENUMERATED_NODES`] bits are one bit each in a table of
//! 2^N bits; wider ones are sorted lists. Hints are compared as given, including nodes that the machine does
//! not have.
//!
//! Cost: O(hints + 2^N / 64) for narrow masks, O(hints x log hints) for wide ones.

use super::{MAX_ENUMERATED_NODES, list::HintList};
use crate::hints::Mask;

/// Calls `visit` with every set that all prefer, as given; some may be visited twice.
pub(super) fn visit(lists: &[HintList<'_>], all: Mask, mut visit: impl FnMut(Mask)) {
    let mut bound: Vec<&HintList<'_>> = Vec::with_capacity(lists.len());
    let mut widest = 0;
    for list in lists {
        let preference = list.preference();
        if !preference.anywhere {
            bound.push(list);
            widest |= preference.named;
        }
    }
    if bound.is_empty() {
        visit(all);
        lists.iter().flat_map(HintList::preferred).for_each(visit);
        return;
    }
    if (Mask::BITS - widest.leading_zeros()) as usize <= MAX_ENUMERATED_NODES {
        narrow(&bound, widest, visit);
    } else {
        wide(&bound, visit);
    }
}

fn narrow(lists: &[&HintList<'_>], widest: Mask, mut visit: impl FnMut(Mask)) {
    // `widest` has at most LISTED bits.
    let words = (widest / 64 + 1).try_into().unwrap_or(0);
    let mut common = vec![u64::MAX; words];
    let mut own = vec![0_u64; words];
    for list in lists {
        own.fill(0);
        for mask in list.preferred() {
            if let Some(word) = usize::try_from(mask / 64).ok().and_then(|index| own.get_mut(index)) {
                *word |= 1 << (mask % 64);
            }
        }
        common.iter_mut().zip(&own).for_each(|(common, own)| *common &= own);
    }
    for (index, mut word) in (0..).zip(common) {
        while word != 0 {
            visit(index * 64 + Mask::from(word.trailing_zeros()));
            word &= word - 1;
        }
    }
}

fn wide(lists: &[&HintList<'_>], visit: impl FnMut(Mask)) {
    let sorted = |list: &&HintList<'_>| {
        let mut masks: Vec<Mask> = list.preferred().collect();
        masks.sort_unstable();
        masks
    };
    let common = lists.iter().map(sorted).reduce(|mut common, own| {
        common.retain(|mask| own.binary_search(mask).is_ok());
        common
    });
    common.into_iter().flatten().for_each(visit);
}

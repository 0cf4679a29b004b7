//! The sets of nodes that are the intersection of one set of each list.
//!
//! Problem: which sets can result from the cross product? Idea: they are built list by list, as the
//! intersections of the sets so far with the hints of the next list. For up to [`MAX_ENUMERATED_NODES`] nodes
//! this is an AND-convolution of two 0/1 tables over all 2^N sets: sum each over supersets (zeta transform),
//! multiply, and invert the sums (Moebius transform). Nonzero entries are the intersection of some pair. The
//! counts stay below 2^32, so the arithmetic is exact. For more nodes the sets are a sorted list.
//!
//! Cost: O(lists x N x 2^N), three transforms per list, independent of the number of hints. For more than
//! [`MAX_ENUMERATED_NODES`] nodes O(sets so far x hints) per list, and **bounded**: at most [`PAIRS`]
//! intersections per list. Beyond that only the widest sets and hints are used: the answer is still an
//! intersection of one hint of each list, but maybe not the best one. With few hints per list nothing is left
//! out.

use std::cmp::Reverse;

use super::{MAX_ENUMERATED_NODES, list::HintList};
use crate::nodes::{Mask, NodeIndex, each_pair};

/// Maximum number of intersections per list on machines with more than [`MAX_ENUMERATED_NODES`] nodes.
pub(super) const PAIRS: usize = 1 << 20;

/// Calls `visit` with every possible result, restricted to the machine; the empty set may be among them.
pub(super) fn visit(lists: &[HintList<'_>], nodes: &NodeIndex, visit: impl FnMut(Mask)) {
    // A list with only hints for any nodes changes no intersection; an empty list has none.
    if lists.iter().any(|list| list.hints().is_empty()) {
        return;
    }
    let naming = lists.iter().filter(|list| list.masks().next().is_some());
    if nodes.len() <= MAX_ENUMERATED_NODES {
        of_tables(naming, nodes, visit);
    } else {
        of_sets(naming, nodes.all()).into_iter().for_each(visit);
    }
}

fn of_tables<'l>(
    lists: impl Iterator<Item = &'l HintList<'l>>,
    nodes: &NodeIndex,
    mut visit: impl FnMut(Mask),
) {
    let size = 1_usize << nodes.len();
    let mut sets = vec![0_u32; size];
    sets[size - 1] = 1;
    let mut own = vec![0_u32; size];
    for (number, list) in lists.enumerate() {
        let table = if number == 0 { &mut sets } else { &mut own };
        table.fill(0);
        for mask in list.hints().iter().map(|hint| hint.mask.unwrap_or(Mask::MAX) & nodes.all()) {
            if let Some(slot) = usize::try_from(mask).ok().and_then(|index| table.get_mut(index)) {
                *slot = 1;
            }
        }
        // The empty set is never a candidate and stays zero; without it the counts fit 32 bits.
        table[0] = 0;
        if number > 0 {
            sum_over_supersets(&mut sets);
            sum_over_supersets(&mut own);
            sets.iter_mut().zip(&own).for_each(|(set, own)| *set = set.wrapping_mul(*own));
            take_sums_apart(&mut sets);
            for count in &mut sets {
                *count = u32::from(*count != 0);
            }
            sets[0] = 0;
        }
    }
    for (mask, count) in (0..).zip(sets) {
        if count != 0 {
            visit(mask);
        }
    }
}

fn sum_over_supersets(table: &mut [u32]) {
    each_pair(table, |without, with| *without = without.wrapping_add(*with));
}

fn take_sums_apart(table: &mut [u32]) {
    each_pair(table, |without, with| *without = without.wrapping_sub(*with));
}

fn of_sets<'l>(lists: impl Iterator<Item = &'l HintList<'l>>, all: Mask) -> Vec<Mask> {
    let cut = |list: &HintList<'_>| {
        let mut masks: Vec<Mask> = list
            .hints()
            .iter()
            .map(|hint| hint.mask.unwrap_or(Mask::MAX) & all)
            .filter(|m| *m != 0)
            .collect();
        tidy(&mut masks);
        masks
    };
    let mut lists: Vec<Vec<Mask>> = lists.map(cut).collect();
    lists.sort_by_key(Vec::len);
    lists.into_iter().fold(vec![all], |mut sets, mut own| {
        keep_widest(&mut own, PAIRS / 64);
        keep_widest(&mut sets, PAIRS / own.len().max(1));
        let mut common: Vec<Mask> =
            sets.iter().flat_map(|set| own.iter().map(move |mask| set & mask)).filter(|m| *m != 0).collect();
        tidy(&mut common);
        common
    })
}

fn tidy(masks: &mut Vec<Mask>) {
    masks.sort_unstable();
    masks.dedup();
}

fn keep_widest(masks: &mut Vec<Mask>, limit: usize) {
    if masks.len() > limit {
        masks.sort_by_key(|mask| (Reverse(mask.count_ones()), *mask));
        masks.truncate(limit);
    }
}

//! Lists masks: every set of nodes once, narrow ones first.
//!
//! Problem: a resource that lists its masks one by one has to check every set of nodes. Idea: sets in order
//! of width, and within a width in lexicographic order of their positions, so that the first set that would
//! suffice on an empty machine gives the width of the preferred ones.
//!
//! Cost: O(2^N) sets of N nodes, so a check must be very cheap: see [`super::table`]. The limit is [`MAX_ENUMERATED_NODES`]
//! nodes.

use super::{Mask, MaskHint};

/// Maximum number of nodes with listed masks by default; above it, offers are thresholds.
pub(crate) const FEW: usize = 8;

/// Maximum number of nodes with listed masks, for questions that thresholds do not answer.
pub(crate) const MAX_ENUMERATED_NODES: usize = 16;

/// Every non-empty set of the first `nodes` positions, by width, then lexicographically by position.
pub(crate) fn by_width(nodes: usize) -> impl Iterator<Item = Mask> {
    (1..=nodes).flat_map(move |width| of_width(nodes, width))
}

/// Every set of `width` of the first `nodes` positions, lexicographically by position.
///
/// With position 0 as the highest bit, lexicographic order is descending order of numbers. Their complements
/// ascend, and one arithmetic step gives the next greater number of equal width.
pub(super) fn of_width(nodes: usize, width: usize) -> impl Iterator<Item = Mask> {
    let nodes = nodes.min(63);
    let all: Mask = (1 << nodes) - 1;
    let absent: Mask = (1 << nodes.saturating_sub(width)) - 1;
    std::iter::successors(Some(absent), move |absent| next_of_width(*absent).filter(|next| next & !all == 0))
        .map(move |absent| (!absent & all).reverse_bits() >> (64 - nodes))
}

/// The next greater number with as many bits.
fn next_of_width(bits: Mask) -> Option<Mask> {
    let lowest = bits & bits.wrapping_neg();
    let carried = bits.checked_add(lowest).filter(|_| lowest != 0)?;
    Some(carried | (bits ^ carried) >> 2 >> lowest.trailing_zeros())
}

/// Hints for the sets that suffice, among those that would suffice on an empty machine; those as narrow as an
/// empty machine would allow are preferred. `does` is never true for a set that would not suffice.
pub(super) fn list(
    nodes: usize,
    would_do: impl Fn(Mask) -> bool,
    does: impl Fn(Mask) -> bool,
) -> Vec<MaskHint> {
    let mut width = None;
    let mut hints = Vec::new();
    for mask in by_width(nodes.min(MAX_ENUMERATED_NODES)) {
        if width.is_none() && would_do(mask) {
            width = Some(mask.count_ones());
        }
        if width.is_some() && does(mask) {
            hints.push(MaskHint { mask: Some(mask), preferred: width == Some(mask.count_ones()), score: 0 });
        }
    }
    hints
}

/// Positions of a mask, ascending.
pub(crate) fn positions(mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(mask), |rest| Some(rest & rest.wrapping_sub(1)))
        .take_while(|rest| *rest != 0)
        .map(|rest| rest.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_come_by_width_and_then_lexicographically() {
        let listed: Vec<Vec<usize>> = by_width(4).map(|mask| positions(mask).collect()).collect();
        let pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]].map(|pair| pair.to_vec());
        let triples = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]].map(|triple| triple.to_vec());
        let mut expected: Vec<Vec<usize>> = (0..4).map(|node| vec![node]).collect();
        expected.extend(pairs.into_iter().chain(triples));
        expected.push(vec![0, 1, 2, 3]);
        assert_eq!(listed, expected);
    }

    #[test]
    fn every_mask_comes_once() {
        for nodes in 0..=12 {
            let mut masks: Vec<Mask> = by_width(nodes).collect();
            assert!(masks.is_sorted_by_key(|mask| mask.count_ones()));
            masks.sort_unstable();
            assert!(masks.into_iter().eq(1..1 << nodes), "{nodes}");
        }
    }

    #[test]
    fn the_narrowest_that_would_do_is_preferred_even_if_it_does_not() {
        let hints = list(3, |_| true, |mask| mask & 0b110 == 0b110);
        let masks: Vec<_> = hints.iter().map(|hint| (hint.mask, hint.preferred)).collect();
        assert_eq!(masks, [(Some(0b110), false), (Some(0b111), false)]);
        assert!(list(3, |_| false, |_| false).is_empty());
        assert!(list(0, |_| true, |_| true).is_empty());
    }
}

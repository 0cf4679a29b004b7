//! Lists masks: every set of nodes once, narrow ones first.
//!
//! Problem: a resource that lists its masks one by one has to check every set of nodes. Idea: sets in order
//! of width, and within a width in lexicographic order of their positions, so that the first set that would
//! suffice on an empty machine gives the width of the preferred ones.
//!
//! Cost: O(2^N) sets of N nodes, so a check must be very cheap: see [`Table`](super::Table). The limit is
//! [`MAX_ENUMERATED_NODES`] nodes.

use super::Mask;

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
pub(crate) fn of_width(nodes: usize, width: usize) -> impl Iterator<Item = Mask> {
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
}

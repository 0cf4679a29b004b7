//! Thresholds: all sets of nodes that have enough.

use super::{Mask, MaskHint, positions};

/// All masks that satisfy every need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threshold {
    /// The needs, all of which must be satisfied.
    pub needs: Vec<Need>,
    /// Number of nodes of the narrowest sufficient mask on an empty machine: masks of this width are
    /// preferred.
    pub width: u32,
    /// Nodes that every mask must include.
    pub must: Mask,
}

/// A needed amount, and the amount on each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Available amount, by position of the node; nodes after the end have 0. More than [`Need::MOST`] counts
    /// as that.
    pub free: Vec<u64>,
    /// The needed amount.
    pub amount: u64,
}

impl Threshold {
    /// Are these nodes sufficient?
    pub fn suffices(&self, mask: Mask) -> bool {
        mask != 0 && mask & self.must == self.must && self.needs.iter().all(|need| need.is_met_by(mask))
    }

    /// Can this many nodes suffice at all?
    pub(crate) fn is_reached_by(&self, width: u32) -> bool {
        width >= self.must.count_ones() && self.needs.iter().all(|need| need.most_of(width) >= need.amount)
    }

    /// Are these nodes sufficient, and as few as on an empty machine?
    pub fn prefers(&self, mask: Mask) -> bool {
        mask.count_ones() == self.width && self.suffices(mask)
    }

    /// Equivalent list: every sufficient set of the first `nodes` nodes, in ascending order of the masks. Up
    /// to 2^nodes entries, so only for small machines; empty for more than 63 nodes.
    pub fn listed(&self, nodes: usize) -> Vec<MaskHint> {
        let end = u32::try_from(nodes).ok().and_then(|nodes| Mask::checked_shl(1, nodes)).unwrap_or(1);
        self.hints((1..end).filter(|mask| self.suffices(*mask)))
    }

    /// Those of the first `nodes` nodes that suffice alone.
    pub(crate) fn single_nodes(&self, nodes: usize) -> Vec<MaskHint> {
        self.hints((0..nodes).map(|position| 1 << position).filter(|mask| self.suffices(*mask)))
    }

    fn hints(&self, masks: impl Iterator<Item = Mask>) -> Vec<MaskHint> {
        let hint = |mask: Mask| {
            let preferred = mask.count_ones() == self.width;
            MaskHint { mask: Some(mask), preferred, score: 0 }
        };
        masks.map(hint).collect()
    }
}

impl Need {
    /// Maximum amount of one node, so that the sum over all nodes of a mask fits 64 bits.
    pub const MOST: u64 = u64::MAX / Mask::BITS as u64;

    /// Amount of the node at this position.
    pub fn at(&self, position: usize) -> u64 {
        self.free.get(position).map_or(0, |free| (*free).min(Self::MOST))
    }

    /// Sum over the `width` richest nodes.
    pub(crate) fn most_of(&self, width: u32) -> u64 {
        let mut free: Vec<u64> = (0..self.free.len()).map(|position| self.at(position)).collect();
        free.sort_unstable_by(|a, b| b.cmp(a));
        free.iter().take(width as usize).sum()
    }

    /// Do these nodes have enough together?
    pub(crate) fn is_met_by(&self, mask: Mask) -> bool {
        self.had(mask) >= self.amount
    }

    /// Sum over these nodes.
    pub fn had(&self, mask: Mask) -> u64 {
        positions(mask).map(|position| self.at(position)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(free: &[u64], amount: u64, must: Mask) -> Threshold {
        Threshold { needs: vec![Need { free: free.to_vec(), amount }], width: 1, must }
    }

    #[test]
    fn every_set_that_has_enough_is_listed() {
        let masks = |threshold: &Threshold, nodes| {
            threshold.listed(nodes).iter().map(|h| (h.mask.unwrap(), h.preferred)).collect::<Vec<_>>()
        };
        assert_eq!(
            masks(&threshold(&[2, 1, 1], 2, 0), 3),
            [(0b001, true), (0b011, false), (0b101, false), (0b110, false), (0b111, false)]
        );
        assert_eq!(
            masks(&threshold(&[2, 1, 1], 2, 0b100), 3),
            [(0b101, false), (0b110, false), (0b111, false)]
        );
        assert_eq!(masks(&threshold(&[2, 1, 1], 5, 0), 3), []);
        assert_eq!(masks(&threshold(&[2], 2, 0), 0), []);
        // Nothing is needed: every set except the empty one.
        assert_eq!(masks(&threshold(&[], 0, 0), 2), [(0b01, true), (0b10, true), (0b11, false)]);
    }

    #[test]
    fn amounts_do_not_wrap() {
        let need = Need { free: vec![u64::MAX; 64], amount: u64::MAX / 64 * 64 };
        assert!(need.is_met_by(Mask::MAX));
        assert!(!need.is_met_by(Mask::MAX >> 1));
    }
}

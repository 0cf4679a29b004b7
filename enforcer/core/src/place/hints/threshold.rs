//! What a threshold means: all sets of nodes that have enough.

use super::{Mask, MaskHint, masks::positions};

/// All masks that have enough of everything needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threshold {
    /// All of these must be had.
    pub needs: Vec<Need>,
    /// Nodes of the narrowest mask that would do on an empty machine: masks as narrow are preferred.
    pub width: u32,
    /// Nodes that every mask must have.
    pub must: Mask,
}

/// An amount, and what each node has of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What can be had, by position of the node; a node beyond its end has nothing. More than
    /// [`Need::MOST`] counts as that.
    pub free: Vec<u64>,
    /// What is needed in total.
    pub amount: u64,
}

impl Threshold {
    /// Would these nodes do?
    pub fn suffices(&self, mask: Mask) -> bool {
        mask != 0 && mask & self.must == self.must && self.needs.iter().all(|need| need.is_met_by(mask))
    }

    /// Can so many nodes do at all?
    pub fn is_reached_by(&self, width: u32) -> bool {
        width >= self.must.count_ones() && self.needs.iter().all(|need| need.most_of(width) >= need.amount)
    }

    /// Would these nodes do, and are they as few as on an empty machine?
    pub fn prefers(&self, mask: Mask) -> bool {
        mask.count_ones() == self.width && self.suffices(mask)
    }

    /// The same as a list: every set of the first `nodes` nodes that would do, as numbers ascending.
    /// There are up to 2^nodes of them, so for small machines only; of more than 63 nodes none.
    pub fn listed(&self, nodes: usize) -> Vec<MaskHint> {
        let end = u32::try_from(nodes).ok().and_then(|nodes| Mask::checked_shl(1, nodes)).unwrap_or(1);
        self.hints((1..end).filter(|mask| self.suffices(*mask)))
    }

    /// Those of the first `nodes` nodes that would do alone.
    pub fn single_nodes(&self, nodes: usize) -> Vec<MaskHint> {
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
    /// What one node can have at most, so that the sum over all nodes of a mask fits 64 bits.
    pub const MOST: u64 = u64::MAX / Mask::BITS as u64;

    /// What the node at this position has.
    pub fn at(&self, position: usize) -> u64 {
        self.free.get(position).map_or(0, |free| (*free).min(Self::MOST))
    }

    /// What the richest nodes have together, so many of them.
    pub fn most_of(&self, width: u32) -> u64 {
        let mut free: Vec<u64> = (0..self.free.len()).map(|position| self.at(position)).collect();
        free.sort_unstable_by(|a, b| b.cmp(a));
        free.iter().take(width as usize).sum()
    }

    /// Do these nodes have enough together?
    pub fn is_met_by(&self, mask: Mask) -> bool {
        self.had(mask) >= self.amount
    }

    /// What these nodes have together.
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
        // Nothing is needed: every set but the empty one.
        assert_eq!(masks(&threshold(&[], 0, 0), 2), [(0b01, true), (0b10, true), (0b11, false)]);
    }

    #[test]
    fn amounts_do_not_wrap() {
        let need = Need { free: vec![u64::MAX; 64], amount: u64::MAX / 64 * 64 };
        assert!(need.is_met_by(Mask::MAX));
        assert!(!need.is_met_by(Mask::MAX >> 1));
    }
}

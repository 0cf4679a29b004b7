//! What a threshold means: all sets of nodes that have enough.

use super::{Mask, MaskHint};

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
    /// What can be had, by position of the node; a node beyond its end has nothing.
    pub free: Vec<u64>,
    /// What is needed in total.
    pub amount: u64,
}

impl Threshold {
    /// Would these nodes do?
    pub fn suffices(&self, mask: Mask) -> bool {
        mask != 0 && mask & self.must == self.must && self.needs.iter().all(|need| need.is_met_by(mask))
    }

    /// The same as a list: every set of the first `nodes` nodes that would do, as numbers ascending.
    /// There are up to 2^nodes of them, so for small machines only.
    pub fn listed(&self, nodes: usize) -> Vec<MaskHint> {
        let sets = 1..=u32::try_from(nodes)
            .ok()
            .and_then(|n| (1 as Mask).checked_shl(n))
            .unwrap_or(0)
            .wrapping_sub(1);
        let hint =
            |mask: Mask| MaskHint { mask: Some(mask), preferred: mask.count_ones() == self.width, score: 0 };
        sets.filter(|&mask| self.suffices(mask)).map(hint).collect()
    }
}

impl Need {
    /// Do these nodes have enough together?
    pub fn is_met_by(&self, mask: Mask) -> bool {
        self.had(mask) >= self.amount
    }

    /// What these nodes have together.
    pub fn had(&self, mask: Mask) -> u64 {
        let had = self.free.iter().take(Mask::BITS as usize).enumerate();
        had.filter(|(position, _)| mask >> position & 1 == 1)
            .fold(0_u64, |sum, (_, free)| sum.saturating_add(*free))
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
        let need = Need { free: vec![u64::MAX, u64::MAX], amount: u64::MAX };
        assert!(need.is_met_by(0b11));
        assert!(!need.is_met_by(0b100));
    }
}

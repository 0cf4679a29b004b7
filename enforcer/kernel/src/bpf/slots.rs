//! Assigns rows of the kernel side's arrays to workloads.
//!
//! Rows are few, so those of ended workloads are reused; the lowest free one is taken, so that reads are
//! short. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Rows by owner, which is the id of the workload's own cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slots {
    of: BTreeMap<u64, u32>,
    free: BTreeSet<u32>,
}

impl Slots {
    /// So many rows, all free.
    pub(super) fn new(count: u32) -> Self {
        Self { of: BTreeMap::new(), free: (0..count).collect() }
    }

    /// Frees the rows of all other owners, and returns these rows.
    pub(super) fn retain(&mut self, owners: &BTreeSet<u64>) -> BTreeSet<u32> {
        let gone: BTreeSet<u32> =
            self.of.iter().filter(|(owner, _)| !owners.contains(owner)).map(|(_, slot)| *slot).collect();
        self.of.retain(|owner, _| owners.contains(owner));
        self.free.extend(&gone);
        gone
    }

    /// A row for an owner that has none; `None` when all are taken.
    pub(super) fn give(&mut self, owner: u64) -> Option<u32> {
        let slot = self.free.pop_first()?;
        self.of.insert(owner, slot);
        Some(slot)
    }

    /// The owner's row.
    pub(super) fn get(&self, owner: u64) -> Option<u32> {
        self.of.get(&owner).copied()
    }

    /// Owners and their rows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.of.iter().map(|(owner, slot)| (*owner, *slot))
    }

    /// The owner of each row.
    pub(super) fn owners(&self) -> BTreeMap<u32, u64> {
        self.iter().map(|(owner, slot)| (slot, owner)).collect()
    }

    /// One more than the highest row that is taken.
    pub(super) fn used(&self) -> u32 {
        self.of.values().max().map_or(0, |slot| slot + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_given_once_and_again_when_its_owner_is_gone() {
        let mut slots = Slots::new(2);
        assert_eq!([10, 20, 30].map(|owner| slots.give(owner)), [Some(0), Some(1), None]);
        assert_eq!((slots.get(20), slots.get(30), slots.used()), (Some(1), None, 2));
        assert_eq!(slots.retain(&[20].into()), [0].into());
        assert_eq!(slots.give(30), Some(0));
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(20, 1), (30, 0)]);
        assert_eq!(slots.retain(&[30].into()), [1].into());
        assert_eq!(slots.used(), 1);
    }
}

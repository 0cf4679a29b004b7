//! How near the nodes of a set are to one another.
//!
//! Invariant: the table is complete. With gaps counted as 0, a set with an unknown distance would be the
//! nearest one, so an incomplete table compares nothing.

use super::{Mask, masks::positions};

/// Distances between all nodes of an index, by position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeDistances<'a>(&'a [Vec<u32>]);

impl<'a> NodeDistances<'a> {
    /// Distances between this number of nodes; `None` unless the table has a value for each pair.
    pub(super) fn new(table: &'a [Vec<u32>], nodes: usize) -> Option<Self> {
        let is_complete = table.len() == nodes && table.iter().all(|row| row.len() == nodes);
        is_complete.then_some(Self(table))
    }

    /// Number of nodes.
    pub(crate) const fn len(self) -> usize {
        self.0.len()
    }

    /// Sum of the distances in both directions; of a node to itself once.
    pub(crate) fn pair(self, one: usize, other: usize) -> u64 {
        let at = |from: usize, to: usize| u64::from(self.0[from][to]);
        if one == other { at(one, one) } else { at(one, other) + at(other, one) }
    }

    /// Sum of the distances between all nodes of a set, including each to itself.
    pub(crate) fn spread(self, mask: Mask) -> u64 {
        let from = |from: usize| positions(mask).map(|to| u64::from(self.0[from][to])).sum::<u64>();
        positions(mask).map(from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_counts_every_ordered_pair() {
        let table = [vec![10, 20, 30], vec![21, 11, 40], vec![31, 41, 12]];
        let distances = NodeDistances::new(&table, 3).unwrap();
        assert_eq!((distances.pair(0, 1), distances.pair(1, 0), distances.pair(2, 2)), (41, 41, 12));
        for (mask, sum) in [(0, 0), (0b1, 10), (0b11, 62), (0b110, 104), (0b111, 216)] {
            assert_eq!(distances.spread(mask), sum, "{mask:b}");
        }
    }

    #[test]
    fn incomplete_table_is_none() {
        for table in [vec![], vec![vec![10, 20]], vec![vec![10, 20], vec![20]], vec![vec![10; 3]; 2]] {
            assert!(NodeDistances::new(&table, 2).is_none(), "{table:?}");
        }
    }
}

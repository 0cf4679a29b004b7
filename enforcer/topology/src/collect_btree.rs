//! Ordered maps and sets out of iterators in little code.
//!
//! Problem: `collect` sorts the elements of a `BTreeMap` or `BTreeSet` before it builds them, and the
//! compiler makes that sort again for each iterator: 3.5 kB each time. Idea: each element is inserted, by
//! code that all iterators over one type share.
//!
//! Invariant: the collection is that of `collect`.
//! Cost: some comparisons for each element more where the elements come in order, and no allocation to sort
//! them. What is built anew often, and is large, keeps `collect`.

use std::collections::{BTreeMap, BTreeSet};

/// A `BTreeMap` or `BTreeSet`.
pub trait BtreeCollection<Item>: Default {
    /// Adds an element; the latest of equal keys counts.
    fn put(&mut self, item: Item);
}

impl<K: Ord, V> BtreeCollection<(K, V)> for BTreeMap<K, V> {
    fn put(&mut self, (key, value): (K, V)) {
        self.insert(key, value);
    }
}

impl<K: Ord> BtreeCollection<K> for BTreeSet<K> {
    fn put(&mut self, key: K) {
        self.insert(key);
    }
}

/// Iterators that are collected into ordered maps and sets.
pub trait CollectBtree: Iterator + Sized {
    /// As `collect`.
    fn collect_btree<C: BtreeCollection<Self::Item>>(self) -> C {
        let mut all = C::default();
        self.for_each(|item| all.put(item));
        all
    }
}

impl<I: Iterator> CollectBtree for I {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn collection_is_that_of_collect(items in proptest::collection::vec((0_u8..30, any::<u8>()), 0..60)) {
            let map: BTreeMap<u8, u8> = items.iter().copied().collect_btree();
            prop_assert_eq!(map, items.iter().copied().collect::<BTreeMap<_, _>>());
            let set: BTreeSet<&(u8, u8)> = items.iter().collect_btree();
            prop_assert_eq!(set, items.iter().collect::<BTreeSet<_>>());
        }
    }
}

//! Stable sorting in little code.
//!
//! Problem: the compiler makes the sort of the standard library again for each type and each comparison, 4 kB
//! each time, which was a tenth of the program. Idea: short slices are sorted in place, and of long ones the
//! indices, by code that all types share; then the elements are swapped to their places. Only the swaps and
//! the comparison are made again.
//!
//! Invariant: the order is that of `sort`, `sort_by` and `sort_by_key` of the standard library.
//! Cost: a call for each comparison; for more than [`SHORT`] elements an allocation. What is sorted in a loop
//! that must be fast, and is long, keeps the sort of the standard library.

use std::cmp::Ordering;

/// Most elements that are sorted in place.
const SHORT: usize = 20;

/// Stable sorts of a slice.
pub trait CompactSort<T> {
    /// As `sort`.
    fn compact_sort(&mut self)
    where
        T: Ord;

    /// As `sort_by`.
    fn compact_sort_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// As `sort_by_key`.
    fn compact_sort_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> CompactSort<T> for [T] {
    fn compact_sort(&mut self)
    where
        T: Ord,
    {
        sort_with(self, &mut T::cmp);
    }

    fn compact_sort_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        sort_with(self, &mut compare);
    }

    fn compact_sort_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        sort_with(self, &mut |a, b| key(a).cmp(&key(b)));
    }
}

fn sort_with<T>(slice: &mut [T], compare: &mut dyn FnMut(&T, &T) -> Ordering) {
    if slice.len() <= SHORT {
        for end in 1..slice.len() {
            let mut at = end;
            while at > 0 && compare(&slice[at], &slice[at - 1]).is_lt() {
                slice.swap(at, at - 1);
                at -= 1;
            }
        }
        return;
    }
    let mut order = sorted_indices(slice.len(), &mut |a, b| compare(&slice[a], &slice[b]));
    for at in 0..slice.len() {
        let mut from = order[at];
        // An element in front has its place; what was there went where that one came from.
        while from < at {
            from = order[from];
        }
        order[at] = from;
        slice.swap(at, from);
    }
}

/// For each place the index of its element.
fn sorted_indices(length: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..length).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn order_is_that_of_the_standard_library(
            mut elements in proptest::collection::vec((0_u8..20, any::<u8>(), "[ab]{0,2}"), 0..90),
        ) {
            let (mut whole, mut by, mut by_key) = (elements.clone(), elements.clone(), elements.clone());
            whole.compact_sort();
            by.compact_sort_by(|a, b| b.2.cmp(&a.2));
            by_key.compact_sort_by_key(|element| element.0);
            let unsorted = elements.clone();
            elements.sort();
            prop_assert_eq!(&whole, &elements);
            elements.clone_from(&unsorted);
            elements.sort_by(|a, b| b.2.cmp(&a.2));
            prop_assert_eq!(&by, &elements);
            elements.clone_from(&unsorted);
            elements.sort_by_key(|element| element.0);
            prop_assert_eq!(&by_key, &elements);
        }
    }
}

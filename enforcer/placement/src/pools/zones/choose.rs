//! Selects the fewest bytes that suffice.
//!
//! Problem: move promises until `needed` bytes are freed, tier by tier, with as few bytes as possible. Idea:
//! the last necessary tier gives the minimum that suffices after all of the earlier ones; then the earlier
//! ones give the minimum that is still missing. For up to [`EXACT`] sizes in a tier, all subsets are tried;
//! for more, the better of two rules: the smallest size that suffices, or the largest sizes first without
//! superfluous ones.

/// Maximum number of sizes for trying all subsets.
const EXACT: usize = 12;

/// Positions of the selected sizes, counted over all tiers; `None` if all together do not suffice.
pub(super) fn least_bytes(tiers: &[Vec<u64>], needed: u64) -> Option<Vec<usize>> {
    let mut sum = 0u64;
    let mut starts = Vec::with_capacity(tiers.len());
    let mut position = 0;
    let mut last = None;
    for (index, tier) in tiers.iter().enumerate() {
        starts.push(position);
        position += tier.len();
        let all = tier.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
        if sum.saturating_add(all) >= needed {
            last = Some(index);
            break;
        }
        sum = sum.saturating_add(all);
    }
    let last = last?;
    let mut missing = needed;
    let mut chosen = Vec::new();
    for index in (0..=last).rev() {
        let before = tiers[..index].iter().flatten().fold(0u64, |sum, size| sum.saturating_add(*size));
        let here = subset(&tiers[index], missing.saturating_sub(before));
        missing = here.iter().fold(missing, |missing, &place| missing.saturating_sub(tiers[index][place]));
        chosen.extend(here.into_iter().map(|place| starts[index] + place));
    }
    chosen.sort_unstable();
    Some(chosen)
}

/// Positions of sizes with the smallest sum of at least `needed`; earlier ones in a tie.
fn subset(sizes: &[u64], needed: u64) -> Vec<usize> {
    if needed == 0 {
        return Vec::new();
    }
    if sizes.len() <= EXACT {
        let members = |set: u32| (0..sizes.len()).filter(move |place| set >> place & 1 == 1);
        let sum = |set| members(set).fold(0u64, |sum, place| sum.saturating_add(sizes[place]));
        let enough = (1u32..1 << sizes.len()).map(|set| (sum(set), set.count_ones(), set));
        let best = enough.filter(|(sum, ..)| *sum >= needed).min();
        return best.map(|(.., set)| members(set).collect()).unwrap_or_default();
    }
    let single = (0..sizes.len()).filter(|&place| sizes[place] >= needed).min_by_key(|&place| sizes[place]);
    let mut largest_first: Vec<usize> = (0..sizes.len()).collect();
    largest_first.sort_by_key(|&place| std::cmp::Reverse(sizes[place]));
    let (mut several, mut sum) = (Vec::new(), 0u64);
    for place in largest_first {
        if sum >= needed {
            break;
        }
        sum = sum.saturating_add(sizes[place]);
        several.push(place);
    }
    // Smallest last, so superfluous sizes are found from the end.
    for index in (0..several.len()).rev() {
        let without = sum.saturating_sub(sizes[several[index]]);
        if without >= needed {
            sum = without;
            several.remove(index);
        }
    }
    match single {
        Some(place) if sizes[place] <= sum => vec![place],
        _ => several,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_that_suffices_is_better_than_all_that_are_smaller() {
        assert_eq!(least_bytes(&[vec![1, 2, 8]], 8), Some(vec![2]));
        assert_eq!(least_bytes(&[vec![1, 2, 8]], 3), Some(vec![0, 1]));
        assert_eq!(least_bytes(&[vec![2, 2]], 2), Some(vec![0]));
        assert_eq!(least_bytes(&[vec![1], vec![4]], 3), Some(vec![1]));
        assert_eq!(least_bytes(&[vec![1], vec![4]], 5), Some(vec![0, 1]));
        assert_eq!(least_bytes(&[vec![1], vec![4]], 6), None);
        assert_eq!(least_bytes(&[], 1), None);
        let many = vec![3u64; 20];
        assert_eq!(least_bytes(&[many], 7).unwrap().len(), 3);
    }

    proptest! {
        #[test]
        fn what_is_chosen_suffices_and_nothing_of_it_is_superfluous(
            tiers in proptest::collection::vec(proptest::collection::vec(1u64..50, 0..16), 0..4),
            needed in 1u64..600,
        ) {
            let all: Vec<u64> = tiers.iter().flatten().copied().collect();
            match least_bytes(&tiers, needed) {
                Some(chosen) => {
                    let sum: u64 = chosen.iter().map(|&place| all[place]).sum();
                    prop_assert!(sum >= needed);
                    prop_assert!(chosen.iter().all(|&place| sum - all[place] < needed));
                }
                None => prop_assert!(all.iter().sum::<u64>() < needed),
            }
        }
    }
}

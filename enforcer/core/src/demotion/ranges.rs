//! Cold and hot address ranges of a process, from observations of its regions.
//!
//! Problem: observations are samples. A region is reported as a whole, its edges are no better known than its
//! size, and a huge page across an edge moves as a whole.
//!
//! Idea: a region is cold only if it was not touched for the whole idle time. A cold region next to one that
//! is not cold is left out, because the true edge may be anywhere in it. The rest is cut inwards to huge
//! pages.
//!
//! Cost: one sort of the regions. Invariant: no byte of a touched region is called cold.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::page_size::PageSize;

/// An observed region of an address space. Regions of one process do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressRegion {
    /// Its first byte.
    pub start: u64,
    /// End of the range, exclusive.
    pub end: u64,
    /// Percent of the observations that found it touched.
    pub touched_percent: u8,
    /// Time since it last changed its state.
    pub unchanged: Duration,
    /// True if its edges are those of a mapping, and not estimates.
    pub exact: bool,
}

/// Range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    /// Its first byte.
    pub start: u64,
    /// End of the range, exclusive.
    pub end: u64,
}

impl AddressRange {
    /// Size in bytes.
    pub fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A cold range with its idle time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdRange {
    /// The range.
    pub range: AddressRange,
    /// Least time since its last touch.
    pub idle: Duration,
}

impl AddressRegion {
    fn is_cold(&self, idle: Duration) -> bool {
        self.touched_percent == 0 && self.unchanged >= idle
    }
}

/// Ranges that were not touched for `idle`, coldest first, cut to huge pages of a kernel with pages of this
/// size: a huge page moves as a whole.
pub fn cold(regions: &[AddressRegion], idle: Duration, page: PageSize) -> Vec<ColdRange> {
    let huge = page.huge_page().max(1);
    let mut regions: Vec<&AddressRegion> =
        regions.iter().filter(|region| region.start < region.end).collect();
    regions.sort_unstable_by_key(|region| region.start);
    let mut found: Vec<ColdRange> = Vec::new();
    for (index, region) in regions.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| regions.get(before));
        let beside = [before.filter(|one| one.end >= region.start), regions.get(index + 1)];
        let uncertain = beside.into_iter().flatten().any(|one| one.start <= region.end && !one.is_cold(idle));
        if !region.is_cold(idle) || (uncertain && !region.exact) {
            continue;
        }
        match found.last_mut().filter(|last| last.range.end == region.start) {
            Some(last) => {
                last.range.end = region.end;
                last.idle = last.idle.min(region.unchanged);
            }
            None => found.push(ColdRange {
                range: AddressRange { start: region.start, end: region.end },
                idle: region.unchanged,
            }),
        }
    }
    for one in &mut found {
        one.range.start = one.range.start.checked_next_multiple_of(huge).unwrap_or(u64::MAX);
        one.range.end = one.range.end / huge * huge;
    }
    found.retain(|one| one.range.start < one.range.end);
    found.sort_by_key(|one| (std::cmp::Reverse(one.idle), one.range));
    found
}

/// Ranges that at least `percent` of the observations found touched, in order.
pub fn hot(regions: &[AddressRegion], percent: u8) -> Vec<AddressRange> {
    let mut found: Vec<AddressRange> = regions
        .iter()
        .filter(|region| region.start < region.end && region.touched_percent >= percent.max(1))
        .map(|region| AddressRange { start: region.start, end: region.end })
        .collect();
    found.sort_unstable();
    found.dedup_by(|next, last| {
        let joined = next.start <= last.end;
        if joined {
            last.end = last.end.max(next.end);
        }
        joined
    });
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDLE: Duration = Duration::from_secs(5);
    /// Of the kernels of x86-64.
    const HUGE: u64 = 2 << 20;

    fn cold(regions: &[AddressRegion], idle: Duration) -> Vec<ColdRange> {
        super::cold(regions, idle, PageSize::SMALLEST)
    }

    fn region(start: u64, end: u64, touched_percent: u8, seconds: u64) -> AddressRegion {
        AddressRegion {
            start: start * HUGE,
            end: end * HUGE,
            touched_percent,
            unchanged: Duration::from_secs(seconds),
            exact: false,
        }
    }

    fn cold_of(regions: &[AddressRegion]) -> Vec<(u64, u64)> {
        cold(regions, IDLE).iter().map(|one| (one.range.start / HUGE, one.range.end / HUGE)).collect()
    }

    #[test]
    fn untouched_regions_are_cold_except_at_their_edges() {
        for (regions, expected) in [
            (vec![region(0, 10, 0, 5)], vec![(0, 10)]),
            (vec![region(0, 10, 0, 4)], vec![]),
            (vec![region(0, 10, 20, 60)], vec![]),
            // The region beside a hot one stays, on either side; one that is apart does not suffer.
            (
                vec![
                    region(0, 10, 0, 9),
                    region(10, 12, 0, 9),
                    region(12, 20, 100, 9),
                    region(20, 24, 0, 9),
                    region(24, 40, 0, 9),
                    region(50, 60, 0, 9),
                ],
                vec![(0, 10), (24, 40), (50, 60)],
            ),
            // Nor is one that turned cold lately a good neighbour.
            (vec![region(0, 10, 0, 9), region(10, 20, 0, 1)], vec![]),
            // The coldest first.
            (vec![region(0, 4, 0, 6), region(8, 9, 0, 8)], vec![(8, 9), (0, 4)]),
        ] {
            assert_eq!(cold_of(&regions), expected, "{regions:?}");
        }
    }

    #[test]
    fn a_mapping_has_no_uncertain_edge() {
        let regions = [AddressRegion { exact: true, ..region(0, 4, 0, 9) }, region(4, 8, 100, 9)];
        assert_eq!(cold_of(&regions), [(0, 4)]);
    }

    #[test]
    fn a_huge_page_across_an_edge_is_not_cold() {
        let half = HUGE / 2;
        let regions = [AddressRegion { start: half, end: 3 * HUGE + half, ..region(0, 1, 0, 9) }];
        assert_eq!(cold_of(&regions), [(1, 3)]);
        let regions = [AddressRegion { start: half, end: HUGE + half, ..region(0, 1, 0, 9) }];
        assert!(cold(&regions, IDLE).is_empty());
        let regions = [region(8, 64, 0, 9)];
        let large = super::cold(&regions, IDLE, PageSize::new(16 << 10));
        let range = AddressRange { start: 16 * HUGE, end: 64 * HUGE };
        assert_eq!(large, [ColdRange { range, idle: Duration::from_secs(9) }], "32 MiB each");
        assert!(super::cold(&regions, IDLE, PageSize::new(64 << 10)).is_empty(), "512 MiB each");
    }

    #[test]
    fn hot_ranges_are_joined() {
        let regions = [region(4, 6, 60, 1), region(0, 2, 40, 1), region(2, 4, 100, 1), region(8, 9, 39, 1)];
        assert_eq!(hot(&regions, 40), [AddressRange { start: 0, end: 6 * HUGE }]);
        assert!(hot(&[region(0, 1, 0, 1)], 0).is_empty(), "an untouched region is not hot");
    }

    fn regions() -> impl Strategy<Value = Vec<AddressRegion>> {
        let one = (0u64..3 * HUGE, 1u64..8 * HUGE, prop_oneof![Just(0u8), 0u8..=100], 0u64..10);
        prop::collection::vec(one, 0..20).prop_map(|parts| {
            let mut at = 0;
            let regions = parts.into_iter().map(|(gap, size, touched_percent, seconds)| {
                // Half of them follow one another.
                let start = at + if gap < HUGE { 0 } else { gap };
                at = start + size;
                let unchanged = Duration::from_secs(seconds);
                AddressRegion { start, end: at, touched_percent, unchanged, exact: seconds % 2 == 0 }
            });
            regions.collect()
        })
    }

    proptest! {
        #[test]
        fn no_byte_of_a_region_that_was_touched_is_cold(regions in regions()) {
            for one in cold(&regions, IDLE) {
                prop_assert!(one.range.start < one.range.end);
                prop_assert!(one.range.start % HUGE == 0 && one.range.end % HUGE == 0);
                for region in regions.iter().filter(|region| !region.is_cold(IDLE)) {
                    prop_assert!(region.end <= one.range.start || one.range.end <= region.start);
                }
            }
        }

        #[test]
        fn nothing_is_cold_twice_nor_cold_and_hot(regions in regions()) {
            let cold = cold(&regions, IDLE);
            let mut all: Vec<AddressRange> = cold.iter().map(|one| one.range).chain(hot(&regions, 1)).collect();
            all.sort_unstable();
            prop_assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:?}");
        }

        #[test]
        fn any_numbers_will_do(parts in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u8>()), 0..8)) {
            let regions: Vec<AddressRegion> = parts
                .into_iter()
                .map(|(start, end, touched_percent)| {
                    AddressRegion { start, end, touched_percent, unchanged: IDLE, exact: false }
                })
                .collect();
            let _ = (cold(&regions, IDLE), hot(&regions, 1));
        }
    }
}

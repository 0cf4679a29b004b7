//! Size of a page: what turns the pages that the kernel counts into bytes.
//!
//! Kernels of x86-64 have pages of 4 KiB, those of arm64 4, 16 or 64. A running kernel is asked; a copy of
//! its files tells by two counts of the same memory, one in pages and one in bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PageSize(u64);

impl Default for PageSize {
    /// The smallest.
    fn default() -> Self {
        Self::SMALLEST
    }
}

impl PageSize {
    /// That of every kernel which does not say otherwise.
    pub const SMALLEST: Self = Self(4 << 10);

    /// All that Linux has on the 64-bit machines of today.
    const KNOWN: [Self; 3] = [Self::SMALLEST, Self(16 << 10), Self(64 << 10)];

    /// That of a running kernel, as it gives it.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size with which `pages` are about `bytes`; `None` if there is none.
    pub fn of_memory(pages: u64, bytes: u64) -> Option<Self> {
        // The counts may be of two moments; sizes differ by a factor of four.
        let is_near = |size: &Self| {
            let found = size.bytes(pages);
            found > 0 && found / 2 < bytes && bytes < found.saturating_mul(2)
        };
        Self::KNOWN.into_iter().find(is_near)
    }

    /// Bytes of so many pages; the largest number there is if that is too small.
    pub const fn bytes(self, pages: u64) -> u64 {
        pages.saturating_mul(self.0)
    }

    /// Bytes of a transparent huge page, as `hpage_pmd_size` has them: what one page of the kernel's tables
    /// maps, whose entries have 8 bytes. 2 MiB, 32 MiB or 512 MiB.
    pub const fn huge_page(self) -> u64 {
        (self.0 / 8).saturating_mul(self.0)
    }

    /// Is it the smallest?
    pub fn is_smallest(&self) -> bool {
        *self == Self::SMALLEST
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select};

    use super::*;

    #[test]
    fn a_huge_page_grows_by_the_square_of_a_page() {
        let sizes = PageSize::KNOWN.map(|size| size.huge_page() >> 20);
        assert_eq!(sizes, [2, 32, 512], "MiB with 4, 16 and 64 KiB");
    }

    #[test]
    fn counts_that_fit_no_size_tell_none() {
        for (pages, bytes) in [(0, 0), (0, 4096), (1, 0), (1, 1 << 30), (1 << 20, 4096), (u64::MAX, 4096)] {
            assert_eq!(PageSize::of_memory(pages, bytes), None, "{pages} pages, {bytes} bytes");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_pages_times_the_size_and_tell_the_size_again(
            size in select(PageSize::KNOWN.to_vec()),
            pages in 1_u64..1 << 40,
            percent in 60_u64..160,
        ) {
            let bytes = size.bytes(pages);
            prop_assert_eq!(bytes / pages, size.0);
            prop_assert_eq!(bytes % size.0, 0);
            let other_moment = u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap();
            prop_assert_eq!(PageSize::of_memory(pages, other_moment), Some(size));
        }
    }
}

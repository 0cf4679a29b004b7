//! Available memory of a NUMA node, by a single formula.
//!
//! Problem: "free memory on a node" had four meanings, and advice named nodes that the daemon itself would
//! refuse. Free memory alone says little: below the low watermark of its zones the kernel does not hand it
//! out without reclaim (`get_page_from_freelist`, `mm/page_alloc.c`), and a node that is full of page cache
//! has next to none free but is not short. Idea: the kernel's own `MemAvailable` (`si_mem_available` in
//! `mm/show_mem.c`), node by node. *Headroom* is free memory above the low watermarks; *available* adds what
//! reclaim finds in files and slabs, of which half, at most the watermark, is taken to stay.
//!
//! Invariant: shared memory and tmpfs are on the anonymous lists of the kernel, have to be swapped out, and
//! are in neither figure. Placement, remedies, rebalance, widening, relief and demotion all use this formula.

/// One node at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeRoom {
    /// Unused pages.
    pub free: u64,
    /// Low watermarks of all its zones.
    pub low: u64,
    /// Pages that the kernel manages in all its zones.
    pub managed: u64,
    /// Page cache on the file lists, active and inactive; without tmpfs.
    pub file: u64,
    /// Slabs that can be reclaimed.
    pub slab: u64,
}

impl NodeRoom {
    /// Free memory without reclaim.
    pub fn headroom(&self) -> u64 {
        self.free.saturating_sub(self.low)
    }

    /// Available memory, with reclaim of page cache and slabs.
    pub fn available(&self) -> u64 {
        let found = |bytes: u64| bytes - (bytes / 2).min(self.low);
        self.headroom().saturating_add(found(self.file)).saturating_add(found(self.slab))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_below_the_watermark_is_no_headroom_and_page_cache_is_available() {
        let room = NodeRoom { free: 100, low: 30, managed: 1000, file: 50, slab: 11 };
        // Of the files 25 stay, of the slabs 5.
        assert_eq!((room.headroom(), room.available()), (70, 70 + 25 + 6));
        let short = NodeRoom { free: 20, ..room };
        assert_eq!((short.headroom(), short.available()), (0, 31));
        let full_of_cache = NodeRoom { free: 40, low: 30, managed: 1000, file: 900, slab: 0 };
        assert_eq!((full_of_cache.headroom(), full_of_cache.available()), (10, 880));
        let absurd = NodeRoom { free: u64::MAX, low: 0, managed: 0, file: u64::MAX, slab: u64::MAX };
        assert_eq!(absurd.available(), u64::MAX);
    }
}

//! What a NUMA node has left.
//!
//! Problem: free memory alone says little. Below the low watermark of its zones the kernel does not hand it
//! out without reclaim (`get_page_from_freelist`, `mm/page_alloc.c`), and a node that is full of page cache
//! has next to none free but is not short. Idea: *headroom* is what is free above the low watermarks, the
//! *soft reserve* is half of what reclaim could take from files and slabs, and *room* is both.
//!
//! Half, because files may be dirty, mapped or hot, and because it takes time to reclaim them. tmpfs is on
//! the anonymous lists and is in neither.

/// One node at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeRoom {
    /// Pages that nobody uses.
    pub free: u64,
    /// Low watermarks of all its zones.
    pub low: u64,
    /// Pages that the kernel manages in all its zones.
    pub managed: u64,
    /// Page cache on its lists, active and inactive.
    pub file: u64,
    /// Slabs that can be reclaimed.
    pub slab: u64,
}

impl NodeRoom {
    /// Free memory that can be had without reclaim.
    pub fn headroom(&self) -> u64 {
        self.free.saturating_sub(self.low)
    }

    /// What reclaim can be expected to find.
    pub fn soft(&self) -> u64 {
        self.file.saturating_add(self.slab) / 2
    }

    /// Both.
    pub fn room(&self) -> u64 {
        self.headroom().saturating_add(self.soft())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_the_watermark_is_no_headroom() {
        let room = NodeRoom { free: 100, low: 30, managed: 1000, file: 50, slab: 11 };
        assert_eq!((room.headroom(), room.soft(), room.room()), (70, 30, 100));
        let short = NodeRoom { free: 20, ..room };
        assert_eq!((short.headroom(), short.room()), (0, 30));
        let absurd = NodeRoom { free: u64::MAX, low: 0, managed: 0, file: u64::MAX, slab: u64::MAX };
        assert_eq!(absurd.room(), u64::MAX);
    }
}

//! Counters of rare events: a hash by workload, kind and detail instead of arrays with a column for each.
//!
//! A workload has a handful of the dozens of possible counters. The kind defines the two numbers of a
//! [`TallyCounts`].

/// Workload and kind of a counter.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TallyKey {
    /// Slot of the workload, [`ELSEWHERE`] or [`OWN`].
    pub slot: u32,
    /// One of [`what`].
    pub what: u16,
    /// Detail, by kind.
    pub detail: u16,
}

/// Counts or amounts.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TallyCounts {
    /// Count; for [`what::PAGES`] the pages that were moved.
    pub first: u64,
    /// For [`what::PAGES`] the pages that could not be moved; else 0.
    pub second: u64,
}

/// Slot of threads in unwatched cgroups, and of the kernel's own.
pub const ELSEWHERE: u32 = u32::MAX;
/// Slot of the daemon.
pub const OWN: u32 = u32::MAX - 1;

/// Kinds of counters.
pub mod what {
    /// Pages that were moved between nodes or within one, by [`super::reason`].
    pub const PAGES: u16 = 1;
    /// Actions of the kernel's balancer on tasks, by [`super::step`].
    pub const BALANCER: u16 = 2;
    /// Scans that the kernel's balancer skipped, by [`super::skip`].
    pub const SKIPS: u16 = 3;
    /// Files of its cpuset that other programs wrote, by [`crate::change::file`].
    pub const CPUSET_WRITES: u16 = 4;
    /// Memory policies of threads, by mode.
    pub const TASK_POLICIES: u16 = 5;
    /// Memory policies of ranges of addresses, by mode.
    pub const RANGE_POLICIES: u16 = 6;
}

/// Reasons for page moves: classes of `enum migrate_reason`, which has different values in different kernels.
pub mod reason {
    /// Any other: failing or removed memory, and contiguous allocations.
    pub const OTHER: u8 = 0;
    /// `move_pages(2)`, `migrate_pages(2)`, or a new `cpuset.mems`.
    pub const SYSCALL: u8 = 1;
    /// `mbind(2)` with `MPOL_MF_MOVE`.
    pub const MEMPOLICY: u8 = 2;
    /// NUMA balancing.
    pub const BALANCING: u8 = 3;
    /// Reclaim that moves cold pages to slower memory.
    pub const DEMOTION: u8 = 4;
    /// DAMON.
    pub const DAMON: u8 = 5;
    /// Compaction, which stays on the node.
    pub const COMPACTION: u8 = 6;
}

/// Actions of the balancer on a task.
pub mod step {
    /// It is moved to the node of its memory.
    pub const MOVED: u16 = 0;
    /// The move failed.
    pub const STUCK: u16 = 1;
    /// It is exchanged for another.
    pub const SWAPPED: u16 = 2;
}

/// Reasons why the balancer skips a scan.
pub mod skip {
    /// `cpuset.mems` has one node.
    pub const ONE_NODE: u16 = 0;
    /// The mapping's memory policy or kind is not scanned.
    pub const UNSUITABLE: u16 = 1;
    /// The mapping is skipped for now.
    pub const PASSED: u16 = 2;
}

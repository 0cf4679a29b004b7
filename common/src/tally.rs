//! Counters of what is rare: a hash by workload, kind and detail instead of arrays with a column for each.
//!
//! A workload has a handful of these, of dozens that there could be. What the two numbers of a [`Tally`]
//! mean is told by the kind.

/// What is counted, and for whom.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TallyKey {
    /// Slot of the workload, [`ELSEWHERE`] or [`OWN`].
    pub slot: u32,
    /// One of [`what`].
    pub what: u16,
    /// By kind.
    pub detail: u16,
}

/// How often, or how much.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Times; of [`what::PAGES`] pages that were moved.
    pub first: u64,
    /// Of [`what::PAGES`] pages that could not be moved; else 0.
    pub second: u64,
}

/// Done by threads of cgroups that are not watched, and by the kernel's own.
pub const ELSEWHERE: u32 = u32::MAX;
/// Done by the daemon.
pub const OWN: u32 = u32::MAX - 1;

/// Kinds of counters.
pub mod what {
    /// Pages that were moved between nodes or within one, by [`super::reason`].
    pub const PAGES: u16 = 1;
    /// What the kernel's balancer did with tasks, by [`super::step`].
    pub const BALANCER: u16 = 2;
    /// What the kernel's balancer did not look at, by [`super::skip`].
    pub const SKIPS: u16 = 3;
    /// Files of its cpuset that others than the daemon wrote, by [`crate::change::file`].
    pub const CPUSET_WRITES: u16 = 4;
    /// Memory policies of threads, by mode.
    pub const TASK_POLICIES: u16 = 5;
    /// Memory policies of ranges of addresses, by mode.
    pub const RANGE_POLICIES: u16 = 6;
}

/// Why pages are moved: classes of `enum migrate_reason`, whose values differ between kernels.
pub mod reason {
    /// Any other: memory that fails or goes away, and contiguous allocations.
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

/// What the balancer does with a task.
pub mod step {
    /// It is moved to the node of its memory.
    pub const MOVED: u16 = 0;
    /// It should be moved there and cannot be.
    pub const STUCK: u16 = 1;
    /// It is exchanged for another.
    pub const SWAPPED: u16 = 2;
}

/// Why the balancer does not look where a task's memory is.
pub mod skip {
    /// `cpuset.mems` is one node.
    pub const ONE_NODE: u16 = 0;
    /// The memory policy or the kind of a mapping forbids it.
    pub const UNSUITABLE: u16 = 1;
    /// A mapping is passed over for now.
    pub const PASSED: u16 = 2;
}

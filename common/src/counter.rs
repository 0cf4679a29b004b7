//! Values of the counter maps, one copy per CPU; the daemon adds the copies up.

/// Pages of NUMA hinting faults (`task_numa_fault` in `kernel/sched/fair.c`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HintFaultPages {
    /// On the node of the faulting CPU.
    pub local: u64,
    /// On another node.
    pub remote: u64,
    /// Moved by the fault.
    pub migrated: u64,
    /// Could not be moved.
    pub migrate_failed: u64,
}

/// Events that were seen and not counted, by reason: the indices of the map `DROPS`.
pub mod drop {
    /// The placement map was full.
    pub const PLACEMENTS: u32 = 0;
    /// The run-time map was full.
    pub const RUN_TICKS: u32 = 1;
    /// The hinting-fault map was full.
    pub const HINT_FAULTS: u32 = 2;
    /// The CPU has no node in the table: it came online after the programs were loaded, or its
    /// number is too large.
    pub const UNKNOWN_CPU: u32 = 3;
    /// The cgroup of the task could not be read.
    pub const UNKNOWN_CGROUP: u32 = 4;
    /// How many reasons there are.
    pub const REASONS: u32 = 5;
}

/// Flags of `task_numa_fault` (`include/linux/sched/numa_balancing.h`).
pub mod fault_flag {
    /// `TNF_MIGRATED`
    pub const MIGRATED: u32 = 0x01;
    /// `TNF_FAULT_LOCAL`
    pub const LOCAL: u32 = 0x08;
    /// `TNF_MIGRATE_FAIL`
    pub const MIGRATE_FAIL: u32 = 0x10;
}

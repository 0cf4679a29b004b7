//! Values of the counter maps, one copy per CPU; the daemon adds the copies up.

/// Tasks that were put on a CPU of another node.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moves {
    /// Moved there (`sched_migrate_task`).
    pub migrated: u64,
    /// Started there, away from their parent (`sched_wakeup_new`).
    pub started: u64,
    /// Of both, tasks put on a node that their cgroup may not use.
    pub misplaced: u64,
}

/// Time on the CPUs of one node.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTimeCounts {
    /// Nanoseconds.
    pub ns: u64,
    /// Nanoseconds of cgroups that may not use the node.
    pub misplaced_ns: u64,
    /// Observations behind it: clock ticks or context switches.
    pub samples: u64,
}

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

/// Accesses to memory, by hardware counters. Each field belongs to one program: both may run in an interrupt
/// of the other.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Accesses to the CPU's node, or to all nodes, depending on the available event.
    pub near: u64,
    /// Accesses to other nodes.
    pub remote: u64,
}

/// Events of a workload from one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Time of its last event, in ticks of the kernel; 0 for never.
    pub at: u64,
    /// Events that were not sent because the last one was recent; no loss, the counters have them.
    pub limited: u64,
}

/// Events in no counter or ring, by reason: the indices of the map `DROPS`.
pub mod drop {
    /// The map of moves was full.
    pub const MOVES: u32 = 0;
    /// A new cgroup could not inherit its parent's entry.
    pub const MANAGED: u32 = 1;
    /// The CPU has no node in the table: it came online after the programs were loaded, or its
    /// number is too large.
    pub const UNKNOWN_CPU: u32 = 2;
    /// The cgroup of the task could not be read.
    pub const UNKNOWN_CGROUP: u32 = 3;
    /// The ring of events was full.
    pub const EVENTS: u32 = 4;
    /// The ring of pressure events was full.
    pub const PRESSURE: u32 = 5;
    /// A recent pressure event of the same node and kind was sent.
    pub const PRESSURE_LIMITED: u32 = 6;
    /// The map of tallies was full.
    pub const TALLIES: u32 = 7;
    /// The ring of events had no room for a change.
    pub const CHANGES: u32 = 8;
    /// A similar change lies in the ring unread; no loss, because the reader sees both.
    pub const CHANGES_UNREAD: u32 = 9;
    /// Number of reasons.
    pub const REASONS: u32 = 10;
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

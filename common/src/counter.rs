//! Values of the counter maps, one copy per CPU; the daemon adds the copies up.

/// Tasks that came to a CPU of another node.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moves {
    /// Moved there (`sched_migrate_task`).
    pub migrated: u64,
    /// Started there, away from their parent (`sched_wakeup_new`).
    pub started: u64,
    /// Either of both, to a node on which their cgroup is not allowed.
    pub misplaced: u64,
}

/// Time on the CPUs of one node.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Nanoseconds.
    pub ns: u64,
    /// Those of cgroups that are not allowed on the node.
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

/// Accesses to memory, as hardware counters tell them. Each field belongs to one program: both may run in
/// an interrupt of the other.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accesses {
    /// To the node of the CPU, or to all nodes, by the event that was found.
    pub near: u64,
    /// To other nodes.
    pub remote: u64,
}

/// What a workload told from one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// When its last event was sent, in ticks of the kernel; 0 for never.
    pub at: u64,
    /// Events that were not sent because that was a moment ago; no loss, the counters have them.
    pub limited: u64,
}

/// Events that were seen and are in no counter or ring, by reason: the indices of the map `DROPS`.
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
    /// A node told a pressure event of the kind a moment ago.
    pub const PRESSURE_LIMITED: u32 = 6;
    /// The map of tallies was full.
    pub const TALLIES: u32 = 7;
    /// The ring of events had no room for a change.
    pub const CHANGES: u32 = 8;
    /// A change like one that lies in the ring unread; no loss, whoever reads that looks after both.
    pub const CHANGES_UNREAD: u32 = 9;
    /// How many reasons there are.
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

//! Single events that the kernel side sends through a ring buffer: rare ones that the daemon may act on.
//!
//! Counters have all of them as well; a lost event is a lost detail, never a lost count.

/// An event of a task.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventRecord {
    /// Monotonic time in ns (`bpf_ktime_get_ns`).
    pub time_ns: u64,
    /// Inode number of the cgroup's directory.
    pub cgroup: u64,
    /// Thread of the event; 0 if it is not about one thread.
    pub tid: u32,
    /// Slot of the workload, [`NO_SLOT`] where the cgroup is not watched.
    pub slot: u32,
    /// One of [`kind`].
    pub kind: u16,
    /// Index of the source node, for kinds that have one.
    pub src: u16,
    /// Index of the present node, for kinds that have one.
    pub dst: u16,
    /// Detail, by kind.
    pub detail: u16,
}

/// The cgroup of an event is not watched.
pub const NO_SLOT: u32 = u32::MAX;

/// Kinds of events.
pub mod kind {
    /// A task was moved to a node that its cgroup may not use.
    pub const MIGRATED: u16 = 1;
    /// A new task was placed on such a node.
    pub const STARTED: u16 = 2;
    /// A file of the cgroup's cpuset was written: a [`crate::change::ChangeRecord`].
    pub const CPUSET_WRITTEN: u16 = 3;
    /// A thread of the cgroup set a memory policy: a [`crate::change::ChangeRecord`].
    pub const POLICY_SET: u16 = 4;
}

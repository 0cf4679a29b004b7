//! Events that the kernel side sends at once, through a small ring of its own that wakes its reader: a NUMA
//! node runs out of memory, and the OOM killer may follow within some ten milliseconds.

/// Short memory, or an OOM kill.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureRecord {
    /// Monotonic time in ns (`bpf_ktime_get_ns`).
    pub time_ns: u64,
    /// Inode number of the directory of the cgroup that requested memory.
    pub cgroup: u64,
    /// Thread that requested it; for [`kind::VICTIM`] the killed one.
    pub tid: u32,
    /// Id of the short node; for [`kind::DIRECT_RECLAIM`] and [`kind::VICTIM`], which have none, the node of
    /// the CPU.
    pub node: u32,
    /// One of [`kind`].
    pub kind: u16,
    /// Requested pages, as a power of two; 0 for [`kind::VICTIM`].
    pub order: u16,
    /// `enum oom_constraint` of [`kind::VICTIM`]; [`NO_CONSTRAINT`] if unknown.
    pub constraint: u32,
}

/// The bound of the allocation is unknown.
pub const NO_CONSTRAINT: u32 = u32::MAX;

/// Kinds of events, in the order in which they usually come.
pub mod kind {
    /// The node's kswapd was woken.
    pub const KSWAPD_WOKEN: u16 = 0;
    /// A task reclaims memory before it gets some.
    pub const DIRECT_RECLAIM: u16 = 1;
    /// That reclaim freed too little and is repeated.
    pub const RECLAIM_RETRY: u16 = 2;
    /// The OOM killer has chosen a task.
    pub const VICTIM: u16 = 3;
    /// Number of kinds.
    pub const KINDS: u32 = 4;
}

/// Words of an OOM kill in progress: there is one at a time, the kernel holds `oom_lock`.
pub mod oom {
    /// Address of its `struct oom_control`.
    pub const CONTROL: u32 = 0;
    /// `bpf_get_current_pid_tgid` of the thread in it.
    pub const THREAD: u32 = 1;
    /// Number of words.
    pub const WORDS: u32 = 2;
}

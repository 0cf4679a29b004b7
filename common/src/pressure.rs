//! What the kernel side tells at once, through a small ring of its own that wakes its reader: a NUMA node
//! runs out of memory, and for what comes next there are some ten milliseconds.

/// Memory that got short, or that somebody was killed for.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureEvent {
    /// Monotonic time in ns (`bpf_ktime_get_ns`).
    pub time_ns: u64,
    /// Inode number of the directory of the cgroup that wanted memory.
    pub cgroup: u64,
    /// Thread that wanted it; of [`kind::VICTIM`] the one that is killed.
    pub tid: u32,
    /// Id of the node that is short; of [`kind::DIRECT_RECLAIM`] and [`kind::VICTIM`], which have none, that
    /// of the CPU.
    pub node: u32,
    /// One of [`kind`].
    pub kind: u16,
    /// Pages that were wanted, as a power of two; 0 for [`kind::VICTIM`].
    pub order: u16,
    /// `enum oom_constraint` of [`kind::VICTIM`]; [`NO_CONSTRAINT`] where it is not known.
    pub constraint: u32,
}

/// It is not known what bounded the allocation.
pub const NO_CONSTRAINT: u32 = u32::MAX;

/// Kinds of events, in the order in which they usually come.
pub mod kind {
    /// The node's kswapd was woken.
    pub const KSWAPD_WOKEN: u16 = 0;
    /// Somebody has to free memory before getting some.
    pub const DIRECT_RECLAIM: u16 = 1;
    /// That freed too little; it is tried once more.
    pub const RECLAIM_RETRY: u16 = 2;
    /// The OOM killer has chosen.
    pub const VICTIM: u16 = 3;
    /// How many kinds there are.
    pub const KINDS: u32 = 4;
}

/// Words about an OOM kill that is under way: there is one at a time, the kernel holds `oom_lock`.
pub mod oom {
    /// Address of its `struct oom_control`.
    pub const CONTROL: u32 = 0;
    /// `bpf_get_current_pid_tgid` of who is in it.
    pub const THREAD: u32 = 1;
    /// How many words there are.
    pub const WORDS: u32 = 2;
}

//! Entry of a cgroup that the kernel side watches.
//!
//! The daemon writes an entry per cgroup of a workload; a cgroup that is made below inherits its
//! parent's without the daemon, and one that is removed loses its own at once. Cgroups without an entry
//! cost one look-up and are counted nowhere.

use crate::limit::NODE_WORDS;

/// One watched cgroup: value of the map `MANAGED`, keyed by the inode number of its directory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagedCgroup {
    /// Slot of its workload: row of the counter arrays.
    pub slot: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Nodes that it may use, bit n of word n / 64 for the node with index n; run time on others is
    /// misplaced.
    pub allowed: [u64; NODE_WORDS],
}

impl ManagedCgroup {
    /// An entry that finds nothing misplaced.
    pub const fn anywhere(slot: u32) -> Self {
        Self { slot, flags: 0, allowed: [u64::MAX; NODE_WORDS] }
    }
}

/// Flags of a watched cgroup.
pub mod flag {
    /// Cgroups created below it are not watched.
    pub const NO_HEIRS: u32 = 1 << 0;
}

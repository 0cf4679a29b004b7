//! Somebody changed where a workload may run or have its memory: told one by one, with who it was.
//!
//! In the ring of events, as a longer record whose beginning is an [`Event`]. At most one of a workload and
//! kind lies in the ring unread: what comes meanwhile is seen by whoever looks at the workload after reading.

use crate::{event::Event, limit::NODE_WORDS};

/// A change, and who made it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// When, to whom and by which thread; the detail is one of [`file`] or the mode of a memory policy.
    pub event: Event,
    /// Process that made it.
    pub tgid: u32,
    /// One of [`scope`].
    pub scope: u32,
    /// `comm` of the thread, NUL-terminated.
    pub comm: [u8; 16],
    /// Nodes of a memory policy, bit n of word n / 64 for node n.
    pub nodes: [u64; NODE_WORDS],
}

/// Files of a cpuset that take a list.
pub mod file {
    /// Another than those below.
    pub const OTHER: u16 = 0;
    /// `cpuset.cpus`
    pub const CPUS: u16 = 1;
    /// `cpuset.mems`
    pub const MEMS: u16 = 2;
}

/// What a memory policy is for.
pub mod scope {
    /// Not a memory policy.
    pub const NONE: u32 = 0;
    /// What the thread allocates from now on.
    pub const TASK: u32 = 1;
    /// A range of addresses.
    pub const RANGE: u32 = 2;
}

/// Changes of a workload that are limited apart: one for each of [`file`], and memory policies.
pub const KINDS: u32 = 4;
/// The last of them.
pub const POLICY: u32 = 3;

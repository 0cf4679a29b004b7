//! Changes of a workload's CPUs or memory nodes, sent one by one with the process that made them.
//!
//! Sent in the ring of events, as a longer record with an [`EventRecord`] at its beginning. At most one
//! record of a workload and kind lies in the ring unread: the reader looks at the workload after reading, and
//! so sees later changes too.

use crate::{event::EventRecord, limit::NODE_WORDS};

/// A change, and the process that made it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Time, workload and thread of the change; the detail is one of [`file`] or the mode of a memory policy.
    pub event: EventRecord,
    /// Process that made it.
    pub tgid: u32,
    /// One of [`scope`].
    pub scope: u32,
    /// `comm` of the thread, NUL-terminated.
    pub comm: [u8; 16],
    /// Nodes of a memory policy, bit n of word n / 64 for node n.
    pub nodes: [u64; NODE_WORDS],
}

/// Cpuset files that take a list.
pub mod file {
    /// Any other file.
    pub const OTHER: u16 = 0;
    /// `cpuset.cpus`
    pub const CPUS: u16 = 1;
    /// `cpuset.mems`
    pub const MEMS: u16 = 2;
}

/// Scope of a memory policy.
pub mod scope {
    /// No memory policy.
    pub const NONE: u32 = 0;
    /// Later allocations of the thread.
    pub const TASK: u32 = 1;
    /// A range of addresses.
    pub const RANGE: u32 = 2;
}

/// Number of separately limited kinds of changes of a workload: one for each of [`file`], and memory
/// policies.
pub const KINDS: u32 = 4;
/// The last of them.
pub const POLICY: u32 = 3;

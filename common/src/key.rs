//! Keys of the counter maps.
//!
//! Workloads are named by slot ([`crate::managed::ManagedCgroup::slot`]), NUMA nodes by their index in
//! the table [`crate::settings::CPU_NODE`]: ids of nodes may be sparse, arrays may not.

/// Tasks of one workload that were put from a CPU of one NUMA node on one of another.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveKey {
    /// Slot of the workload.
    pub slot: u32,
    /// Index of the node it came from; of the parent's CPU for a new task.
    pub src: u16,
    /// Index of the node it was put on.
    pub dst: u16,
}

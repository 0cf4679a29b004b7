//! Sizes of the maps.
//!
//! A per-CPU map takes entries x value x possible CPUs of kernel memory: with these sizes 350 KiB per
//! CPU, 90 MiB on 256 CPUs.

/// Entries of the placement map: (cgroup, source node, destination node).
pub const PLACEMENTS: u32 = 8_192;
/// Entries of the run-time map: (cgroup, node).
pub const RUN_TICKS: u32 = 8_192;
/// Entries of the hinting-fault map: (cgroup, node).
pub const HINT_FAULTS: u32 = 4_096;
/// CPUs that the CPU-to-node table covers: `NR_CPUS` of x86 at most. A power of two, so that masking
/// an index bounds it.
pub const CPUS: usize = 8_192;
/// 64-bit words of a task's CPU mask in [`crate::task::TaskRecord`].
pub const MASK_WORDS: usize = 16;
/// CPUs that such a mask covers.
pub const MASK_CPUS: usize = MASK_WORDS * 64;

//! Sizes that both sides agree on, and those of maps until the daemon has sized them for the host.

/// CPUs that the CPU-to-node table covers: `NR_CPUS` of x86 at most. A power of two, so that masking
/// an index bounds it.
pub const CPUS: usize = 8_192;
/// 64-bit words of a set of nodes.
pub const NODE_WORDS: usize = 16;
/// Nodes with CPUs that can be told apart: `MAX_NUMNODES` of every architecture at most.
pub const NODES: usize = NODE_WORDS * 64;
/// 64-bit words of a task's CPU mask in [`crate::task::TaskRecord`].
pub const MASK_WORDS: usize = 16;
/// CPUs that such a mask covers.
pub const MASK_CPUS: usize = MASK_WORDS * 64;

/// Workloads.
pub const SLOTS: u32 = 64;
/// Watched cgroups.
pub const MANAGED: u32 = 1_024;
/// Keys of the map of moves.
pub const MOVES: u32 = 1_024;
/// Keys of the map of tallies.
pub const TALLIES: u32 = 1_024;
/// Calls of traced functions in progress.
pub const CALLS: u32 = 1_024;
/// Values of `enum migrate_reason` that the table of reasons covers. A power of two.
pub const MIGRATE_REASONS: usize = 32;
/// Bytes of the ring of pressure events.
pub const PRESSURE_BYTES: u32 = 64 * 1_024;
/// Bytes of the ring of events.
pub const EVENT_BYTES: u32 = 256 * 1_024;

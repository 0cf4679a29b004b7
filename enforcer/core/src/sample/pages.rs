//! Moved pages by reason.
//!
//! The kernel counts a move for the thread that moves: one that faults or calls. Pages of a workload are
//! mostly its own, but moves by the kernel's threads and the daemon are counted apart.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

/// Why pages are moved (`enum migrate_reason` in `include/linux/migrate_mode.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum PageMoveReason {
    /// `move_pages(2)`, `migrate_pages(2)`, or a new `cpuset.mems`.
    Syscall,
    /// `mbind(2)`.
    Mempolicy,
    /// NUMA balancing.
    Balancing,
    /// Reclaim that moves cold pages to slower memory.
    Demotion,
    /// DAMON.
    Damon,
    /// Compaction, which stays on the node.
    Compaction,
    /// Failing or removed memory, and contiguous allocations.
    Other,
}

/// Pages of attempted moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageMoves {
    /// Base pages that moved.
    pub moved: u64,
    /// Base pages that did not move.
    pub failed: u64,
}

/// Pages by the reason of the move.
pub type PageMovesByReason = BTreeMap<PageMoveReason, PageMoves>;

/// Pages that no watched workload moved; cumulative since the programs were first attached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OtherPageMoves {
    /// Moved by this daemon, of any workload.
    pub own: PageMovesByReason,
    /// Moved by the kernel's threads, and by cgroups that are no workloads.
    pub elsewhere: PageMovesByReason,
}

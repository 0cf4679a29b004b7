//! Pages that were moved, and why.
//!
//! Counted for whoever moved them: a thread that faults or calls. Those of a workload are mostly its own,
//! but what moves the pages of others (the kernel's threads, the daemon) is told apart.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why pages are moved (`enum migrate_reason` in `include/linux/migrate_mode.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
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
    /// Memory that fails or goes away, and contiguous allocations.
    Other,
}

impl PageMoveReason {
    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syscall => "syscall",
            Self::Mempolicy => "mempolicy",
            Self::Balancing => "balancing",
            Self::Demotion => "demotion",
            Self::Damon => "damon",
            Self::Compaction => "compaction",
            Self::Other => "other",
        }
    }
}

/// Pages that somebody tried to move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageMoves {
    /// Pages of the base size that moved.
    pub moved: u64,
    /// Pages that did not.
    pub failed: u64,
}

/// Pages by the reason for which they were moved.
pub type PageMovesByReason = BTreeMap<PageMoveReason, PageMoves>;

/// Pages that no watched workload moved; cumulative since the programs were first attached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OtherPageMoves {
    /// Moved by this daemon, whosever they are.
    pub own: PageMovesByReason,
    /// Moved by others: threads of the kernel, and cgroups that are no workloads.
    pub elsewhere: PageMovesByReason,
}

impl OtherPageMoves {
    /// Adds what was counted at another time.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in [(&mut self.own, &more.own), (&mut self.elsewhere, &more.elsewhere)] {
            for (reason, moves) in more {
                let sum = sum.entry(*reason).or_default();
                sum.moved = sum.moved.saturating_add(moves.moved);
                sum.failed = sum.failed.saturating_add(moves.failed);
            }
        }
    }
}

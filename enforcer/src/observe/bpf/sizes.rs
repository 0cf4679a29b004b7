//! How large the maps are on this host.
//!
//! A per-CPU map takes its size once for each possible CPU, so its rows are as many as there may be
//! workloads, not cgroups, and all of them together stay below [`BUDGET`]. Pure.

use enforcer_common::{
    counter::{Accesses, HintFaultPages, Moves, RunTime},
    key::MoveKey,
    limit::EVENT_BYTES,
};

/// Kernel memory that all per-CPU maps may take together.
const BUDGET: usize = 64 << 20;
/// Pairs of nodes that a workload may move between, on average, however many nodes there are.
const PAIRS: usize = 16;
/// Rows: a host with few cgroups may get more, one with many must not take all memory.
const SLOTS: std::ops::RangeInclusive<usize> = 64..=4_096;
/// Watched cgroups.
const MANAGED: std::ops::RangeInclusive<usize> = 4_096..=65_536;
/// Watched cgroups for each workload: a pod has one per container and some above it.
const CGROUPS_PER_SLOT: usize = 16;

/// Entries of the maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Workloads: rows of the arrays.
    pub slots: u32,
    /// Watched cgroups.
    pub managed: u32,
    /// Pairs of workload and pair of nodes.
    pub moves: u32,
    /// Bytes of the ring of events; a power of two and a multiple of the page size.
    pub event_bytes: u32,
}

impl Sizes {
    /// For a host that has so many cgroups now, so many nodes with CPUs and so many possible CPUs.
    pub fn new(cgroups: usize, nodes: usize, cpus: usize) -> Self {
        let pairs = (nodes * nodes).clamp(1, PAIRS);
        let row = nodes.max(1) * (size_of::<RunTime>() + size_of::<HintFaultPages>() + size_of::<Accesses>())
            + pairs * (size_of::<Moves>() + size_of::<MoveKey>())
            + size_of::<u64>();
        let affordable = BUDGET / cpus.max(1) / row;
        let wanted = cgroups.saturating_mul(2).max(*SLOTS.start());
        let slots = wanted.min(affordable).clamp(*SLOTS.start(), *SLOTS.end());
        let entries = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            slots: entries(slots),
            managed: entries(slots.saturating_mul(CGROUPS_PER_SLOT).clamp(*MANAGED.start(), *MANAGED.end())),
            moves: entries(slots * pairs),
            event_bytes: EVENT_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_cgroups_until_memory_is_short() {
        let slots = |cgroups, nodes, cpus| Sizes::new(cgroups, nodes, cpus).slots;
        assert_eq!(slots(0, 0, 0), 64);
        assert_eq!(slots(100, 2, 32), 200);
        assert_eq!(slots(10_000, 2, 32), 4_096);
        assert!(slots(10_000, 8, 512) < 4_096);
        assert_eq!(slots(10_000, 64, 1_024), 64, "the fewest, though they take more than the budget");
        assert_eq!(slots(usize::MAX, 1, 1), 4_096);
    }

    #[test]
    fn a_small_machine_has_room_for_every_pair() {
        for nodes in 1..=4 {
            let sizes = Sizes::new(100, nodes, 64);
            assert_eq!(sizes.moves as usize, sizes.slots as usize * nodes * nodes);
        }
    }
}

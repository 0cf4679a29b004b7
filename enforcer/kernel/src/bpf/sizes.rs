//! How large the maps are on this host.
//!
//! A per-CPU map takes its size once for each possible CPU, so its rows are as many as there may be
//! workloads, not cgroups, and all of them together stay below [`BUDGET`]. Pure.

use enforcer_common::{
    counter::{Accesses, HintFaultPages, Moves, RunTimeCounts, Sent},
    key::MoveKey,
    limit::EVENT_BYTES,
    tally::{TallyCounts, TallyKey},
};

/// Kernel memory that all per-CPU maps may take together.
const BUDGET: usize = 64 << 20;
/// Pairs of nodes that a workload may move between, on average, however many nodes there are.
const PAIRS: usize = 16;
/// Kinds of rare things that a workload does, on average.
const TALLIES: usize = 8;
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
    /// Cells for moves, one for every pair of nodes of every workload; 0 where that takes too much memory.
    pub move_cells: u32,
    /// Pairs of workload and pair of nodes that are used; 0 where each has its cell.
    pub moves: u32,
    /// Pairs of workload and kind of rare things.
    pub tallies: u32,
    /// Bytes of the ring of events; a power of two and a multiple of the page size.
    pub event_bytes: u32,
}

impl Sizes {
    /// For a host that has so many cgroups now, so many nodes with CPUs and so many possible CPUs.
    pub fn new(cgroups: usize, nodes: usize, cpus: usize) -> Self {
        let nodes = nodes.max(1);
        let (square, pairs) = (nodes * nodes, (nodes * nodes).min(PAIRS));
        let row = nodes * (size_of::<RunTimeCounts>() + size_of::<HintFaultPages>() + size_of::<Accesses>())
            + TALLIES * (size_of::<TallyCounts>() + size_of::<TallyKey>())
            + size_of::<Sent>();
        let affordable = |moves: usize| BUDGET / cpus.max(1) / (row + moves);
        let wanted = cgroups.saturating_mul(2).clamp(*SLOTS.start(), *SLOTS.end());
        let as_table = affordable(square * size_of::<Moves>()) >= wanted;
        let as_hash = affordable(pairs * (size_of::<Moves>() + size_of::<MoveKey>()));
        let slots = if as_table { wanted } else { wanted.min(as_hash).max(*SLOTS.start()) };
        let entries = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            slots: entries(slots),
            managed: entries(slots.saturating_mul(CGROUPS_PER_SLOT).clamp(*MANAGED.start(), *MANAGED.end())),
            move_cells: if as_table { entries(slots * square) } else { 0 },
            moves: if as_table { 0 } else { entries(slots * pairs) },
            // And for cgroups that are no workload.
            tallies: entries((slots + 2) * TALLIES),
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
    fn every_pair_of_nodes_has_a_cell_until_memory_is_short() {
        let moves = |cgroups, nodes, cpus| {
            let Sizes { slots, move_cells, moves, .. } = Sizes::new(cgroups, nodes, cpus);
            assert!((move_cells == 0) != (moves == 0), "one of both: {move_cells} {moves}");
            (slots, move_cells, moves)
        };
        assert_eq!(moves(100, 2, 128), (200, 800, 0));
        assert_eq!(moves(100, 4, 256), (200, 3_200, 0));
        assert_eq!(moves(100, 8, 128), (200, 12_800, 0));
        assert_eq!(moves(100, 8, 512), (101, 0, 1_616));
        assert_eq!(moves(0, 64, 64), (64, 0, 1_024));
    }

    #[test]
    fn all_of_it_together_is_within_the_budget() {
        for (cgroups, nodes, cpus) in
            [(10, 1, 2), (1_000, 2, 64), (5_000, 4, 128), (300, 8, 256), (300, 8, 64)]
        {
            let Sizes { slots, move_cells, moves, .. } = Sizes::new(cgroups, nodes, cpus);
            let of_nodes = size_of::<RunTimeCounts>() + size_of::<HintFaultPages>() + size_of::<Accesses>();
            let rare = TALLIES * (size_of::<TallyCounts>() + size_of::<TallyKey>());
            let bytes = slots as usize * (nodes * of_nodes + rare + size_of::<Sent>())
                + move_cells as usize * size_of::<Moves>()
                + moves as usize * (size_of::<Moves>() + size_of::<MoveKey>());
            assert!(bytes * cpus <= BUDGET, "{cgroups} cgroups, {nodes} nodes, {cpus} CPUs: {bytes} bytes");
        }
    }
}

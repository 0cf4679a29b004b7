//! Counts of the kernel side for a workload, and what it could not count.

use std::collections::BTreeMap;

use enforcer_core::sample::{Count, HardwareAccesses, HintFaults, Placements, RunTime};
use numa_topology::id::NodeId;

use super::tallies::{Tallies, nonzero};

/// Counters of one workload since it is watched.
///
/// `None` where the hook is not attached; an empty map says that it counted nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Time on the CPUs of each node.
    pub run_time: Option<BTreeMap<NodeId, RunTime>>,
    /// Tasks put on a CPU, in ascending order of (source, destination).
    pub placements: Option<Vec<Placements>>,
    /// Pages of hinting faults taken on the CPUs of each node.
    pub hint_faults: Option<BTreeMap<NodeId, HintFaults>>,
    /// Accesses to DRAM from the CPUs of each node.
    pub hardware: Option<BTreeMap<NodeId, HardwareAccesses>>,
    /// Rare events, of all hooks.
    pub tallies: Tallies,
}

impl KernelCounters {
    /// Adds what was counted for another cgroup, or at another time; what is not attached here stays out.
    pub fn add(&mut self, more: &Self) {
        add_attached(&mut self.run_time, more.run_time.as_ref());
        add_attached(&mut self.placements, more.placements.as_ref());
        add_attached(&mut self.hint_faults, more.hint_faults.as_ref());
        add_attached(&mut self.hardware, more.hardware.as_ref());
        self.tallies.add(&more.tallies);
    }

    /// Counts after `start`; nodes without any are left out.
    pub(super) fn since(&self, start: &Self) -> Self {
        let mut placements = self.placements.minus(&start.placements);
        if let Some(all) = &mut placements {
            all.retain(|one| one.count() > 0);
        }
        Self {
            run_time: self.run_time.minus(&start.run_time).map(nonzero),
            placements,
            hint_faults: self.hint_faults.minus(&start.hint_faults).map(nonzero),
            hardware: self.hardware.minus(&start.hardware).map(nonzero),
            tallies: self.tallies.since(&start.tallies),
        }
    }
}

fn add_attached<C: Count>(sum: &mut Option<C>, more: Option<&C>) {
    if let (Some(sum), Some(more)) = (sum, more) {
        sum.add(more);
    }
}

/// Events that the kernel side saw and could not count for any workload, or not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// A counter map was full.
    pub map_full: u64,
    /// On a CPU that has no node in the table.
    pub unknown_cpu: u64,
    /// Tasks with an unreadable cgroup.
    pub unknown_cgroup: u64,
    /// New cgroups that could not be watched because their map was full.
    pub unwatched: u64,
    /// Events for which the ring had no room; they are counted all the same.
    pub events: u64,
    /// Events that were not sent because one of the workload was sent a moment before.
    pub limited: u64,
    /// Pressure events for which their ring had no room.
    pub pressure: u64,
    /// Pressure events that were not sent because the node sent one of the kind a moment before.
    pub pressure_limited: u64,
    /// Changes for which the ring had no room; they are counted all the same.
    pub changes: u64,
    /// Changes that were not sent because one like it lay in the ring unread.
    pub changes_unread: u64,
}

impl Drops {
    /// Those that are missing from a figure.
    pub fn total(self) -> u64 {
        [self.map_full, self.unknown_cpu, self.unknown_cgroup, self.unwatched]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

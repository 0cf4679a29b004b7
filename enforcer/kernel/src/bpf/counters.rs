//! Counts of the kernel side for a workload, and what it could not count.

use std::collections::BTreeMap;

use enforcer_core::sample::{HardwareAccesses, HintFaults, Placements, RunTime};
use numa_topology::id::NodeId;

use super::tallies::Tallies;

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
        if let (Some(sum), Some(times)) = (&mut self.run_time, &more.run_time) {
            add_each(sum, times, RunTime::add);
        }
        if let (Some(sum), Some(placements)) = (&mut self.placements, &more.placements) {
            add_placements(sum, placements);
        }
        if let (Some(sum), Some(faults)) = (&mut self.hint_faults, &more.hint_faults) {
            add_each(sum, faults, HintFaults::add);
        }
        if let (Some(sum), Some(accesses)) = (&mut self.hardware, &more.hardware) {
            add_each(sum, accesses, HardwareAccesses::add);
        }
        self.tallies.add(&more.tallies);
    }

    /// Counts after `start`.
    pub(super) fn since(&self, start: &Self) -> Self {
        Self {
            run_time: minus(self.run_time.as_ref(), start.run_time.as_ref(), RunTime::minus),
            placements: self.placements.as_ref().map(|now| {
                let had = |one: &Placements| {
                    let same =
                        |had: &&Placements| (had.src_numa, had.dst_numa) == (one.src_numa, one.dst_numa);
                    start.placements.iter().flatten().find(same)
                };
                now.iter()
                    .map(|one| had(one).map_or(*one, |had| one.minus(*had)))
                    .filter(|one| one.count() > 0)
                    .collect()
            }),
            hint_faults: minus(self.hint_faults.as_ref(), start.hint_faults.as_ref(), HintFaults::minus),
            hardware: minus(self.hardware.as_ref(), start.hardware.as_ref(), HardwareAccesses::minus),
            tallies: self.tallies.since(&start.tallies),
        }
    }
}

/// What each node has more than at the start; nodes that have not are left out.
fn minus<V: Copy + Default + PartialEq>(
    now: Option<&BTreeMap<NodeId, V>>,
    start: Option<&BTreeMap<NodeId, V>>,
    minus: impl Fn(V, V) -> V,
) -> Option<BTreeMap<NodeId, V>> {
    let had = |node: &NodeId| start.and_then(|start| start.get(node)).copied().unwrap_or_default();
    let more = now?.iter().map(|(node, value)| (*node, minus(*value, had(node))));
    Some(more.filter(|(_, value)| *value != V::default()).collect())
}

fn add_each<V: Copy + Default>(
    sum: &mut BTreeMap<NodeId, V>,
    more: &BTreeMap<NodeId, V>,
    add: impl Fn(&mut V, V),
) {
    for (node, value) in more {
        add(sum.entry(*node).or_default(), *value);
    }
}

fn add_placements(sum: &mut Vec<Placements>, more: &[Placements]) {
    for placements in more {
        let route = |p: &Placements| (p.src_numa, p.dst_numa);
        match sum.binary_search_by_key(&route(placements), route) {
            Ok(at) => sum[at].add(*placements),
            Err(at) => sum.insert(at, *placements),
        }
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

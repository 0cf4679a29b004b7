//! Reads the counter maps: one number per key, summed over the CPUs.

use std::collections::BTreeMap;

use aya::{
    Ebpf, Pod,
    maps::{Map, MapData, MapError, PerCpuArray, PerCpuHashMap},
};
use enforcer_common::{
    counter::{HintFaultPages, drop},
    key::{NodeKey, PlacementKey},
    limit,
};
use enforcer_core::{
    id::NodeId,
    sample::{HintFaults, Placements},
};
use thiserror::Error;

/// What the kernel side counted for one cgroup since the programs were attached.
///
/// `None` where the hook is not attached; an empty map says that it counted nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Clock ticks on the CPUs of each node; one is [`super::TICK_NS`] of run time.
    pub run_ticks: Option<BTreeMap<NodeId, u64>>,
    /// Tasks put on a CPU of another node, in ascending order of (source, destination).
    pub placements: Option<Vec<Placements>>,
    /// Pages of hinting faults taken on the CPUs of each node.
    pub hint_faults: Option<BTreeMap<NodeId, HintFaults>>,
}

impl KernelCounters {
    /// Adds what was counted for another cgroup, or at another time; what is not attached here stays out.
    pub(in crate::observe) fn add(&mut self, more: &Self) {
        if let (Some(sum), Some(ticks)) = (&mut self.run_ticks, &more.run_ticks) {
            for (node, ticks) in ticks {
                let total = sum.entry(*node).or_default();
                *total = total.saturating_add(*ticks);
            }
        }
        if let (Some(sum), Some(placements)) = (&mut self.placements, &more.placements) {
            add_placements(sum, placements);
        }
        if let (Some(sum), Some(faults)) = (&mut self.hint_faults, &more.hint_faults) {
            add_faults(sum, faults);
        }
    }
}

fn add_placements(sum: &mut Vec<Placements>, more: &[Placements]) {
    for placements in more {
        let route = |p: &Placements| (p.src_numa, p.dst_numa);
        match sum.binary_search_by_key(&route(placements), route) {
            Ok(at) => sum[at].count = sum[at].count.saturating_add(placements.count),
            Err(at) => sum.insert(at, *placements),
        }
    }
}

fn add_faults(sum: &mut BTreeMap<NodeId, HintFaults>, more: &BTreeMap<NodeId, HintFaults>) {
    for (node, faults) in more {
        let total = sum.entry(*node).or_default();
        total.local = total.local.saturating_add(faults.local);
        total.remote = total.remote.saturating_add(faults.remote);
        total.migrated = total.migrated.saturating_add(faults.migrated);
        total.migrate_failed = total.migrate_failed.saturating_add(faults.migrate_failed);
    }
}

/// Events that the kernel side saw and could not count for any cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// A counter map was full.
    pub map_full: u64,
    /// On a CPU that has no node in the table.
    pub unknown_cpu: u64,
    /// Of a task whose cgroup could not be read.
    pub unknown_cgroup: u64,
}

impl Drops {
    /// All of them.
    pub fn total(self) -> u64 {
        self.map_full.saturating_add(self.unknown_cpu).saturating_add(self.unknown_cgroup)
    }
}

/// A map that could not be read.
#[derive(Debug, Error)]
pub enum CountersError {
    /// The object does not have it.
    #[error("the object has no map {0}")]
    NoMap(&'static str),
    /// The kernel refused.
    #[error("reading the map {map}")]
    Read {
        /// Which one.
        map: &'static str,
        /// What the kernel said.
        #[source]
        cause: Box<MapError>,
    },
}

/// The names of the maps in `enforcer-ebpf/src/maps.rs`.
pub(super) const PLACEMENTS: &str = "PLACEMENTS";
pub(super) const RUN_TICKS: &str = "RUN_TICKS";
pub(super) const HINT_FAULTS: &str = "HINT_FAULTS";
const DROPS: &str = "DROPS";
/// Those whose size is a bound on the number of cgroups.
pub(super) const MAPS: [&str; 3] = [PLACEMENTS, RUN_TICKS, HINT_FAULTS];

/// Clock ticks by cgroup and node.
pub(super) fn run_ticks(ebpf: &Ebpf) -> Result<BTreeMap<u64, BTreeMap<NodeId, u64>>, CountersError> {
    let mut by_cgroup: BTreeMap<u64, BTreeMap<NodeId, u64>> = BTreeMap::new();
    for_each(ebpf, RUN_TICKS, limit::RUN_TICKS, |key: NodeKey, ticks: &[u64]| {
        by_cgroup.entry(key.cgroup).or_default().insert(NodeId(key.node), sum(ticks));
    })?;
    Ok(by_cgroup)
}

/// Placements by cgroup.
pub(super) fn placements(ebpf: &Ebpf) -> Result<BTreeMap<u64, Vec<Placements>>, CountersError> {
    let mut by_cgroup: BTreeMap<u64, BTreeMap<(u32, u32), u64>> = BTreeMap::new();
    for_each(ebpf, PLACEMENTS, limit::PLACEMENTS, |key: PlacementKey, counts: &[u64]| {
        by_cgroup.entry(key.cgroup).or_default().insert((key.src, key.dst), sum(counts));
    })?;
    let listed = |by_nodes: BTreeMap<(u32, u32), u64>| {
        by_nodes
            .into_iter()
            .map(|((src, dst), count)| Placements { src_numa: NodeId(src), dst_numa: NodeId(dst), count })
            .collect()
    };
    Ok(by_cgroup.into_iter().map(|(cgroup, by_nodes)| (cgroup, listed(by_nodes))).collect())
}

/// Hinting faults by cgroup and node.
pub(super) fn hint_faults(ebpf: &Ebpf) -> Result<BTreeMap<u64, BTreeMap<NodeId, HintFaults>>, CountersError> {
    let mut by_cgroup: BTreeMap<u64, BTreeMap<NodeId, HintFaults>> = BTreeMap::new();
    for_each(ebpf, HINT_FAULTS, limit::HINT_FAULTS, |key: NodeKey, pages: &[HintFaultPages]| {
        let total = |field: fn(&HintFaultPages) -> u64| pages.iter().map(field).fold(0, u64::saturating_add);
        by_cgroup.entry(key.cgroup).or_default().insert(
            NodeId(key.node),
            HintFaults {
                local: total(|one| one.local),
                remote: total(|one| one.remote),
                migrated: total(|one| one.migrated),
                migrate_failed: total(|one| one.migrate_failed),
            },
        );
    })?;
    Ok(by_cgroup)
}

/// Events that were not counted.
pub(super) fn drops(ebpf: &Ebpf) -> Result<Drops, CountersError> {
    let read = |cause: MapError| CountersError::Read { map: DROPS, cause: Box::new(cause) };
    let array: PerCpuArray<_, u64> = map(ebpf, DROPS)?.try_into().map_err(read)?;
    let count = |reason: u32| array.get(&reason, 0).map(|counts| sum(&counts)).map_err(read);
    let full = [drop::PLACEMENTS, drop::RUN_TICKS, drop::HINT_FAULTS];
    Ok(Drops {
        map_full: full
            .into_iter()
            .try_fold(0u64, |total, reason| count(reason).map(|dropped| total.saturating_add(dropped)))?,
        unknown_cpu: count(drop::UNKNOWN_CPU)?,
        unknown_cgroup: count(drop::UNKNOWN_CGROUP)?,
    })
}

/// Removes the keys that are not about a cgroup of `live`.
pub(super) fn retain<K: Pod, V: Pod>(
    ebpf: &mut Ebpf,
    name: &'static str,
    live: impl Fn(&K) -> bool,
) -> Result<(), CountersError> {
    let read = |cause: MapError| CountersError::Read { map: name, cause: Box::new(cause) };
    let map = ebpf.map_mut(name).ok_or(CountersError::NoMap(name))?;
    let mut hash: PerCpuHashMap<&mut MapData, K, V> = map.try_into().map_err(read)?;
    let gone: Vec<K> = hash.keys().filter_map(Result::ok).filter(|key| !live(key)).collect();
    for key in gone {
        match hash.remove(&key) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(cause) => return Err(read(cause)),
        }
    }
    Ok(())
}

fn map<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<&'a Map, CountersError> {
    ebpf.map(name).ok_or(CountersError::NoMap(name))
}

/// Calls `each` for every key with the values of all CPUs; a key may come twice, because the kernel
/// side inserts meanwhile.
fn for_each<K: Pod, V: Pod>(
    ebpf: &Ebpf,
    name: &'static str,
    entries: u32,
    mut each: impl FnMut(K, &[V]),
) -> Result<(), CountersError> {
    let read = |cause: MapError| CountersError::Read { map: name, cause: Box::new(cause) };
    let hash: PerCpuHashMap<&MapData, K, V> = map(ebpf, name)?.try_into().map_err(read)?;
    for entry in hash.iter().take(2 * entries as usize) {
        let (key, values) = entry.map_err(read)?;
        each(key, &values);
    }
    Ok(())
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

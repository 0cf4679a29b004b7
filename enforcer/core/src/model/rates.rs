//! Differences of counters.

use std::collections::BTreeMap;

use crate::sample::CgroupSample;
use numa_topology::id::NodeId;

const NANOS_PER_SECOND: f64 = 1e9;

/// Part of a whole; `None` for an empty whole.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits of either count")]
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Advance of counters by key. A new key counts from 0. `None` if any counter went back or vanished, because
/// then all of them were reset.
pub(super) fn advance<K: Ord + Copy>(
    now: &BTreeMap<K, u64>,
    before: &BTreeMap<K, u64>,
) -> Option<BTreeMap<K, u64>> {
    if before.iter().any(|(key, value)| *value > 0 && !now.contains_key(key)) {
        return None;
    }
    now.iter()
        .map(|(key, value)| Some((*key, value.checked_sub(before.get(key).copied().unwrap_or(0))?)))
        .collect()
}

/// Moves to another node per second of the interval.
pub(super) fn migrations_per_second(
    now: &CgroupSample,
    before: &CgroupSample,
    interval_ns: u64,
) -> Option<f64> {
    let moves = advance(&placements(now)?, &placements(before)?)?;
    let count = moves.values().fold(0u64, |sum, count| sum.saturating_add(*count));
    ratio(count, interval_ns).map(|per_ns| per_ns * NANOS_PER_SECOND)
}

/// Moves from one node to a different one.
fn placements(cgroup: &CgroupSample) -> Option<BTreeMap<(NodeId, NodeId), u64>> {
    let mut by_pair = BTreeMap::new();
    for moved in cgroup.placements.as_ref()?.iter().filter(|moved| moved.src_numa != moved.dst_numa) {
        let count: &mut u64 = by_pair.entry((moved.src_numa, moved.dst_numa)).or_default();
        *count = count.saturating_add(moved.count());
    }
    Some(by_pair)
}

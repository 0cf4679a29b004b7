//! Every map.
//!
//! Preallocated, because a perf event program may use nothing else on older kernels, and per CPU, so
//! that counting needs no atomic operation.

use aya_ebpf::{
    bindings::BPF_ANY,
    macros::map,
    maps::{PerCpuArray, PerCpuHashMap},
};
use enforcer_common::{
    counter::{HintFaultPages, drop},
    key::{NodeKey, PlacementKey},
    limit,
};

#[map]
pub static PLACEMENTS: PerCpuHashMap<PlacementKey, u64> =
    PerCpuHashMap::with_max_entries(limit::PLACEMENTS, 0);

#[map]
pub static RUN_TICKS: PerCpuHashMap<NodeKey, u64> = PerCpuHashMap::with_max_entries(limit::RUN_TICKS, 0);

#[map]
pub static HINT_FAULTS: PerCpuHashMap<NodeKey, HintFaultPages> =
    PerCpuHashMap::with_max_entries(limit::HINT_FAULTS, 0);

#[map]
pub static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(drop::REASONS, 0);

/// Adds 1 to a counter; a full map counts as a drop for `reason`.
#[inline(always)]
pub fn count<K>(map: &PerCpuHashMap<K, u64>, key: &K, reason: u32) {
    if let Some(value) = map.get_ptr_mut(key) {
        // SAFETY: the value is this CPU's own copy, and the kernel keeps the map while we run.
        unsafe { *value += 1 };
    } else if map.insert(key, 1u64, u64::from(BPF_ANY)).is_err() {
        dropped(reason);
    }
}

/// Counts an event that is not counted anywhere else.
#[inline(always)]
pub fn dropped(reason: u32) {
    if let Some(value) = DROPS.get_ptr_mut(reason) {
        // SAFETY: the value is this CPU's own copy, and the kernel keeps the map while we run.
        unsafe { *value += 1 };
    }
}

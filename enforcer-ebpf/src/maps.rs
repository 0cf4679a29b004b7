//! Every map.
//!
//! Preallocated, because a perf event program may use nothing else on older kernels and a program that
//! holds a run queue's lock must not allocate; per CPU where something is counted, so that counting
//! needs no atomic operation. The daemon sizes them for its host before it loads them.

use aya_ebpf::{
    bindings::BPF_ANY,
    macros::map,
    maps::{Array, HashMap, PerCpuArray, PerCpuHashMap, RingBuf},
};
use enforcer_common::{
    counter::{Accesses, HintFaultPages, Moves, RunTime, drop},
    key::MoveKey,
    limit,
    managed::ManagedCgroup,
    pressure::{OomCall, kind},
};

/// Watched cgroups by id.
#[map]
pub static MANAGED: HashMap<u64, ManagedCgroup> = HashMap::with_max_entries(limit::MANAGED, 0);

/// Moves between nodes by workload and pair of nodes: a hash, because of a square of nodes few are used.
#[map]
pub static MOVES: PerCpuHashMap<MoveKey, Moves> = PerCpuHashMap::with_max_entries(limit::MOVES, 0);

/// Run time: a row of nodes for each slot.
#[map]
pub static RUN_TIME: PerCpuArray<RunTime> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// Hinting faults: a row of nodes for each slot.
#[map]
pub static HINT_FAULTS: PerCpuArray<HintFaultPages> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// Accesses to memory: a row of nodes for each slot.
#[map]
pub static HARDWARE: PerCpuArray<Accesses> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// When this CPU last began to run a task, in ns.
#[map]
pub static SINCE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// When this CPU last sent an event of a slot, in ns.
#[map]
pub static SENT: PerCpuArray<u64> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// What happens one by one; drained by a timer, so nobody is woken for it.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(limit::EVENT_BYTES, 0);

/// A NUMA node gets short of memory; wakes its reader.
#[map]
pub static PRESSURE: RingBuf = RingBuf::with_byte_size(limit::PRESSURE_BYTES, 0);

/// When a node last told a pressure event, in ns: a row of nodes for each kind.
#[map]
#[expect(clippy::cast_possible_truncation, reason = "1024")]
pub static PRESSURE_TOLD: Array<u64> = Array::with_max_entries(kind::KINDS * limit::NODES as u32, 0);

/// The OOM kill that is under way.
#[map]
pub static OOM: Array<OomCall> = Array::with_max_entries(1, 0);

/// What is in no counter or ring, by reason.
#[map]
pub static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(drop::REASONS, 0);

/// Counts in this CPU's value of a map: `first` for a key that is not there, else what `more` does to the
/// value; a full map counts as a drop for `reason`.
#[inline(always)]
pub fn count<K, V>(
    map: &'static PerCpuHashMap<K, V>,
    key: &K,
    first: &V,
    more: impl FnOnce(&mut V),
    reason: u32,
) {
    if let Some(value) = map.get_ptr_mut(key) {
        // SAFETY: the value is this CPU's own copy, nobody else refers to it, and the kernel keeps the
        // map while we run.
        more(unsafe { &mut *value });
    } else if map.insert(key, first, u64::from(BPF_ANY)).is_err() {
        dropped(reason);
    }
}

/// This CPU's cell of an array, to be changed.
#[inline(always)]
#[expect(clippy::mut_from_ref, reason = "the map is a name; the value is in the kernel, and this CPU's own")]
pub fn cell<V>(map: &'static PerCpuArray<V>, index: u32) -> Option<&'static mut V> {
    // SAFETY: as in `count`.
    map.get_ptr_mut(index).map(|value| unsafe { &mut *value })
}

/// A cell that all CPUs share, to be changed: for what a race may spoil.
#[inline(always)]
#[expect(clippy::mut_from_ref, reason = "the map is a name; the value is in the kernel")]
pub fn shared<V>(map: &'static Array<V>, index: u32) -> Option<&'static mut V> {
    // SAFETY: the kernel keeps the map while we run; whoever writes at the same time writes whole words.
    map.get_ptr_mut(index).map(|value| unsafe { &mut *value })
}

/// Counts an event that is not counted anywhere else.
#[inline(always)]
pub fn dropped(reason: u32) {
    if let Some(count) = cell(&DROPS, reason) {
        *count += 1;
    }
}

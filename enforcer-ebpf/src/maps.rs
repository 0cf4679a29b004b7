//! All maps.
//!
//! Preallocated, because a perf event program may use nothing else on older kernels and a program that holds
//! a run queue's lock must not allocate. Counters are per CPU: no two CPUs write one word. The frequent ones,
//! of the scheduler and of perf events, need no atomic addition, because their programs run with interrupts
//! disabled; all others are added to atomically. The daemon sizes the maps for its host before it loads them.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, RingBuf},
};
use enforcer_common::{
    change::KINDS,
    counter::{Accesses, HintFaultPages, Moves, RunTimeCounts, Sent, drop},
    key::MoveKey,
    limit,
    managed::ManagedCgroup,
    pressure::{kind, oom},
    tally::{TallyCounts, TallyKey},
};

use crate::words::{Value, Word};

/// Watched cgroups by id.
#[map]
pub static MANAGED: HashMap<u64, ManagedCgroup> = HashMap::with_max_entries(limit::MANAGED, 0);

/// Moves between nodes: a square of nodes for each slot, in rows of the source.
#[map]
pub static MOVE_CELLS: PerCpuArray<Moves> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// The same by workload and pair of nodes, for hosts with so many nodes that squares take too much memory:
/// few of the pairs are used.
#[map]
pub static MOVES: PerCpuHashMap<MoveKey, Moves> = PerCpuHashMap::with_max_entries(limit::MOVES, 0);

/// Rare events, by workload and kind.
#[map]
pub static TALLIES: PerCpuHashMap<TallyKey, TallyCounts> = PerCpuHashMap::with_max_entries(limit::TALLIES, 0);

/// End of the ring of events before the latest change of a kind of a slot was put into it, plus 1.
#[map]
pub static LAST_CHANGE: Array<u64> = Array::with_max_entries(limit::SLOTS * KINDS, 0);

/// Run time: a row of nodes for each slot.
#[map]
pub static RUN_TIME: PerCpuArray<RunTimeCounts> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// Hinting faults: a row of nodes for each slot.
#[map]
pub static HINT_FAULTS: PerCpuArray<HintFaultPages> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// Accesses to memory: a row of nodes for each slot.
#[map]
pub static HARDWARE: PerCpuArray<Accesses> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// Time at which this CPU last began to run a task, in ns.
#[map]
pub static SINCE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Time of this CPU's last event of a slot, and the number of events that it did not send.
#[map]
pub static SENT: PerCpuArray<Sent> = PerCpuArray::with_max_entries(limit::SLOTS, 0);

/// Single events; a timer drains the ring, and only a ring that is half full wakes the reader.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(limit::EVENT_BYTES, 0);

/// A NUMA node gets short of memory; wakes its reader.
#[map]
pub static PRESSURE: RingBuf = RingBuf::with_byte_size(limit::PRESSURE_BYTES, 0);

/// Time of a node's last pressure event, in ticks: a row of nodes for each kind.
#[map]
#[expect(clippy::cast_possible_truncation, reason = "1024")]
pub static LAST_PRESSURE: Array<u64> = Array::with_max_entries(kind::KINDS * limit::NODES as u32, 0);

/// The OOM kill in progress: the words of `pressure::oom`; 0 without one.
#[map]
pub static OOM: Array<u64> = Array::with_max_entries(oom::WORDS, 0);

/// Events in no counter or ring, by reason.
#[map]
pub static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(drop::REASONS, 0);

/// Calls of functions in progress, by thread: a probe at the end of a function sees the result, and no longer
/// the arguments. A call with a missed end gives way to others.
#[map]
pub static CALLS: LruHashMap<u64, Call> = LruHashMap::with_max_entries(limit::CALLS, 0);

/// A call in progress.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Call {
    /// One of [`crate::probed`].
    pub function: u64,
    /// The needed arguments.
    pub arguments: [u64; 2],
}

/// Counts in this CPU's value of a map: `first` for a new key, else `more` adds to the value; a full map
/// counts as a drop for `reason`.
#[inline(always)]
pub fn count<K, V>(
    map: &'static PerCpuHashMap<K, V>,
    key: &K,
    first: &V,
    more: impl Fn(Value<V>),
    reason: u32,
) {
    // SAFETY: the look-up has just returned it.
    let value = || map.get_ptr_mut(key).map(|value| unsafe { Value::new(value) });
    if let Some(value) = value() {
        more(value);
    } else if map.insert(key, first, u64::from(BPF_NOEXIST)).is_err() {
        // It was full, or another CPU or another task of this one has inserted the key meanwhile.
        match value() {
            Some(value) => more(value),
            None => count_drop(reason),
        }
    }
}

/// This CPU's cell of an array.
#[inline(always)]
pub fn cell<V>(map: &'static PerCpuArray<V>, index: u32) -> Option<Value<V>> {
    // SAFETY: the look-up has just returned it.
    map.get_ptr_mut(index).map(|value| unsafe { Value::new(value) })
}

/// A word of an array that all CPUs share.
#[inline(always)]
pub fn shared(map: &'static Array<u64>, index: u32) -> Option<Word> {
    // SAFETY: the look-up has just returned it.
    map.get_ptr_mut(index).map(|value| unsafe { Value::new(value) }.word::<0>())
}

/// Counts an event that no other counter has.
#[inline(always)]
pub fn count_drop(reason: u32) {
    if let Some(count) = cell(&DROPS, reason) {
        count.word::<0>().add_atomically(1);
    }
}

//! Counters of rare events: hooks of every kind count here, also those that may be preempted.

use core::mem::offset_of;

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use enforcer_common::{
    counter::drop,
    tally::{TallyCounts, TallyKey},
};

use crate::{cgroup, managed, maps, settings::OWN_TGID, words::Value};

/// Adds to both numbers of a row.
#[inline(always)]
pub fn add(slot: u32, what: u16, detail: u16, first: u64, second: u64) {
    let more = |tally: Value<TallyCounts>| {
        tally.word::<{ offset_of!(TallyCounts, first) }>().add_atomically(first);
        tally.word::<{ offset_of!(TallyCounts, second) }>().add_atomically(second);
    };
    let key = TallyKey { slot, what, detail };
    maps::count(&maps::TALLIES, &key, &TallyCounts { first, second }, more, drop::TALLIES);
}

/// Is the current thread the daemon's?
#[inline(always)]
pub fn is_own() -> bool {
    let own = OWN_TGID.load();
    own != 0 && bpf_get_current_pid_tgid() >> 32 == u64::from(own)
}

/// Slot of the current task's workload; `None` if it is not watched.
#[inline(always)]
pub fn slot_of_current() -> Option<u32> {
    cgroup::of_current().and_then(managed::of).map(managed::Entry::slot)
}

//! Sends single events, at a limited rate.
//!
//! At most one per workload, CPU and interval, and without waking the daemon, which polls: a wake-up in the
//! scheduler costs six times as much as the event. A ring that is half full wakes the daemon, before there is
//! no more room.

use core::mem::offset_of;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE},
    helpers::bpf_ktime_get_ns,
};
use enforcer_common::{
    counter::{Sent, drop},
    event::EventRecord,
};

use crate::{limiter, maps, settings::EVENT_INTERVAL};

/// Sends the event of a watched cgroup, unless one of its workload was sent recently: then it is not even
/// made.
#[inline(always)]
pub fn send(slot: u32, event: impl FnOnce(u64) -> EventRecord) {
    let interval = EVENT_INTERVAL.load();
    if interval > 0 {
        let Some(sent) = maps::cell(&maps::SENT, slot) else { return };
        let at = sent.word::<{ offset_of!(Sent, at) }>();
        let Some(now) = limiter::due(at.get(), interval) else {
            sent.word::<{ offset_of!(Sent, limited) }>().add(1);
            return;
        };
        at.set(now);
    }
    if let Some(mut entry) = maps::EVENTS.reserve::<EventRecord>(0) {
        // SAFETY: the helper has no precondition.
        entry.write(event(unsafe { bpf_ktime_get_ns() }));
        entry.submit(wake_up());
    } else {
        maps::count_drop(drop::EVENTS);
    }
}

/// Flags to submit a record that was just reserved in the ring of events: records in the eighth that follows
/// the first half wake the reader. It is a stretch and not a point, because records of other CPUs may lie
/// between any two.
#[inline(always)]
pub fn wake_up() -> u64 {
    let unread = maps::EVENTS.query(u64::from(BPF_RB_AVAIL_DATA));
    let size = maps::EVENTS.query(u64::from(BPF_RB_RING_SIZE));
    // One comparison: a position below the half wraps to more than any ring.
    let wakes = unread.wrapping_sub(size / 2) < size / 8;
    u64::from(if wakes { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP })
}

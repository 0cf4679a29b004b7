//! Sends events one by one, seldom.
//!
//! At most one per workload, CPU and interval, and without waking the daemon, which looks by itself: a
//! wake-up in the scheduler costs six times what the event does.

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, helpers::bpf_ktime_get_ns};
use enforcer_common::{counter::drop, event::Event};

use crate::{limiter, maps, settings::EVENT_INTERVAL};

/// Sends the event of a watched cgroup, unless one of its workload was sent a moment ago: then it is not even
/// made.
#[inline(always)]
pub fn send(slot: u32, event: impl FnOnce(u64) -> Event) {
    let interval = EVENT_INTERVAL.load();
    if interval > 0 {
        let Some(sent) = maps::cell(&maps::SENT, slot) else { return };
        let Some(now) = limiter::due(sent.at, interval) else {
            sent.limited += 1;
            return;
        };
        sent.at = now;
    }
    if let Some(mut entry) = maps::EVENTS.reserve::<Event>(0) {
        // SAFETY: the helper has no precondition.
        entry.write(event(unsafe { bpf_ktime_get_ns() }));
        entry.submit(u64::from(BPF_RB_NO_WAKEUP));
    } else {
        maps::dropped(drop::EVENTS);
    }
}

//! Sends events one by one, seldom.
//!
//! At most one per workload, CPU and interval, and without waking the daemon, which looks by itself: a
//! wake-up in the scheduler costs six times what the event does.

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, helpers::bpf_ktime_get_ns};
use enforcer_common::{counter::drop, event::Event};

use crate::{maps, settings::EVENT_INTERVAL_NS};

/// Sends an event of a watched cgroup, unless one of its workload was sent a moment ago.
#[inline(always)]
pub fn send(event: Event) {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let interval = EVENT_INTERVAL_NS.load();
    if interval > 0 {
        let Some(sent) = maps::cell(&maps::SENT, event.slot) else { return };
        if *sent != 0 && now - *sent < interval {
            maps::dropped(drop::LIMITED);
            return;
        }
        *sent = now;
    }
    if let Some(mut entry) = maps::EVENTS.reserve::<Event>(0) {
        entry.write(Event { time_ns: now, ..event });
        entry.submit(u64::from(BPF_RB_NO_WAKEUP));
    } else {
        maps::dropped(drop::EVENTS);
    }
}

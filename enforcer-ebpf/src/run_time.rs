//! Where tasks run: time on the CPUs of each node.
//!
//! The usual way is a clock on each CPU that counts for whoever runs there. A sample costs about 1 us, at
//! 99 Hz 0.01 % of a CPU, and needs neither BTF nor tracefs. The exact way, on request, is every context
//! switch: `current` is still the task that leaves.

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns};
use enforcer_common::{counter::drop, settings::TICK_NS};

use crate::{cgroup, managed, maps, settings::node_of};

/// One tick of this CPU's clock.
#[inline(always)]
pub fn tick() {
    ran(TICK_NS);
}

/// This CPU leaves a task for another.
#[inline(always)]
pub fn switched() {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(since) = maps::cell(&maps::SINCE, 0) else { return };
    let began = core::mem::replace(since, now);
    // The first switch that is seen says nothing about how long the task had run.
    if began != 0 {
        ran(now.wrapping_sub(began));
    }
}

/// The current task ran for so long; the idle task does not count.
#[inline(always)]
fn ran(ns: u64) {
    if bpf_get_current_pid_tgid() == 0 {
        return;
    }
    let Some(cgroup) = cgroup::of_current() else {
        maps::dropped(drop::UNKNOWN_CGROUP);
        return;
    };
    let Some(entry) = managed::of(cgroup) else { return };
    // SAFETY: the helper has no precondition.
    let Some(node) = node_of(unsafe { bpf_get_smp_processor_id() }) else { return };
    if let Some(time) = maps::cell(&maps::RUN_TIME, managed::cell_of(entry, node)) {
        time.ns += ns;
        time.samples += 1;
        if !managed::allows(entry, node) {
            time.misplaced_ns += ns;
        }
    }
}

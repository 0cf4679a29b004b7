//! Run time of tasks on the CPUs of each node.
//!
//! By default a clock on each CPU counts for the running task. A sample costs about 1 us, at 99 Hz 0.01 % of
//! a CPU, and needs neither BTF nor tracefs. The exact method, on request, is every context switch, which
//! names the task that leaves.

use core::mem::offset_of;

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns},
    programs::BtfTracePointContext,
};
use enforcer_common::{counter::RunTimeCounts, settings::TICK_NS};

use crate::{
    cgroup,
    checked::{Memory as _, Tracked},
    managed, maps,
    settings::{TASK_PID, node_of},
};

/// One tick of this CPU's clock; the idle task does not count.
#[inline(always)]
pub fn count_tick() {
    if bpf_get_current_pid_tgid() == 0 {
        return;
    }
    if let Some(cgroup) = cgroup::of_current() {
        add(cgroup, TICK_NS);
    }
}

/// This CPU leaves a task for another; the idle task does not count.
#[inline(always)]
pub fn count_switch(ctx: &BtfTracePointContext) {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(since) = maps::cell(&maps::SINCE, 0) else { return };
    let since = since.word::<0>();
    let began = since.get();
    since.set(now);
    let task = Tracked::argument(ctx, 1);
    // The first switch on a CPU does not show how long the task had run.
    if began != 0 && task.half(TASK_PID.load()) != 0 {
        add(cgroup::of_task(task), now.wrapping_sub(began));
    }
}

/// A task of this cgroup ran here for so long.
#[inline(always)]
fn add(cgroup: u64, ns: u64) {
    let Some(entry) = managed::of(cgroup) else { return };
    // SAFETY: the helper has no precondition.
    let Some(node) = node_of(unsafe { bpf_get_smp_processor_id() }) else { return };
    if let Some(time) = maps::cell(&maps::RUN_TIME, entry.cell(node)) {
        time.word::<{ offset_of!(RunTimeCounts, ns) }>().add(ns);
        time.word::<{ offset_of!(RunTimeCounts, samples) }>().add(1);
        if !entry.allows(node) {
            time.word::<{ offset_of!(RunTimeCounts, misplaced_ns) }>().add(ns);
        }
    }
}

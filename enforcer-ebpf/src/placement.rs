//! Tasks that the scheduler puts on a CPU of another NUMA node.
//!
//! Two hooks are needed. `sched_migrate_task` sees tasks that move; a task that was just forked is
//! placed without it and shows in `sched_wakeup_new`. In both, `current` is whoever causes the move,
//! not the task: everything is read from the argument.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use enforcer_common::{counter::drop, key::PlacementKey};

use crate::{
    cgroup, maps,
    settings::{TASK_CPU, node_of},
};

/// `set_task_cpu` is about to move the task; its `cpu` is still the old one.
#[inline(always)]
pub fn migrated(ctx: &BtfTracePointContext) {
    let task: *const u8 = ctx.arg(0);
    let destination: u32 = ctx.arg(1);
    count(ctx, task, cpu_of(task), destination);
}

/// `wake_up_new_task` has chosen the CPU of a new task; the parent runs on this one.
#[inline(always)]
pub fn started(ctx: &BtfTracePointContext) {
    let task: *const u8 = ctx.arg(0);
    // SAFETY: the helper has no precondition.
    let parent = unsafe { bpf_get_smp_processor_id() };
    count(ctx, task, parent, cpu_of(task));
}

#[inline(always)]
fn count(ctx: &BtfTracePointContext, task: *const u8, from: u32, to: u32) {
    let (Some(src), Some(dst)) = (node_of(from), node_of(to)) else { return };
    if src == dst {
        return;
    }
    let cgroup = cgroup::of_task(task);
    maps::count(&maps::PLACEMENTS, &PlacementKey { cgroup, src, dst }, drop::PLACEMENTS);
    debug!(ctx, "placement: cgroup {} from node {} to node {}", cgroup, src, dst);
}

#[inline(always)]
fn cpu_of(task: *const u8) -> u32 {
    // SAFETY: `task` is a tracepoint argument, so the verifier checks the load against BTF.
    unsafe { task.add(TASK_CPU.load() as usize).cast::<u32>().read_volatile() }
}

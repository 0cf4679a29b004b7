//! Tasks that the scheduler puts on a CPU of another NUMA node.
//!
//! Two hooks are needed. `sched_migrate_task` sees tasks that move; a task that was just forked is
//! placed without it and shows in `sched_wakeup_new`. In both, `current` is whoever causes the move,
//! not the task: everything is read from the argument. What stays on its node, and what is not watched,
//! is left as early as possible: this runs in the scheduler.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use enforcer_common::{
    counter::{Moves, drop},
    event::{Event, kind},
    key::MoveKey,
};

use crate::{
    cgroup, event, managed, maps,
    settings::{TASK_CPU, TASK_PID, node_of},
};

/// `set_task_cpu` is about to move the task; its `cpu` is still the old one.
#[inline(always)]
pub fn migrated(ctx: &BtfTracePointContext) {
    let task: *const u8 = ctx.arg(0);
    let destination: u32 = ctx.arg(1);
    count(ctx, task, cpu_of(task), destination, kind::MIGRATED);
}

/// `wake_up_new_task` has chosen the CPU of a new task; the parent runs on this one.
#[inline(always)]
pub fn started(ctx: &BtfTracePointContext) {
    let task: *const u8 = ctx.arg(0);
    // SAFETY: the helper has no precondition.
    let parent = unsafe { bpf_get_smp_processor_id() };
    count(ctx, task, parent, cpu_of(task), kind::STARTED);
}

#[inline(always)]
fn count(ctx: &BtfTracePointContext, task: *const u8, from: u32, to: u32, kind: u16) {
    // One after the other: the verifier follows each of them alone.
    let Some(src) = node_of(from) else { return };
    let Some(dst) = node_of(to) else { return };
    let started = kind == kind::STARTED;
    // A new task on its parent's node counts too: both may be where they should not.
    if src == dst && !started {
        return;
    }
    let cgroup = cgroup::of_task(task);
    let Some(entry) = managed::of(cgroup) else { return };
    let misplaced = !managed::allows(entry, dst);
    let slot = entry.slot;
    #[expect(clippy::cast_possible_truncation, reason = "an index of a node is below 1024")]
    let (src, dst) = (src as u16, dst as u16);
    let first =
        Moves { migrated: u64::from(!started), started: u64::from(started), misplaced: u64::from(misplaced) };
    let more = |moves: &mut Moves| {
        moves.migrated += first.migrated;
        moves.started += first.started;
        moves.misplaced += first.misplaced;
    };
    maps::count(&maps::MOVES, &MoveKey { slot, src, dst }, &first, more, drop::MOVES);
    if misplaced {
        event::send(Event { cgroup, tid: tid_of(task), slot, kind, src, dst, ..Event::default() });
    }
    debug!(ctx, "placement: cgroup {} from node {} to node {}", cgroup, src, dst);
}

#[inline(always)]
fn cpu_of(task: *const u8) -> u32 {
    read(task, TASK_CPU.load())
}

#[inline(always)]
fn tid_of(task: *const u8) -> u32 {
    read(task, TASK_PID.load())
}

#[inline(always)]
fn read(task: *const u8, offset: u32) -> u32 {
    // SAFETY: `task` is a tracepoint argument, so the verifier checks the load against BTF.
    unsafe { task.add(offset as usize).cast::<u32>().read_volatile() }
}

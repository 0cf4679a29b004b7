//! Tasks that the scheduler puts on a CPU of another NUMA node.
//!
//! Two hooks are needed. `sched_migrate_task` sees tasks that move; a task that was just forked is placed
//! without it and shows in `sched_wakeup_new`. In both, `current` is the task that causes the move, not the
//! moved one: everything is read from the argument. Moves within a node, and unwatched tasks, are left as
//! early as possible: this runs in the scheduler.

use core::mem::offset_of;

use aya_ebpf::{helpers::bpf_get_smp_processor_id, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use enforcer_common::{
    counter::{Moves, drop},
    event::{EventRecord, kind},
    key::MoveKey,
};

use crate::{
    cgroup,
    checked::{Memory as _, Tracked},
    event, managed, maps,
    settings::{MOVE_TABLE, NODES, TASK_CPU, TASK_PID, node_of},
    words::Value,
};

/// `set_task_cpu` is about to move the task; its `cpu` is still the old one.
#[inline(always)]
pub fn count_migration(ctx: &BtfTracePointContext) {
    let task = Tracked::argument(ctx, 0);
    let destination: u32 = ctx.arg(1);
    count(ctx, task, task.half(TASK_CPU.load()), destination, kind::MIGRATED);
}

/// `wake_up_new_task` has chosen the CPU of a new task; the parent runs on this one.
#[inline(always)]
pub fn count_start(ctx: &BtfTracePointContext) {
    let task = Tracked::argument(ctx, 0);
    // SAFETY: the helper has no precondition.
    let parent = unsafe { bpf_get_smp_processor_id() };
    count(ctx, task, parent, task.half(TASK_CPU.load()), kind::STARTED);
}

#[inline(always)]
fn count(ctx: &BtfTracePointContext, task: Tracked, from: u32, to: u32, kind: u16) {
    // One after the other: the verifier follows each of them alone.
    let Some(src) = node_of(from) else { return };
    let Some(dst) = node_of(to) else { return };
    let started = kind == kind::STARTED;
    // A new task on its parent's node counts too: both may be on a node that they may not use.
    if src == dst && !started {
        return;
    }
    let cgroup = cgroup::of_task(task);
    let Some(entry) = managed::of(cgroup) else { return };
    let misplaced = !entry.allows(dst);
    let slot = entry.slot();
    let one =
        Moves { migrated: u64::from(!started), started: u64::from(started), misplaced: u64::from(misplaced) };
    if MOVE_TABLE.load() == 0 {
        into_hash(slot, src, dst, &one);
    } else if let Some(moves) =
        maps::cell(&maps::MOVE_CELLS, (slot * NODES.load() + src) * NODES.load() + dst)
    {
        add(moves, &one);
    }
    if misplaced {
        event::send(slot, |time_ns| {
            let (src, dst) = (short(src), short(dst));
            let tid = task.half(TASK_PID.load());
            EventRecord { time_ns, cgroup, tid, slot, kind, src, dst, detail: 0 }
        });
    }
    debug!(ctx, "placement: cgroup {} from node {} to node {}", cgroup, src, dst);
}

/// Used with many nodes, when few of their pairs occur.
#[inline(always)]
fn into_hash(slot: u32, src: u32, dst: u32, one: &Moves) {
    let key = MoveKey { slot, src: short(src), dst: short(dst) };
    maps::count(&maps::MOVES, &key, one, |moves| add(moves, one), drop::MOVES);
}

#[inline(always)]
fn add(moves: Value<Moves>, one: &Moves) {
    moves.word::<{ offset_of!(Moves, migrated) }>().add(one.migrated);
    moves.word::<{ offset_of!(Moves, started) }>().add(one.started);
    moves.word::<{ offset_of!(Moves, misplaced) }>().add(one.misplaced);
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "an index of a node is below 1024")]
const fn short(node: u32) -> u16 {
    node as u16
}

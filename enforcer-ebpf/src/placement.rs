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
    cgroup,
    checked::load,
    event, managed, maps,
    settings::{MOVE_TABLE, NODES, TASK_CPU, TASK_PID, node_of},
};

/// `set_task_cpu` is about to move the task; its `cpu` is still the old one.
#[inline(always)]
pub fn migrated(ctx: &BtfTracePointContext) {
    let task: *const u8 = ctx.arg(0);
    let destination: u32 = ctx.arg(1);
    count(ctx, task, load(task, TASK_CPU.load()), destination, kind::MIGRATED);
}

/// `wake_up_new_task` has chosen the CPU of a new task; the parent runs on this one.
#[inline(always)]
pub fn started(ctx: &BtfTracePointContext) {
    let task: *const u8 = ctx.arg(0);
    // SAFETY: the helper has no precondition.
    let parent = unsafe { bpf_get_smp_processor_id() };
    count(ctx, task, parent, load(task, TASK_CPU.load()), kind::STARTED);
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
            let tid = load(task, TASK_PID.load());
            Event { time_ns, cgroup, tid, slot, kind, src, dst, detail: 0 }
        });
    }
    debug!(ctx, "placement: cgroup {} from node {} to node {}", cgroup, src, dst);
}

/// Where nodes are many and few of their pairs are used.
#[inline(always)]
fn into_hash(slot: u32, src: u32, dst: u32, one: &Moves) {
    let key = MoveKey { slot, src: short(src), dst: short(dst) };
    maps::count(&maps::MOVES, &key, one, |moves| add(moves, one), drop::MOVES);
}

#[inline(always)]
fn add(moves: &mut Moves, one: &Moves) {
    moves.migrated += one.migrated;
    moves.started += one.started;
    moves.misplaced += one.misplaced;
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "an index of a node is below 1024")]
const fn short(node: u32) -> u16 {
    node as u16
}

//! Actions of the kernel's NUMA balancer on tasks, and scans that it skips.
//!
//! The moves themselves are counted as placements; these counters show that the balancer caused them. Skipped
//! scans explain why a workload has no hinting faults: without a scan there are no faults.

use aya_ebpf::programs::BtfTracePointContext;
use enforcer_common::tally::{skip, step, what};

use crate::{cgroup, checked::Tracked, managed, settings::SKIP_UNSUITABLE, tally};

/// A task is moved to the node of its memory.
#[inline(always)]
pub fn count_move(ctx: &BtfTracePointContext) {
    count(Tracked::argument(ctx, 0), step::MOVED);
}

/// A task should be moved, and the move failed.
#[inline(always)]
pub fn count_failed_move(ctx: &BtfTracePointContext) {
    count(Tracked::argument(ctx, 0), step::STUCK);
}

/// Two tasks change places.
#[inline(always)]
pub fn count_swap(ctx: &BtfTracePointContext) {
    count(Tracked::argument(ctx, 0), step::SWAPPED);
    let other = Tracked::argument(ctx, 2);
    if !other.is_null() {
        count(other, step::SWAPPED);
    }
}

/// The scan of the current task skips a mapping.
#[inline(always)]
pub fn count_mapping_skip(ctx: &BtfTracePointContext) {
    let reason: u32 = ctx.arg(2);
    count_skip(if reason == SKIP_UNSUITABLE.load() { skip::UNSUITABLE } else { skip::PASSED });
}

/// The current task is not scanned, because its cpuset has one node.
#[inline(always)]
pub fn count_task_skip() {
    count_skip(skip::ONE_NODE);
}

#[inline(always)]
fn count_skip(skip: u16) {
    if let Some(slot) = tally::slot_of_current() {
        tally::add(slot, what::SKIPS, skip, 1, 0);
    }
}

#[inline(always)]
fn count(task: Tracked, step: u16) {
    if let Some(entry) = managed::of(cgroup::of_task(task)) {
        tally::add(entry.slot(), what::BALANCER, step, 1, 0);
    }
}

//! A NUMA node runs out of memory: sent at once, with a wake-up of the reader.
//!
//! From the first sign, the wake-up of a node's kswapd, to the OOM killer there are about 50 ms if a task
//! allocates fast. A node sends a kind of event once in an interval, so that lasting pressure does not wake
//! the reader all the time; a kill is always sent.
//!
//! The bound of an allocation is known only inside of `out_of_memory`, which calls `mark_victim`. Its
//! argument is remembered on entry, and forgotten when the function returns, because it lies on the stack of
//! the thread. Both run under one lock of the kernel, so one place is enough.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_get_numa_node_id, bpf_ktime_get_ns, bpf_probe_read_kernel},
    programs::BtfTracePointContext,
};
use enforcer_common::{
    counter::drop,
    limit,
    pressure::{NO_CONSTRAINT, PressureRecord, kind, oom},
};

use crate::{
    cgroup,
    checked::{Memory, Tracked},
    limiter, maps,
    settings::{
        OOM_CONSTRAINT, PRESSURE_INTERVAL, RECLAIM_ORDER, TASK_PID, VICTIM_IS_TASK, ZONE_NODE, ZONEREF_ZONE,
    },
};

/// A node's kswapd was woken for an allocation.
#[inline(always)]
pub fn report_kswapd_wakeup(ctx: &BtfTracePointContext) {
    let node: u32 = ctx.arg(0);
    let order: u32 = ctx.arg(2);
    send_limited(kind::KSWAPD_WOKEN, node, order);
}

/// A node's kswapd would be woken for an allocation. The kernel does not wake it while it is hopeless, that
/// is after it found nothing to reclaim several times (`wakeup_kswapd`, mm/vmscan.c). The tracepoint is
/// silent then; this probe is not.
#[inline(always)]
pub fn report_kswapd_request(zone: impl Memory, order: u32) {
    send_limited(kind::KSWAPD_WOKEN, zone.half(ZONE_NODE.load()), order);
}

/// The current task reclaims memory itself.
#[inline(always)]
pub fn report_direct_reclaim(ctx: &BtfTracePointContext) {
    let order: u32 = if RECLAIM_ORDER.load() == 0 { ctx.arg(0) } else { ctx.arg(1) };
    send_limited(kind::DIRECT_RECLAIM, current_node(), order);
}

/// The last try before the OOM killer.
#[inline(always)]
pub fn report_reclaim_retry(ctx: &BtfTracePointContext) {
    let zoneref = Tracked::argument(ctx, 0);
    let order: u32 = ctx.arg(1);
    let node = zoneref.follow(ZONEREF_ZONE.load()).half(ZONE_NODE.load());
    send_limited(kind::RECLAIM_RETRY, node, order);
}

/// An OOM kill begins; `control` is the address of its `struct oom_control`.
#[inline(always)]
pub fn remember_oom_kill(control: u64) {
    let Some(thread) = maps::shared(&maps::OOM, oom::THREAD) else { return };
    let Some(call) = maps::shared(&maps::OOM, oom::CONTROL) else { return };
    thread.set(bpf_get_current_pid_tgid());
    call.set(control);
}

/// It is over: from now on the address is that of a reused stack.
#[inline(always)]
pub fn forget_oom_kill() {
    let Some(thread) = maps::shared(&maps::OOM, oom::THREAD) else { return };
    let Some(call) = maps::shared(&maps::OOM, oom::CONTROL) else { return };
    if thread.get() == bpf_get_current_pid_tgid() {
        call.set(0);
        thread.set(0);
    }
}

/// The OOM killer has chosen a task.
#[inline(always)]
pub fn report_victim(ctx: &BtfTracePointContext) {
    let tid: u32 =
        if VICTIM_IS_TASK.load() == 0 { ctx.arg(0) } else { Tracked::argument(ctx, 0).half(TASK_PID.load()) };
    send(kind::VICTIM, current_node(), 0, tid, constraint());
}

/// The bound of the allocation that the kill is for.
#[inline(always)]
fn constraint() -> u32 {
    // A setting, so that the verifier does not see the helper where the kernel does not allow it.
    if OOM_CONSTRAINT.load() == 0 {
        return NO_CONSTRAINT;
    }
    let Some(thread) = maps::shared(&maps::OOM, oom::THREAD) else { return NO_CONSTRAINT };
    let Some(call) = maps::shared(&maps::OOM, oom::CONTROL) else { return NO_CONSTRAINT };
    let control = call.get();
    if control == 0 || thread.get() != bpf_get_current_pid_tgid() {
        return NO_CONSTRAINT;
    }
    let address = control + u64::from(OOM_CONSTRAINT.load());
    // SAFETY: the helper copies with fault handling; any address is allowed.
    unsafe { bpf_probe_read_kernel(address as *const u32) }.unwrap_or(NO_CONSTRAINT)
}

#[inline(always)]
fn current_node() -> u32 {
    // SAFETY: the helper has no precondition.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an id of a node is small")]
    let node = unsafe { bpf_get_numa_node_id() } as u32;
    node
}

/// Sends an event unless the node sent one of its kind recently.
#[inline(always)]
fn send_limited(kind: u16, node: u32, order: u32) {
    #[expect(clippy::cast_possible_truncation, reason = "1024")]
    let row = u32::from(kind) * limit::NODES as u32;
    #[expect(clippy::cast_possible_truncation, reason = "1023")]
    let index = row + (node & (limit::NODES as u32 - 1));
    let interval = PRESSURE_INTERVAL.load();
    if interval > 0 {
        let Some(last) = maps::shared(&maps::LAST_PRESSURE, index) else { return };
        // Two CPUs may both find that it is time: then both send one.
        let Some(now) = limiter::due(last.get(), interval) else {
            maps::count_drop(drop::PRESSURE_LIMITED);
            return;
        };
        last.set(now);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the thread")]
    let tid = bpf_get_current_pid_tgid() as u32;
    send(kind, node, order, tid, NO_CONSTRAINT);
}

#[inline(always)]
fn send(kind: u16, node: u32, order: u32, tid: u32, constraint: u32) {
    // SAFETY: the helper has no precondition.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let cgroup = cgroup::peek_current().unwrap_or(0);
    #[expect(clippy::cast_possible_truncation, reason = "an order is below 64")]
    let order = order as u16;
    if let Some(mut entry) = maps::PRESSURE.reserve::<PressureRecord>(0) {
        entry.write(PressureRecord { time_ns, cgroup, tid, node, kind, order, constraint });
        // Wakes the reader if it has read what was there.
        entry.submit(0);
    } else {
        maps::count_drop(drop::PRESSURE);
    }
}

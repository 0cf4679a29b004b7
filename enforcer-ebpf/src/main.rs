//! The programs that run in the kernel: entry points only, one line each.
//!
//! Each family of hooks has a file of its own, every map is in [`maps`], every load-time setting in
//! [`settings`]. A program counts, and sends what is rare: it never blocks, never waits for the daemon,
//! and when a map or a ring is full it counts the event as dropped. All of them go away with the daemon,
//! because their links are file descriptors of it.
//!
//! Each hook is loaded on its own; the daemon reports those that this kernel refuses.
#![no_std]
#![no_main]
// Inline assembly for BPF is unstable.
#![feature(asm_experimental_arch)]

mod balancer;
mod cgroup;
mod change;
mod checked;
mod event;
mod fault;
mod hardware;
mod limiter;
mod managed;
mod maps;
mod pages;
mod placement;
mod pressure;
mod probed;
mod run_time;
mod settings;
mod tally;
mod words;

use aya_ebpf::{
    macros::{btf_tracepoint, fentry, fexit, kprobe, kretprobe, perf_event, raw_tracepoint},
    programs::{
        BtfTracePointContext, FEntryContext, FExitContext, PerfEventContext, ProbeContext,
        RawTracePointContext, RetProbeContext,
    },
};

use crate::checked::{Memory as _, Tracked};

/// `sched:sched_migrate_task(task, dest_cpu)`
#[btf_tracepoint(function = "sched_migrate_task")]
pub fn sched_migrate_task(ctx: BtfTracePointContext) -> i32 {
    placement::count_migration(&ctx);
    0
}

/// `sched:sched_wakeup_new(task)`
#[btf_tracepoint(function = "sched_wakeup_new")]
pub fn sched_wakeup_new(ctx: BtfTracePointContext) -> i32 {
    placement::count_start(&ctx);
    0
}

/// `sched:sched_switch(preempt, prev, next)`; since 5.18 with `prev_state`
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    run_time::count_switch(&ctx);
    0
}

/// `cgroup:cgroup_mkdir(cgroup, path)`
#[btf_tracepoint(function = "cgroup_mkdir")]
pub fn cgroup_mkdir(ctx: BtfTracePointContext) -> i32 {
    managed::watch_new_cgroup(&ctx);
    0
}

/// `cgroup:cgroup_rmdir(cgroup, path)`
#[btf_tracepoint(function = "cgroup_rmdir")]
pub fn cgroup_rmdir(ctx: BtfTracePointContext) -> i32 {
    managed::forget_removed_cgroup(&ctx);
    0
}

/// The software clock of each CPU, at a fixed rate.
#[perf_event]
pub fn cpu_clock(_ctx: PerfEventContext) -> u32 {
    run_time::count_tick();
    0
}

/// One tick of the clock whenever a test says so: attached nowhere, and loaded by tests alone. The kernel
/// runs raw tracepoint programs on demand (`BPF_PROG_TEST_RUN`), perf event programs it does not.
#[raw_tracepoint]
pub fn rehearsed_tick(_ctx: RawTracePointContext) -> i32 {
    run_time::count_tick();
    0
}

/// Overflow of the counter beside that of remote accesses
#[perf_event]
pub fn hardware_near(_ctx: PerfEventContext) -> u32 {
    hardware::count_near();
    0
}

/// Overflow of the counter of remote accesses
#[perf_event]
pub fn hardware_remote(_ctx: PerfEventContext) -> u32 {
    hardware::count_remote();
    0
}

/// `task_numa_fault(last_cpupid, mem_node, pages, flags)`
#[fentry(function = "task_numa_fault")]
pub fn task_numa_fault(ctx: FEntryContext) -> i32 {
    fault::count(&ctx, ctx.arg(1), ctx.arg(2), ctx.arg(3));
    0
}

/// `vmscan:mm_vmscan_wakeup_kswapd(nid, zid, order, gfp_flags)`
#[btf_tracepoint(function = "mm_vmscan_wakeup_kswapd")]
pub fn mm_vmscan_wakeup_kswapd(ctx: BtfTracePointContext) -> i32 {
    pressure::report_kswapd_wakeup(&ctx);
    0
}

/// `wakeup_kswapd(zone, gfp_flags, order, highest_zoneidx)`
#[fentry(function = "wakeup_kswapd")]
pub fn wakeup_kswapd(ctx: FEntryContext) -> i32 {
    pressure::report_kswapd_request(Tracked::argument(&ctx, 0), ctx.arg(2));
    0
}

/// `vmscan:mm_vmscan_direct_reclaim_begin(order, gfp_flags)`; `(gfp_flags, order, memcg)` since 7.2
#[btf_tracepoint(function = "mm_vmscan_direct_reclaim_begin")]
pub fn mm_vmscan_direct_reclaim_begin(ctx: BtfTracePointContext) -> i32 {
    pressure::report_direct_reclaim(&ctx);
    0
}

/// `oom:reclaim_retry_zone(zoneref, order, ...)`
#[btf_tracepoint(function = "reclaim_retry_zone")]
pub fn reclaim_retry_zone(ctx: BtfTracePointContext) -> i32 {
    pressure::report_reclaim_retry(&ctx);
    0
}

/// `oom:mark_victim(pid)`, or `(task, uid)`: that changed inside stable series
#[btf_tracepoint(function = "mark_victim")]
pub fn mark_victim(ctx: BtfTracePointContext) -> i32 {
    pressure::report_victim(&ctx);
    0
}

/// `out_of_memory(oom_control)`
#[fentry(function = "out_of_memory")]
pub fn out_of_memory(ctx: FEntryContext) -> i32 {
    pressure::remember_oom_kill(Tracked::argument(&ctx, 0).address());
    0
}

/// The end of `out_of_memory`
#[fexit(function = "out_of_memory")]
pub fn out_of_memory_ends(_ctx: FExitContext) -> i32 {
    pressure::forget_oom_kill();
    0
}

/// `migrate:mm_migrate_pages(succeeded, failed, ..., mode, reason)`
#[btf_tracepoint(function = "mm_migrate_pages")]
pub fn mm_migrate_pages(ctx: BtfTracePointContext) -> i32 {
    pages::count(&ctx);
    0
}

/// `sched:sched_move_numa(task, src_cpu, dst_cpu)`
#[btf_tracepoint(function = "sched_move_numa")]
pub fn sched_move_numa(ctx: BtfTracePointContext) -> i32 {
    balancer::count_move(&ctx);
    0
}

/// `sched:sched_stick_numa(task, src_cpu, other_task, dst_cpu)`
#[btf_tracepoint(function = "sched_stick_numa")]
pub fn sched_stick_numa(ctx: BtfTracePointContext) -> i32 {
    balancer::count_failed_move(&ctx);
    0
}

/// `sched:sched_swap_numa(task, src_cpu, other_task, dst_cpu)`
#[btf_tracepoint(function = "sched_swap_numa")]
pub fn sched_swap_numa(ctx: BtfTracePointContext) -> i32 {
    balancer::count_swap(&ctx);
    0
}

/// `sched:sched_skip_vma_numa(mm, vma, reason)`; since 6.7
#[btf_tracepoint(function = "sched_skip_vma_numa")]
pub fn sched_skip_vma_numa(ctx: BtfTracePointContext) -> i32 {
    balancer::count_mapping_skip(&ctx);
    0
}

/// `sched:sched_skip_cpuset_numa(task, allowed_nodes)`; since 6.17
#[btf_tracepoint(function = "sched_skip_cpuset_numa")]
pub fn sched_skip_cpuset_numa(_ctx: BtfTracePointContext) -> i32 {
    balancer::count_task_skip();
    0
}

/// `cpuset_write_resmask(open_file, text, length, offset)`
#[fexit(function = "cpuset_write_resmask")]
pub fn cpuset_write_resmask(ctx: FExitContext) -> i32 {
    change::report_cpuset_write(Tracked::argument(&ctx, 0), ctx.arg(4));
    0
}

/// `do_set_mempolicy(mode, flags, nodes)`
#[fexit(function = "do_set_mempolicy")]
pub fn do_set_mempolicy(ctx: FExitContext) -> i32 {
    change::report_task_policy(ctx.arg(0), Tracked::argument(&ctx, 2).address(), ctx.arg(3));
    0
}

/// `do_mbind(start, length, mode, mode_flags, nodes, flags)`
#[fexit(function = "do_mbind")]
pub fn do_mbind(ctx: FExitContext) -> i32 {
    change::report_range_policy(ctx.arg(2), Tracked::argument(&ctx, 4).address(), ctx.arg(6));
    0
}

/// `task_numa_fault` by a kprobe: each of these stands in for the one above with a trampoline.
#[kprobe]
pub fn probe_hinting_fault(ctx: ProbeContext) -> u32 {
    probed::hinting_fault(&ctx);
    0
}

/// `wakeup_kswapd`
#[kprobe]
pub fn probe_kswapd(ctx: ProbeContext) -> u32 {
    probed::kswapd_request(&ctx);
    0
}

/// `out_of_memory`
#[kprobe]
pub fn probe_oom(ctx: ProbeContext) -> u32 {
    probed::oom_kill_begins(&ctx);
    0
}

/// The end of `out_of_memory`
#[kretprobe]
pub fn probe_oom_ends(_ctx: RetProbeContext) -> u32 {
    pressure::forget_oom_kill();
    0
}

/// `cpuset_write_resmask`
#[kprobe]
pub fn probe_cpuset(ctx: ProbeContext) -> u32 {
    probed::cpuset_write_begins(&ctx);
    0
}

/// The end of `cpuset_write_resmask`
#[kretprobe]
pub fn probe_cpuset_ends(ctx: RetProbeContext) -> u32 {
    probed::cpuset_write_ends(&ctx);
    0
}

/// `do_set_mempolicy`
#[kprobe]
pub fn probe_policy(ctx: ProbeContext) -> u32 {
    probed::set_mempolicy_begins(&ctx);
    0
}

/// The end of `do_set_mempolicy`
#[kretprobe]
pub fn probe_policy_ends(ctx: RetProbeContext) -> u32 {
    probed::set_mempolicy_ends(&ctx);
    0
}

/// `do_mbind`
#[kprobe]
pub fn probe_mbind(ctx: ProbeContext) -> u32 {
    probed::mbind_begins(&ctx);
    0
}

/// The end of `do_mbind`
#[kretprobe]
pub fn probe_mbind_ends(ctx: RetProbeContext) -> u32 {
    probed::mbind_ends(&ctx);
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The helpers that are used are GPL-only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

//! The same functions as those with trampolines, seen by kprobes where the kernel refuses trampolines.
//!
//! A kprobe finds the arguments in the registers, untyped, and only at the beginning; a probe at the end
//! finds the result alone. So the arguments are remembered at the beginning, by thread: none of these
//! functions calls itself or another of them. Pointers among the arguments belong to the caller, which waits
//! for the end.

use core::mem::offset_of;

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::bpf_get_current_pid_tgid,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    change,
    checked::Probed,
    fault,
    maps::{self, Call},
    pressure,
    words::Value,
};

/// `cpuset_write_resmask`
const CPUSET_WRITE: u64 = 1;
/// `do_set_mempolicy`
const SET_MEMPOLICY: u64 = 2;
/// `do_mbind`
const MBIND: u64 = 3;

#[inline(always)]
pub fn hinting_fault(ctx: &ProbeContext) {
    let (Some(node), Some(pages), Some(flags)) = (ctx.arg(1), ctx.arg(2), ctx.arg(3)) else { return };
    fault::count(ctx, node, pages, flags);
}

#[inline(always)]
pub fn kswapd_request(ctx: &ProbeContext) {
    let (Some(zone), Some(order)) = (ctx.arg(0), ctx.arg(2)) else { return };
    pressure::report_kswapd_request(Probed(zone), order);
}

#[inline(always)]
pub fn oom_kill_begins(ctx: &ProbeContext) {
    let Some(control) = ctx.arg(0) else { return };
    pressure::remember_oom_kill(control);
}

#[inline(always)]
pub fn cpuset_write_begins(ctx: &ProbeContext) {
    let Some(open) = ctx.arg(0) else { return };
    remember(CPUSET_WRITE, [open, 0]);
}

#[inline(always)]
pub fn cpuset_write_ends(ctx: &RetProbeContext) {
    if let Some([open, _]) = take_arguments(CPUSET_WRITE) {
        change::report_cpuset_write(Probed(open), ctx.ret());
    }
}

#[inline(always)]
pub fn set_mempolicy_begins(ctx: &ProbeContext) {
    let (Some(mode), Some(nodes)) = (ctx.arg(0), ctx.arg(2)) else { return };
    remember(SET_MEMPOLICY, [mode, nodes]);
}

#[inline(always)]
pub fn set_mempolicy_ends(ctx: &RetProbeContext) {
    if let Some([mode, nodes]) = take_arguments(SET_MEMPOLICY) {
        change::report_task_policy(short(mode), nodes, ctx.ret());
    }
}

#[inline(always)]
pub fn mbind_begins(ctx: &ProbeContext) {
    let (Some(mode), Some(nodes)) = (ctx.arg(2), ctx.arg(4)) else { return };
    remember(MBIND, [mode, nodes]);
}

#[inline(always)]
pub fn mbind_ends(ctx: &RetProbeContext) {
    if let Some([mode, nodes]) = take_arguments(MBIND) {
        change::report_range_policy(short(mode), nodes, ctx.ret());
    }
}

/// The mode is an `unsigned short`: the caller may leave anything above it in the register.
#[inline(always)]
const fn short(mode: u64) -> u32 {
    (mode & 0xffff) as u32
}

#[inline(always)]
fn remember(function: u64, arguments: [u64; 2]) {
    // A full map gives up its oldest entry.
    let _ = maps::CALLS.insert(bpf_get_current_pid_tgid(), Call { function, arguments }, u64::from(BPF_ANY));
}

/// The arguments of the call; `None` if its beginning was missed.
#[inline(always)]
fn take_arguments(function: u64) -> Option<[u64; 2]> {
    let thread = bpf_get_current_pid_tgid();
    // SAFETY: the look-up has just returned it.
    let call = maps::CALLS.get_ptr_mut(thread).map(|call| unsafe { Value::new(call) })?;
    let found = call.word::<{ offset_of!(Call, function) }>().get();
    let argument = |at| call.of_row::<{ offset_of!(Call, arguments) }, 2>(at).get();
    let arguments = [argument(0), argument(1)];
    let _ = maps::CALLS.remove(thread);
    (found == function).then_some(arguments)
}

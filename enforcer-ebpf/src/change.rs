//! Changes of a workload's CPUs or memory nodes: a cpuset write, or a new memory policy.
//!
//! Both are seen at the end of the function, so a refused change is none, and a reader of the event finds it
//! done. Writes of the daemon are left out.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_RB_CONS_POS, BPF_RB_PROD_POS},
    helpers::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_kernel, generated,
    },
};
use enforcer_common::{
    change::{ChangeRecord, KINDS, POLICY, file, scope},
    counter::drop,
    event::{EventRecord, kind},
    limit::NODE_WORDS,
    tally::what,
};

use crate::{
    cgroup,
    checked::Memory,
    event, managed, maps,
    settings::{KN_ID, KN_NAME, KN_PARENT, NODE_MASK_BYTES, OPEN_FILE_KN},
    tally,
};

/// Bytes of the largest set of nodes.
#[expect(clippy::cast_possible_truncation, reason = "128")]
const MASK_BYTES: u32 = size_of::<[u64; NODE_WORDS]>() as u32;

/// A file of a cpuset was written; `written` is the number of bytes, or an error.
#[inline(always)]
pub fn report_cpuset_write(open: impl Memory, written: i64) {
    if written <= 0 || tally::is_own() {
        return;
    }
    let kn = open.follow(OPEN_FILE_KN.load());
    let cgroup = kn.follow(KN_PARENT.load()).word(KN_ID.load());
    let Some(entry) = managed::of(cgroup) else { return };
    let slot = entry.slot();
    let file = file_named(kn.follow(KN_NAME.load()).address());
    tally::add(slot, what::CPUSET_WRITES, file, 1, 0);
    let event =
        EventRecord { cgroup, slot, kind: kind::CPUSET_WRITTEN, detail: file, ..EventRecord::default() };
    send(event, u32::from(file), scope::NONE, 0);
}

/// The current thread has a new memory policy; `nodes` is the address of its mask. A result that is not 0
/// is an error.
#[inline(always)]
pub fn report_task_policy(mode: u32, nodes: u64, result: i64) {
    if result == 0 {
        report_policy(mode, nodes, scope::TASK, what::TASK_POLICIES);
    }
}

/// The same for a range of addresses of the current process.
#[inline(always)]
pub fn report_range_policy(mode: u32, nodes: u64, result: i64) {
    if result == 0 {
        report_policy(mode, nodes, scope::RANGE, what::RANGE_POLICIES);
    }
}

#[inline(always)]
fn report_policy(mode: u32, nodes: u64, scope: u32, what: u16) {
    let Some(cgroup) = cgroup::of_current() else { return };
    let Some(entry) = managed::of(cgroup) else { return };
    let slot = entry.slot();
    #[expect(clippy::cast_possible_truncation, reason = "an argument of 16 bits")]
    let mode = mode as u16;
    tally::add(slot, what, mode, 1, 0);
    let event = EventRecord { cgroup, slot, kind: kind::POLICY_SET, detail: mode, ..EventRecord::default() };
    send(event, POLICY, scope, nodes);
}

/// The file by its name, which the first twelve bytes determine.
#[inline(always)]
fn file_named(name: u64) -> u16 {
    // SAFETY: the helper copies with fault handling; any address is allowed.
    let start = unsafe { bpf_probe_read_kernel(name as *const u64) }.unwrap_or(0);
    // SAFETY: as above.
    let end = unsafe { bpf_probe_read_kernel(name.wrapping_add(8) as *const u32) }.unwrap_or(0);
    if start == u64::from_ne_bytes(*b"cpuset.c") && end == u32::from_ne_bytes(*b"pus\0") {
        file::CPUS
    } else if start == u64::from_ne_bytes(*b"cpuset.m") && end == u32::from_ne_bytes(*b"ems\0") {
        file::MEMS
    } else {
        file::OTHER
    }
}

/// Sends a change, unless a similar one lies in the ring unread: its reader looks after this one too.
#[inline(always)]
fn send(event: EventRecord, like: u32, scope: u32, nodes: u64) {
    let Some(last) = maps::shared(&maps::LAST_CHANGE, event.slot * KINDS + like) else { return };
    let end = maps::EVENTS.query(u64::from(BPF_RB_PROD_POS));
    if last.get() != 0 && maps::EVENTS.query(u64::from(BPF_RB_CONS_POS)) < last.get() {
        maps::count_drop(drop::CHANGES_UNREAD);
        return;
    }
    let thread = bpf_get_current_pid_tgid();
    // SAFETY: the helper has no precondition.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    #[expect(clippy::cast_possible_truncation, reason = "the halves are process and thread")]
    let (process, tid) = ((thread >> 32) as u32, thread as u32);
    let comm = bpf_get_current_comm().unwrap_or_default();
    if let Some(mut entry) = maps::EVENTS.reserve::<ChangeRecord>(0) {
        let event = EventRecord { time_ns, tid, ..event };
        entry.write(ChangeRecord { event, tgid: process, scope, comm, nodes: [0; NODE_WORDS] });
        if scope != scope::NONE {
            // The record has room for the largest mask that a kernel can have.
            let bytes = NODE_MASK_BYTES.load().min(MASK_BYTES);
            // SAFETY: so many bytes are inside of the record, which is ours until it is submitted; the helper
            // copies with fault handling from any address.
            let _zeroes_if_unreadable = unsafe {
                let mask = &raw mut (*entry.as_mut_ptr()).nodes;
                generated::bpf_probe_read_kernel(mask.cast(), bytes, nodes as *const c_void)
            };
        }
        entry.submit(event::wake_up());
        // It begins there or later, and positions begin with 0.
        last.set(end + 1);
    } else {
        maps::count_drop(drop::CHANGES);
    }
}

//! Accesses to DRAM, local and remote: a hardware counter of this CPU overflowed.
//!
//! Runs in an NMI, which may neither wait nor insert: only look-ups and this CPU's own array cells. A whole
//! period is charged to the running task; over many overflows that is a fair share, and the task's cgroup
//! needs no exact address.

use core::mem::offset_of;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_smp_processor_id};
use enforcer_common::counter::Accesses;

use crate::{
    cgroup, managed, maps,
    settings::{HARDWARE_PERIOD, node_of},
    words::Value,
};

/// The counter of accesses to the own node, or to all, overflowed.
#[inline(always)]
pub fn count_near() {
    if let Some(accesses) = current_cell() {
        accesses.word::<{ offset_of!(Accesses, near) }>().add(HARDWARE_PERIOD.load());
    }
}

/// The counter of accesses to other nodes overflowed.
#[inline(always)]
pub fn count_remote() {
    if let Some(accesses) = current_cell() {
        accesses.word::<{ offset_of!(Accesses, remote) }>().add(HARDWARE_PERIOD.load());
    }
}

/// The cell of the current task's workload; most tasks belong to none, and the idle task never does.
#[inline(always)]
fn current_cell() -> Option<Value<Accesses>> {
    if bpf_get_current_pid_tgid() == 0 {
        return None;
    }
    let cgroup = cgroup::of_current()?;
    let entry = managed::of(cgroup)?;
    // SAFETY: the helper has no precondition.
    let node = node_of(unsafe { bpf_get_smp_processor_id() })?;
    maps::cell(&maps::HARDWARE, entry.cell(node))
}

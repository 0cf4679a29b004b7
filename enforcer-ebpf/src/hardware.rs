//! Accesses to DRAM, local and remote: a hardware counter of this CPU overflowed.
//!
//! Runs in an NMI, where nothing may be waited for and nothing inserted: look-ups and this CPU's own array
//! cells alone. A whole period is charged to whoever runs now; over many overflows that is a fair share,
//! and an exact address is not needed to know whose cgroup it was.

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
pub fn near() {
    if let Some(accesses) = current() {
        accesses.word::<{ offset_of!(Accesses, near) }>().add(HARDWARE_PERIOD.load());
    }
}

/// The counter of accesses to other nodes overflowed.
#[inline(always)]
pub fn remote() {
    if let Some(accesses) = current() {
        accesses.word::<{ offset_of!(Accesses, remote) }>().add(HARDWARE_PERIOD.load());
    }
}

/// The cell of the current task's workload; most belong to none, and the idle task to nobody.
#[inline(always)]
fn current() -> Option<Value<Accesses>> {
    if bpf_get_current_pid_tgid() == 0 {
        return None;
    }
    let cgroup = cgroup::of_current()?;
    let entry = managed::of(cgroup)?;
    // SAFETY: the helper has no precondition.
    let node = node_of(unsafe { bpf_get_smp_processor_id() })?;
    maps::cell(&maps::HARDWARE, entry.cell(node))
}

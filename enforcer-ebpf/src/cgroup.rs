//! The id of a task's cgroup, on the axis that the daemon chose.
//!
//! Walks `task->cgroups->dfl_cgrp->kn->id` on the unified axis and
//! `task->cgroups->subsys[cpuset]->cgroup->kn->id` on the cpuset axis. The offsets are settings, so
//! that one object fits all kernels.

use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_task, bpf_probe_read_kernel};
use enforcer_common::{counter::drop, settings::AXIS_UNIFIED};

use crate::{
    checked::{Memory as _, Tracked},
    maps,
    settings::{
        CGROUP_AXIS, CGROUP_KN, CGROUP_ROOT, CGROUP_SELF, CSS_CGROUP, CSS_PARENT, CSS_SET_SLOT, HIERARCHY,
        KN_ID, ROOT_HIERARCHY, TASK_CGROUPS,
    },
};

/// Cgroup of a task that is an argument of a BTF tracepoint.
#[inline(always)]
pub fn of_task(task: Tracked) -> u64 {
    let slot = task.follow(TASK_CGROUPS.load()).follow(CSS_SET_SLOT.load());
    id_of(if CGROUP_AXIS.load() == AXIS_UNIFIED { slot } else { slot.follow(CSS_CGROUP.load()) })
}

/// Id of a `struct cgroup` that is an argument of a BTF tracepoint, or was reached from one.
#[inline(always)]
pub fn id_of(cgroup: Tracked) -> u64 {
    cgroup.follow(CGROUP_KN.load()).word(KN_ID.load())
}

/// Id of the cgroup above it; 0 above a root.
#[inline(always)]
pub fn parent_id(cgroup: Tracked) -> u64 {
    id_of(cgroup.follow(CGROUP_SELF.load() + CSS_PARENT.load()).follow(CSS_CGROUP.load()))
}

/// Is it of the counted hierarchy? The tracepoints fire for all, and ids repeat between them.
#[inline(always)]
pub fn is_counted(cgroup: Tracked) -> bool {
    cgroup.follow(CGROUP_ROOT.load()).half(ROOT_HIERARCHY.load()) == HIERARCHY.load()
}

/// Cgroup of the running task; one that cannot be read is counted as dropped.
#[inline(always)]
pub fn of_current() -> Option<u64> {
    let cgroup = peek_current();
    if cgroup.is_none() {
        maps::count_drop(drop::UNKNOWN_CGROUP);
    }
    cgroup
}

/// The same for optional uses: a failure is not counted as dropped.
#[inline(always)]
pub fn peek_current() -> Option<u64> {
    if CGROUP_AXIS.load() == AXIS_UNIFIED {
        // SAFETY: the helper has no precondition.
        return Some(unsafe { bpf_get_current_cgroup_id() });
    }
    // SAFETY: the helper has no precondition.
    let task = unsafe { bpf_get_current_task() };
    let css_set = peek(task, TASK_CGROUPS.load())?;
    let css = peek(css_set, CSS_SET_SLOT.load())?;
    let cgroup = peek(css, CSS_CGROUP.load())?;
    let kn = peek(cgroup, CGROUP_KN.load())?;
    peek(kn, KN_ID.load())
}

/// The 64-bit value at `base + offset` of kernel memory.
#[inline(always)]
fn peek(base: u64, offset: u32) -> Option<u64> {
    // SAFETY: the helper copies with fault handling; any address is allowed.
    unsafe { bpf_probe_read_kernel((base + u64::from(offset)) as *const u64) }.ok()
}

//! Which cgroups are watched, and that cgroups made below them are too.
//!
//! `cgroup_mkdir` runs while the new directory is made, before a task can be in it, and
//! `cgroup_release` when the last reference to a removed one is gone: the kernel side alone keeps the map
//! complete between two looks of the daemon.

use aya_ebpf::{bindings::BPF_ANY, programs::BtfTracePointContext};
use enforcer_common::{
    counter::drop,
    limit::NODE_WORDS,
    managed::{ManagedCgroup, flag},
};

use crate::{cgroup, maps, settings::NODES};

/// The entry of a cgroup; none where it is not watched.
#[inline(always)]
pub fn of(cgroup: u64) -> Option<&'static ManagedCgroup> {
    // SAFETY: the kernel keeps the map while we run; the daemon may change the value meanwhile, which
    // makes one event be counted for what was or what will be.
    maps::MANAGED.get_ptr(cgroup).map(|entry| unsafe { &*entry })
}

/// May it run on this node?
#[inline(always)]
pub fn allows(entry: &ManagedCgroup, node: u32) -> bool {
    // The mask is for the verifier: a node's index is below `limit::NODES`.
    let word = entry.allowed[(node >> 6) as usize & (NODE_WORDS - 1)];
    word >> (node & 63) & 1 == 1
}

/// Where the counters of a workload on a node are in an array.
#[inline(always)]
pub fn cell_of(entry: &ManagedCgroup, node: u32) -> u32 {
    entry.slot * NODES.load() + node
}

/// A cgroup was made.
#[inline(always)]
pub fn made(ctx: &BtfTracePointContext) {
    let new: *const u8 = ctx.arg(0);
    if !cgroup::counts(new) {
        return;
    }
    let Some(parent) = of(cgroup::parent_id(new)) else { return };
    if parent.flags & flag::NO_HEIRS != 0 {
        return;
    }
    if maps::MANAGED.insert(cgroup::id_of(new), parent, u64::from(BPF_ANY)).is_err() {
        maps::dropped(drop::MANAGED);
    }
}

/// A removed cgroup is gone for good.
#[inline(always)]
pub fn gone(ctx: &BtfTracePointContext) {
    let old: *const u8 = ctx.arg(0);
    if cgroup::counts(old) {
        // Most were never watched.
        let _ = maps::MANAGED.remove(cgroup::id_of(old));
    }
}

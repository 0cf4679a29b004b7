//! NUMA hinting faults: pages that a task touched, and whether they were on its node.
//!
//! `task_numa_fault` runs at the end of each such fault, in the faulting task. Local is what its flag
//! says: the node argument is already the new one after the kernel has moved the page.

use aya_ebpf::{bindings::BPF_ANY, helpers::bpf_get_smp_processor_id, programs::FEntryContext};
use aya_log_ebpf::debug;
use enforcer_common::{
    counter::{HintFaultPages, drop, fault_flag},
    key::NodeKey,
};

use crate::{cgroup, maps, settings::node_of};

/// A fault of the current task.
#[inline(always)]
pub fn taken(ctx: &FEntryContext) {
    let memory_node: i32 = ctx.arg(1);
    let pages: i32 = ctx.arg(2);
    let flags: u32 = ctx.arg(3);
    let pages = u64::from(pages.unsigned_abs());
    // SAFETY: the helper has no precondition.
    let Some(node) = node_of(unsafe { bpf_get_smp_processor_id() }) else { return };
    let Some(cgroup) = cgroup::of_current() else {
        maps::dropped(drop::UNKNOWN_CGROUP);
        return;
    };
    let of = |set: bool| if set { pages } else { 0 };
    let local = flags & fault_flag::LOCAL != 0;
    add(
        &NodeKey { cgroup, node, zero: 0 },
        &HintFaultPages {
            local: of(local),
            remote: of(!local),
            migrated: of(flags & fault_flag::MIGRATED != 0),
            migrate_failed: of(flags & fault_flag::MIGRATE_FAIL != 0),
        },
    );
    debug!(ctx, "hinting fault: cgroup {} on node {} memory {} flags {:x}", cgroup, node, memory_node, flags);
}

#[inline(always)]
fn add(key: &NodeKey, pages: &HintFaultPages) {
    if let Some(sum) = maps::HINT_FAULTS.get_ptr_mut(key) {
        // SAFETY: the value is this CPU's own copy, and the kernel keeps the map while we run.
        let sum = unsafe { &mut *sum };
        sum.local += pages.local;
        sum.remote += pages.remote;
        sum.migrated += pages.migrated;
        sum.migrate_failed += pages.migrate_failed;
    } else if maps::HINT_FAULTS.insert(key, pages, u64::from(BPF_ANY)).is_err() {
        maps::dropped(drop::HINT_FAULTS);
    }
}

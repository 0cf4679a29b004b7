//! NUMA hinting faults: pages that a task touched, and whether they were on its node.
//!
//! `task_numa_fault` runs at the end of each such fault, in the faulting task. Local is what its flag
//! says: the node argument is already the new one after the kernel has moved the page. The task may be
//! preempted here, and the next one may fault as well: additions are atomic. From Linux 5.12 on the kernel
//! skips the second fault's run instead, and it is not counted ([`crate::words`]).

use core::mem::offset_of;

use aya_ebpf::{EbpfContext, helpers::bpf_get_smp_processor_id};
use aya_log_ebpf::debug;
use enforcer_common::counter::{HintFaultPages, fault_flag};

use crate::{cgroup, managed, maps, settings::node_of};

/// A fault of the current task.
#[inline(always)]
pub fn count(ctx: &impl EbpfContext, memory_node: i32, pages: i32, flags: u32) {
    let pages = u64::from(pages.unsigned_abs());
    let Some(cgroup) = cgroup::of_current() else { return };
    let Some(entry) = managed::of(cgroup) else { return };
    // SAFETY: the helper has no precondition.
    let Some(node) = node_of(unsafe { bpf_get_smp_processor_id() }) else { return };
    if let Some(sum) = maps::cell(&maps::HINT_FAULTS, entry.cell(node)) {
        let of = |set: bool| if set { pages } else { 0 };
        let local = flags & fault_flag::LOCAL != 0;
        sum.word::<{ offset_of!(HintFaultPages, local) }>().add_atomically(of(local));
        sum.word::<{ offset_of!(HintFaultPages, remote) }>().add_atomically(of(!local));
        sum.word::<{ offset_of!(HintFaultPages, migrated) }>()
            .add_atomically(of(flags & fault_flag::MIGRATED != 0));
        let failed = of(flags & fault_flag::MIGRATE_FAIL != 0);
        sum.word::<{ offset_of!(HintFaultPages, migrate_failed) }>().add_atomically(failed);
    }
    debug!(ctx, "hinting fault: cgroup {} on node {} memory {} flags {:x}", cgroup, node, memory_node, flags);
}

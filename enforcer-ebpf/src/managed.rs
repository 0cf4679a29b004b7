//! Watched cgroups, and the entries of cgroups that are created below them.
//!
//! `cgroup_mkdir` runs while the new directory is made, before a task can be in it, and `cgroup_rmdir` when
//! it is removed, after the last one has left it: the kernel side alone keeps the map complete between two
//! looks of the daemon. What the removed cgroup leaves (page cache that is charged to it) may keep it in the
//! kernel for days; nothing runs in it any more, so its entry makes room at once.

use core::mem::offset_of;

use aya_ebpf::{bindings::BPF_ANY, programs::BtfTracePointContext};
use enforcer_common::{
    counter::drop,
    limit::NODE_WORDS,
    managed::{ManagedCgroup, flag},
};

use crate::{cgroup, checked::Tracked, maps, settings::NODES, words::Value};

/// The entry of a cgroup. The daemon may change it meanwhile: one event is then counted by the old or the new
/// entry. If the entry is removed and its memory given to another cgroup meanwhile, the event is counted by
/// that one's entry.
#[derive(Clone, Copy)]
pub struct Entry(Value<ManagedCgroup>);

impl Entry {
    /// Slot of its workload.
    #[inline(always)]
    pub fn slot(self) -> u32 {
        self.0.half::<{ offset_of!(ManagedCgroup, slot) }>()
    }

    #[inline(always)]
    fn flags(self) -> u32 {
        self.0.half::<{ offset_of!(ManagedCgroup, flags) }>()
    }

    #[inline(always)]
    fn allowed(self, word: usize) -> u64 {
        self.0.of_row::<{ offset_of!(ManagedCgroup, allowed) }, NODE_WORDS>(word).get()
    }

    /// May it run on this node?
    #[inline(always)]
    pub fn allows(self, node: u32) -> bool {
        self.allowed((node >> 6) as usize) >> (node & 63) & 1 == 1
    }

    /// Index of its workload's counters on a node in an array.
    #[inline(always)]
    pub fn cell(self, node: u32) -> u32 {
        self.slot() * NODES.load() + node
    }

    /// The entry for a cgroup below it.
    #[inline(always)]
    fn inherited(self) -> ManagedCgroup {
        let mut allowed = [0; NODE_WORDS];
        for (at, word) in allowed.iter_mut().enumerate() {
            *word = self.allowed(at);
        }
        ManagedCgroup { slot: self.slot(), flags: self.flags(), allowed }
    }
}

/// The entry of a cgroup; `None` if it is not watched.
#[inline(always)]
pub fn of(cgroup: u64) -> Option<Entry> {
    // SAFETY: the look-up has just returned it.
    maps::MANAGED.get_ptr_mut(cgroup).map(|entry| Entry(unsafe { Value::new(entry) }))
}

/// A cgroup was created.
#[inline(always)]
pub fn watch_new_cgroup(ctx: &BtfTracePointContext) {
    let new = Tracked::argument(ctx, 0);
    if !cgroup::is_counted(new) {
        return;
    }
    let Some(parent) = of(cgroup::parent_id(new)) else { return };
    if parent.flags() & flag::NO_HEIRS != 0 {
        return;
    }
    if maps::MANAGED.insert(cgroup::id_of(new), parent.inherited(), u64::from(BPF_ANY)).is_err() {
        maps::count_drop(drop::MANAGED);
    }
}

/// A cgroup was removed: nothing is in it, and nothing can enter it.
#[inline(always)]
pub fn forget_removed_cgroup(ctx: &BtfTracePointContext) {
    let old = Tracked::argument(ctx, 0);
    if cgroup::is_counted(old) {
        // Most were never watched.
        let _ = maps::MANAGED.remove(cgroup::id_of(old));
    }
}

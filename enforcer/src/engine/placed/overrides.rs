//! What replaces the cpuset of a grant in answers and turns.

use std::collections::BTreeMap;

use enforcer_core::{hosted::Cpuset, workload::CgroupPath};

use crate::engine::widening::Widening;

/// Reasons to set a container to another cpuset than that of its grant, or to none.
#[derive(Debug, Default)]
pub(in crate::engine) struct CpusetOverrides {
    /// Cgroups that another writer sets repeatedly, with our goal for each. Neither turns nor answers restore
    /// it.
    pub(super) given_up: BTreeMap<CgroupPath, Cpuset>,
    /// While enforcement is paused or blocked: each container's cpuset at that moment.
    pub(super) frozen: Option<BTreeMap<String, Cpuset>>,
    /// Writes are blocked because the journal could not undo them.
    pub(super) journal_blocked: bool,
    /// Memory nodes added to containers that ran short; `None` when widening is off.
    pub(super) widening: Option<Widening>,
}

impl CpusetOverrides {
    /// Whether cpusets are frozen.
    pub(in crate::engine) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Whether enforcement is paused, and not blocked by the journal.
    pub(super) fn is_paused(&self) -> bool {
        self.is_frozen() && !self.journal_blocked
    }

    /// Forgets the frozen cpuset of a container.
    pub(in crate::engine) fn unfreeze(&mut self, id: &str) {
        if let Some(frozen) = &mut self.frozen {
            frozen.remove(id);
        }
    }

    /// Whether `goal` is the one that another writer does not leave in place.
    pub(super) fn is_given_up(&self, cgroup: &CgroupPath, goal: &Cpuset) -> bool {
        self.given_up.get(cgroup).is_some_and(|given_up| given_up == goal)
    }

    /// Adds the widening's nodes, so that an answer to the runtime does not take them away.
    pub(super) fn widen(&self, cgroup: Option<&CgroupPath>, cpuset: &mut Cpuset) {
        if let (Some(widening), Some(cgroup), Some(mems)) = (&self.widening, cgroup, &mut cpuset.mems) {
            widening.add_to(cgroup, mems);
        }
    }
}

//! Owners of all workloads, found once for a turn.
//!
//! The owner of a cpuset depends on evidence of other controllers ([`owner`](crate::owner)) and on the
//! daemon's own configuration and placements. All callers within one turn must get the same owner.
//!
//! Cost: one look at the table of owners per workload.

use std::collections::BTreeMap;

use crate::{
    declarations::Declarations,
    model::Model,
    owner::{Claim, Ownership, OwnershipFacts, OwnershipSubject, owner_of},
    workload::{CgroupPath, Origin, Workload},
};

/// Owners of all workloads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    by_workload: BTreeMap<(CgroupPath, Option<u32>), Ownership>,
    claims: Vec<Claim>,
}

impl Owners {
    /// Determines the owners from `facts`. `placed` returns whether the daemon placed a cgroup at its
    /// creation.
    pub fn find(
        facts: &OwnershipFacts,
        workloads: &[Workload],
        model: &Model,
        declarations: &Declarations,
        placed: impl Fn(&CgroupPath) -> bool,
    ) -> Self {
        let owned = |workload: &Workload| {
            let cpus = model.of(workload).and_then(|figures| figures.cpus.as_ref());
            let declared = declarations.asks_for(&workload.cgroup);
            let subject = OwnershipSubject { workload, cpus, placed: placed(&workload.cgroup), declared };
            (key(workload), owner_of(&subject, facts))
        };
        Self { by_workload: workloads.iter().map(owned).collect(), claims: facts.kubelet.claims.clone() }
    }

    /// Owner of a workload's cpuset.
    pub fn of(&self, workload: &Workload) -> Option<&Ownership> {
        self.by_workload.get(&key(workload))
    }

    /// Owner of a workload's cpuset, if it is another controller.
    pub fn foreign(&self, workload: &Workload) -> Option<&Ownership> {
        self.of(workload).filter(|ownership| ownership.owner.is_foreign())
    }

    /// What the kubelet gave away, including to workloads that are not visible.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }
}

/// A workload's cgroup, and its id for a process, of which a cgroup may have several.
fn key(workload: &Workload) -> (CgroupPath, Option<u32>) {
    let pid = match workload.origin {
        Origin::Process { pid, .. } => Some(pid),
        _ => None,
    };
    (workload.cgroup.clone(), pid)
}

//! What the machine has and the policy says: by these an answer is decided.

use std::sync::Arc;

use enforcer_core::{
    dra::BudgetOptions,
    owner::KnownContainer,
    policy::{Policy, WorkloadRule, placement::PlacementSettings},
};
use numa_placement::Inventory;

use enforcer_act::cpuset::CpusetTree;

/// The machine, and the part of the policy that answers follow.
#[derive(Debug, Default)]
pub(in crate::engine) struct LedgerTerms {
    /// Absent before the topology is read.
    pub(super) inventory: Option<Arc<Inventory>>,
    pub(super) settings: PlacementSettings,
    /// Ignore marks that claim a cpuset for another controller.
    pub(super) ignores_marks: bool,
    /// Workload rules of the configuration.
    pub(super) rules: Vec<WorkloadRule>,
    /// Budgets of resource claims.
    pub(super) budgets: BudgetOptions,
    /// Number of times that terms were applied.
    pub(super) applied: u64,
    /// Containers get a place; else they are known by name only.
    pub(super) places: bool,
    /// Reads the current cpusets of cgroups; only for a daemon that may write.
    pub(super) tree: Option<CpusetTree>,
}

impl LedgerTerms {
    /// Applies this machine and policy; `writes` says whether the daemon may write. Returns whether the
    /// runtime must list its containers again.
    pub(super) fn apply(&mut self, inventory: Option<Arc<Inventory>>, policy: &Policy, writes: bool) -> bool {
        self.applied += 1;
        self.inventory = inventory;
        self.settings = policy.placement.clone();
        self.rules.clone_from(&policy.workloads);
        self.budgets =
            BudgetOptions { widens_memory: policy.memory.widening.enabled, ..policy.dra.budgets() };
        let ignored_marks = std::mem::replace(&mut self.ignores_marks, !policy.nri.honour_marks);
        let placed = std::mem::replace(&mut self.places, writes && policy.nri.place);
        // Containers that came before it places are known by name only.
        ignored_marks != self.ignores_marks || (self.places && !placed)
    }

    /// Drops a container's claim where the policy ignores marks.
    pub(super) fn believed(&self, known: KnownContainer) -> KnownContainer {
        if self.ignores_marks { KnownContainer { claim: None, ..known } } else { known }
    }
}

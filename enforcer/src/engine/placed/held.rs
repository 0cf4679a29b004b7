//! Grants of containers: the allocations, and which container holds which.
//!
//! Invariant: each change marks the grants as not recorded, so that the next turn writes them to the journal.

use std::collections::BTreeMap;

use enforcer_core::hosted::{CallOutcome, Containers, Cpuset, GrantRecord, PlacementNode};
use numa_placement::{Allocations, Grant, Holder, external::UNPLACED};
use numa_topology::set::CpuSet;

use super::terms::LedgerTerms;

/// Grants of containers.
#[derive(Debug, Default)]
pub(in crate::engine) struct HeldResources {
    pub(in crate::engine) allocations: Allocations,
    pub(in crate::engine) containers: Containers,
    /// Grants may differ from those on disk.
    pub(super) regranted: bool,
    /// Number of changes so far.
    pub(super) changes: u64,
}

impl HeldResources {
    /// Grant of a container.
    pub(super) fn grant(&self, id: &str) -> Option<&Grant> {
        self.allocations.get(self.containers.holder(id)?)
    }

    /// Whether a container has a place from us, whatever it asks for now.
    pub(super) fn has_place(&self, id: &str) -> bool {
        self.grant(id).is_some_and(|grant| grant.engine != UNPLACED)
    }

    /// Marks the grants as changed without a request of the runtime.
    pub(in crate::engine) fn mark_changed(&mut self) {
        self.regranted = true;
        self.changes += 1;
    }

    /// The grants, if they may differ from those on disk. Clears that mark.
    pub(super) fn take_unrecorded(&mut self) -> Option<BTreeMap<String, GrantRecord>> {
        std::mem::take(&mut self.regranted).then(|| self.containers.records(&self.allocations))
    }

    /// CPUs that containers have exclusively, without those of the container `own`.
    pub(super) fn exclusive_without(&self, own: Option<&str>) -> CpuSet {
        let own = own.and_then(|id| self.grant(id)).map(|grant| grant.exclusive.clone());
        self.allocations.exclusive_cpus().difference(&own.unwrap_or_default())
    }

    /// Those of these containers that are still in their cold start.
    pub(in crate::engine) fn starting<'a>(
        &self,
        ids: impl Iterator<Item = &'a str>,
    ) -> BTreeMap<String, Holder> {
        let holder = |id: &'a str| {
            let holder = self.containers.holder(id)?;
            self.allocations.get(holder)?.cold_start.as_ref()?;
            Some((id.to_owned(), holder.clone()))
        };
        ids.filter_map(holder).collect()
    }

    /// Changes grants on the machine of `terms`; without a machine nothing changes.
    pub(super) fn change(
        &mut self,
        terms: &LedgerTerms,
        change: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> CallOutcome,
    ) -> CallOutcome {
        let Some(inventory) = &terms.inventory else { return CallOutcome::default() };
        self.mark_changed();
        let Self { allocations, containers, .. } = self;
        change(containers, &mut PlacementNode { inventory, settings: &terms.settings, allocations })
    }

    /// Cpuset from the container's grant, without added nodes.
    pub(super) fn goal(&mut self, terms: &LedgerTerms, id: &str) -> Option<Cpuset> {
        let inventory = terms.inventory.as_ref().filter(|_| terms.places)?;
        let Self { allocations, containers, .. } = self;
        containers.cpuset(&PlacementNode { inventory, settings: &terms.settings, allocations }, id)
    }
}

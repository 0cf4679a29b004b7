//! Keeps the grant of a container over a resize or restart.

use super::{accounts::restricted, asker::Asker, demand::Demand, placing::HintsPlacing};
use crate::{ContainerRequest, Grant};
use numa_topology::set::CpuSet;

impl HintsPlacing<'_> {
    /// The unchanged grant, if the request is the same and all of it is still available.
    pub(super) fn unchanged(
        &self,
        asker: Asker<'_>,
        container: &ContainerRequest,
        demand: &Demand,
    ) -> Option<Grant> {
        let before = self.pod.previous.get(&container.name)?;
        let same = before.engine == crate::engine_name::HINTS
            && before.exclusive.len() == demand.exclusive
            && before.shared.as_ref().map(|shared| shared.milli_cpus) == demand.shared
            && demand
                .memory
                .iter()
                .map(|(resource, bytes)| (*resource, *bytes))
                .eq(before.memory.iter().map(|claim| (claim.resource, claim.bytes)))
            && before.devices.len() == demand.devices.len()
            && demand.devices.iter().all(|(resource, count)| {
                before.devices.get(resource).is_some_and(|ids| ids.len() as u64 == *count)
            });
        let may_run = |cpus: &CpuSet| restricted(self.inventory, cpus, Some(container)) == *cpus;
        let shared_holds = before.shared.as_ref().is_none_or(|shared| {
            shared.scope.is_subset(&self.pool(asker)) && !shared.reach().is_subset(&self.accounts.taken)
        });
        let memory_holds = before
            .memory
            .iter()
            .all(|claim| self.accounts.memory.fits(&claim.zone, claim.resource, claim.bytes));
        let nodes_hold = self.mems_hold(asker, container, before);
        let holds = same
            && may_run(&before.exclusive)
            && self.still_free(container) == before.exclusive
            && shared_holds
            && memory_holds
            && nodes_hold
            && self.devices_hold(before);
        holds.then(|| Grant {
            policy: asker.settings.policy.as_str(),
            labels: self.pod.labels.clone(),
            reason: "kept as it was".to_owned(),
            ..before.clone()
        })
    }

    /// Are its memory nodes still valid, and do they include those of its CPUs?
    fn mems_hold(&self, asker: Asker<'_>, container: &ContainerRequest, before: &Grant) -> bool {
        let local = self.local(asker);
        let near = || {
            let shared = before.shared.as_ref().map(|shared| &shared.scope);
            let cpus = shared.filter(|_| before.exclusive.is_empty()).unwrap_or(&before.exclusive);
            self.inventory.machine.nodes_of(cpus).intersection(local.everywhere())
        };
        before.mems.is_subset(&self.inventory.machine.memory_nodes())
            && container.allowed_nodes.as_ref().is_none_or(|allowed| before.mems.is_subset(allowed))
            && (asker.settings.is_kubelet()
                || !before.pin_mems
                || before.mems.is_subset(local.everywhere()) && near().is_subset(&before.mems))
    }

    /// CPUs that the container had and that no other holder has got since.
    pub(super) fn still_free(&self, container: &ContainerRequest) -> CpuSet {
        let Some(before) = self.pod.previous.get(&container.name) else { return CpuSet::new() };
        let ours = self.inventory.allowed_cpus.difference(&self.inventory.reserved_cpus);
        let free = before.exclusive.intersection(&ours).difference(&self.accounts.taken);
        restricted(self.inventory, &free, Some(container))
    }

    fn devices_hold(&self, before: &Grant) -> bool {
        before.devices.iter().all(|(resource, ids)| {
            let units = self.inventory.devices.get(resource).map_or(&[][..], Vec::as_slice);
            let taken = |id: &String| {
                let held = self.allocations.iter().filter_map(|(_, grant)| grant.devices.get(resource));
                held.flatten().any(|other| other == id)
            };
            ids.iter().all(|id| units.iter().any(|unit| unit.id == *id) && !taken(id))
        })
    }
}

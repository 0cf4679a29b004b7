//! Limits that resource claims give containers: the CPU quota and limits of huge pages.
//!
//! Problem: a runtime sets them in answers to its calls alone. A container that is created while enforcement
//! is paused, or without the link to the runtime, starts without some of them. Idea: what the runtime has for
//! a container is noted, and what its claims give beyond that goes with the next answer of any call. A quota
//! needs no runtime: on a node where no call comes, the next turn lifts it in the cgroup.
//!
//! Invariants: a quota is lifted only with the exclusive CPUs or after them, so never while cpusets are
//! frozen. Limits of huge pages are part of a creation also then: the kubelet has promised them to the pod,
//! and no other container loses by them.

use std::collections::BTreeMap;

use enforcer_core::{
    dra::binding::ContainerPlace,
    hosted::Cpuset,
    workload::{CgroupPath, printable},
};
use enforcer_runtime::nri::api::{HugepageLimit, LinuxResources, OptionalInt};

use super::{Ledger, SharedLedger};

/// `cpu.cfs_quota_us` without a limit.
const NO_QUOTA: i64 = -1;

/// The limits that a runtime has for a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuntimeLimits {
    /// Whether the container has a CPU quota.
    has_quota: bool,
    /// Whether the kernel has refused to lift it.
    is_quota_kept: bool,
    /// Limits of huge pages in bytes, by name of the size; a size without one is not limited.
    hugepages: BTreeMap<String, u64>,
}

impl RuntimeLimits {
    /// Takes over what the runtime sets.
    fn set(&mut self, resources: &LinuxResources) {
        if let Some(quota) = resources.cpu.as_ref().and_then(|cpu| cpu.quota.as_ref()) {
            self.has_quota = quota.value > 0;
        }
        let limits = resources.hugepage_limits.iter();
        self.hugepages.extend(limits.map(|limit| (limit.page_size.clone(), limit.limit)));
    }

    /// Whether a turn has to lift the quota.
    fn awaits_quota(&self, place: &ContainerPlace) -> bool {
        place.lifts_quota && self.has_quota && !self.is_quota_kept
    }

    /// What the claims give beyond these limits; `None` for nothing.
    fn missing(&self, place: &ContainerPlace) -> Option<LinuxResources> {
        let mut missing = LinuxResources::default();
        if place.lifts_quota && self.has_quota {
            missing.cpu.get_or_insert_default().quota = Some(OptionalInt { value: NO_QUOTA });
        }
        for (bytes_of_page, claimed) in &place.hugepages {
            let page_size = hugepage_size(*bytes_of_page);
            if self.hugepages.get(&page_size).is_some_and(|limit| limit < claimed) {
                missing.hugepage_limits.push(HugepageLimit { page_size, limit: *claimed });
            }
        }
        (missing != LinuxResources::default()).then_some(missing)
    }
}

impl Ledger {
    /// Notes what the runtime has stored for a container.
    pub(in crate::engine) fn note_limits(&mut self, id: &str, stored: Option<&LinuxResources>) {
        if let (Some(limits), Some(stored)) = (self.claims.limits_mut(id), stored) {
            limits.set(stored);
        }
    }

    /// Adds the limits that the claims of a container give to what its runtime sets now. `wanted` is what the
    /// runtime's caller sets; a limit of huge pages below the claims' amount becomes as large. Sizes without
    /// one are set for a new container alone: later they stay as they are.
    pub(in crate::engine) fn add_limits(
        &mut self,
        id: &str,
        resources: &mut LinuxResources,
        wanted: &LinuxResources,
        is_new: bool,
    ) {
        let is_frozen = self.overrides.is_frozen();
        let place = self.claims.place(id).cloned();
        let Some(limits) = self.claims.limits_mut(id) else { return };
        if let Some(place) = place {
            // While cpusets are frozen, a quota that is lifted stays so, and no other is lifted.
            if place.lifts_quota && (!is_frozen || (!is_new && !limits.has_quota)) {
                resources.cpu.get_or_insert_default().quota = Some(OptionalInt { value: NO_QUOTA });
            }
            for (bytes_of_page, claimed) in &place.hugepages {
                let page_size = hugepage_size(*bytes_of_page);
                let own = wanted.hugepage_limits.iter().find(|limit| limit.page_size == page_size);
                if is_new || own.is_some() {
                    let limit = own.map_or(0, |limit| limit.limit).max(*claimed);
                    resources.hugepage_limits.push(HugepageLimit { page_size, limit });
                }
            }
        }
        limits.set(wanted);
        limits.set(resources);
    }

    /// Running containers whose claims give more than their runtime has been told, with their cgroups and
    /// cpusets. None while cpusets are frozen.
    pub(in crate::engine) fn containers_with_missing_limits(&mut self) -> Vec<(String, CgroupPath, Cpuset)> {
        if self.overrides.is_frozen() || !self.terms.places {
            return Vec::new();
        }
        let missing = self.claims.limits().filter(|(_, place, limits)| limits.missing(place).is_some());
        let ids: Vec<String> = missing.map(|(id, ..)| id.to_owned()).collect();
        let running = ids.into_iter().filter(|id| {
            let roster = &self.roster;
            roster.names.contains_key(id)
                && !roster.pending.contains_key(id)
                && !roster.leaving.contains_key(id)
        });
        let running: Vec<String> = running.collect();
        let with_cpuset = running.into_iter().filter_map(|id| {
            let cgroup = self.held.containers.cgroup(&id)?.clone();
            let cpuset = self.cpuset(&id)?;
            Some((id, cgroup, cpuset))
        });
        with_cpuset.collect()
    }

    /// Adds the limits that the claims of a running container give beyond what its runtime has.
    pub(in crate::engine) fn add_missing_limits(&mut self, id: &str, resources: &mut LinuxResources) {
        let Some(place) = self.claims.place(id).cloned() else { return };
        let Some(limits) = self.claims.limits_mut(id) else { return };
        let Some(missing) = limits.missing(&place) else { return };
        limits.set(&missing);
        if let Some(quota) = missing.cpu.and_then(|cpu| cpu.quota) {
            resources.cpu.get_or_insert_default().quota = Some(quota);
        }
        resources.hugepage_limits.extend(missing.hugepage_limits);
    }
}

impl SharedLedger {
    /// Lifts quotas that claims lift and no answer to the runtime has lifted yet, of containers that have
    /// their cpusets by now.
    pub(in crate::engine) fn lift_quotas(&self) {
        let (tree, waiting) = {
            let mut state = self.lock();
            let Some(tree) = state.terms.tree.clone() else { return };
            if !tree.is_v2() {
                return;
            }
            let waiting = state.containers_with_missing_limits();
            let awaits = |id: &str| {
                state.claims.limits().any(|(own, place, limits)| own == id && limits.awaits_quota(place))
            };
            (tree, waiting.into_iter().filter(|(id, ..)| awaits(id)).collect::<Vec<_>>())
        };
        if waiting.is_empty() {
            return;
        }
        let shown = self.shown(waiting.iter().map(|(_, cgroup, _)| cgroup));
        for (id, cgroup, goal) in waiting {
            if shown.get(&cgroup).is_none_or(|now| now.cpus != goal.cpus) {
                continue;
            }
            let lifted = tree.lift_quota(&cgroup);
            let mut state = self.lock();
            let Some(limits) = state.claims.limits_mut(&id) else { continue };
            match lifted {
                Ok(_) => limits.has_quota = false,
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    limits.is_quota_kept = true;
                    drop(state);
                    let id = printable(&id);
                    tracing::warn!("the CPU quota of container {id} stays until its runtime calls: {error}");
                }
            }
        }
    }
}

/// Name of a size of huge pages in limits of the runtime: `2MB`, as the kernel names its controls.
fn hugepage_size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{}GB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{}MB", bytes >> 20),
        bytes => format!("{}KB", bytes >> 10),
    }
}

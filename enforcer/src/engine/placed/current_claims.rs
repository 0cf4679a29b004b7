//! What is settled of containers beside the plan that a turn carries out.
//!
//! A turn decides once and then writes for as long as the kernel takes; calls of a container runtime are
//! answered meanwhile. A plan asks here before it writes and before it takes a write back.
//!
//! Invariant: what is told here is of this moment: allocations and answers, not what the turn has seen.

use std::collections::BTreeSet;

use enforcer_core::{place::Holder, set::CpuSet, workload::CgroupPath};

use super::Placed;
use enforcer_act::CurrentClaims;

impl CurrentClaims for Placed {
    /// Was the runtime told something of this cgroup that the latest turn did not know when it decided?
    fn is_overtaken(&self, cgroup: &CgroupPath) -> bool {
        let state = self.lock();
        let told = state.told.get(cgroup).copied();
        told.zip(state.decided).is_some_and(|(told, decided)| told >= decided)
    }

    fn exclusive_to(&self, cpus: Option<&CpuSet>, among: &BTreeSet<&CgroupPath>) -> Option<String> {
        let state = self.lock();
        let of_containers = state.containers.cgroups();
        let mut own: BTreeSet<Holder> = of_containers
            .filter(|(cgroup, _)| among.contains(cgroup))
            .map(|(_, holder)| holder.clone())
            .collect();
        own.extend(among.iter().map(|cgroup| Holder::cgroup(cgroup)));
        let overlaps = |exclusive: &CpuSet| match cpus {
            Some(cpus) => !cpus.is_disjoint(exclusive),
            None => !exclusive.is_empty(),
        };
        let mut others = state.allocations.iter().filter(|(holder, _)| !own.contains(holder));
        others.find(|(_, grant)| overlaps(&grant.exclusive)).map(|(holder, _)| holder.to_string())
    }
}

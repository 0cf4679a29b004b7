//! Lets a plan in progress see what calls of a runtime have decided meanwhile.
//!
//! Problem: a turn decides once and then writes for as long as the kernel takes, while calls are answered.
//! Idea: the plan asks here before each write and before each rollback.
//!
//! Invariant: the answers reflect this moment's ledger, not the turn's sample.

use std::collections::BTreeSet;

use enforcer_core::workload::CgroupPath;
use numa_placement::Holder;
use numa_topology::set::CpuSet;

use super::SharedLedger;
use enforcer_act::CurrentClaims;

impl CurrentClaims for SharedLedger {
    /// Whether the runtime was given an answer about this cgroup after the latest turn decided.
    fn is_overtaken(&self, cgroup: &CgroupPath) -> bool {
        self.lock().writes.is_newer_than_turn(cgroup)
    }

    fn exclusive_to(&self, cpus: Option<&CpuSet>, among: &BTreeSet<&CgroupPath>) -> Option<String> {
        let state = self.lock();
        let of_containers = state.held.containers.cgroups();
        let mut own: BTreeSet<Holder> = of_containers
            .filter(|(cgroup, _)| among.contains(cgroup))
            .map(|(_, holder)| holder.clone())
            .collect();
        own.extend(among.iter().map(|cgroup| Holder::cgroup(cgroup)));
        let ids = state.roster.names.keys().map(String::as_str);
        let is_own = |id: &&str| state.held.containers.holder(id).is_some_and(|holder| own.contains(holder));
        let ids: BTreeSet<&str> = ids.filter(is_own).collect();
        let overlaps = |exclusive: &CpuSet| match cpus {
            Some(cpus) => !cpus.is_disjoint(exclusive),
            None => !exclusive.is_empty(),
        };
        let is_other = |holder: &Holder| {
            !own.contains(holder) && !state.claims.share(&ids, holder, &state.held.containers)
        };
        let mut others = state.held.allocations.iter().filter(|(holder, _)| is_other(holder));
        others.find(|(_, grant)| overlaps(&grant.exclusive)).map(|(holder, _)| holder.to_string())
    }
}

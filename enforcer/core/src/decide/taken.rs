//! What other owners have taken: CPUs and huge pages that no placement may give away.
//!
//! Claims of a kubelet, partitions, huge pages and workloads that are left alone are grants in the
//! allocations, because nothing else can run, or be stored, there.

use std::collections::{BTreeMap, BTreeSet};

use super::{hugepages, pins::pin, self_placed};
use crate::{
    hosted::{ExternalGrants, sync_external},
    turn::Inputs,
    workload::CgroupPath,
};
use numa_placement::{Allocations, Grant, Holder};
use numa_topology::set::CpuSet;

/// Adds to the allocations what others gave away or took: claims of a kubelet, partitions, and huge pages
/// that are used or reserved without a promise.
pub(crate) fn withhold_of_others(inputs: &Inputs<'_>, allocations: &mut Allocations) {
    let partition = |(cgroup, cpus): (CgroupPath, CpuSet)| {
        (Holder::partition(&cgroup), Grant::taken_by_others(cpus, format!("the partition of {cgroup}")))
    };
    let mut apart: ExternalGrants = partitions(inputs).into_iter().map(partition).collect();
    apart.extend(hugepages::unpromised_grants(
        &inputs.inventory.machine,
        inputs.sample,
        inputs.containers,
        allocations,
    ));
    apart.extend(self_placed::withheld_grants(inputs, allocations));
    sync_external(inputs.inventory, allocations, inputs.owners.claims(), apart);
}

/// CPUs of partitions that are not the daemon's, by their roots; those of partitions without a process under
/// the name of the root cgroup. Without those that a workload which the daemon places is in.
fn partitions(inputs: &Inputs<'_>) -> BTreeMap<CgroupPath, CpuSet> {
    let (sample, root) = (inputs.sample, CgroupPath::root());
    // The root of a cgroup namespace has files that the real root has not, and may lack CPUs for any reason.
    let at_root = sample.cgroups.get(&root).filter(|seen| seen.cpus.is_none() && !sample.cpuset_v1);
    let passes_on = at_root.and_then(|seen| seen.cpus_effective.as_ref());
    let online = inputs.inventory.machine.online_cpus();
    if passes_on.is_some_and(|cpus| online.is_subset(cpus)) {
        return BTreeMap::new();
    }
    let is_partition = |path: &CgroupPath| pin(sample, path).filter(|pin| pin.partition);
    let all: BTreeMap<&CgroupPath, CpuSet> =
        sample.cgroups.keys().filter_map(|path| Some((path, is_partition(path)?.cpus))).collect();
    let declared = inputs.workloads.iter().map(|workload| &workload.cgroup).filter(|cgroup| {
        inputs.declarations.rule(inputs.policy, cgroup).is_some_and(|(_, rule)| rule.enforce)
    });
    let placed: BTreeSet<CgroupPath> =
        declared.chain(inputs.containers.cgroups().map(|(path, _)| path)).cloned().collect();
    let above: BTreeSet<CgroupPath> = placed.iter().flat_map(CgroupPath::ancestors).collect();
    let is_ours = |path: &CgroupPath| {
        placed.contains(path) || above.contains(path) || inputs.partitioned.begun.contains(path)
    };
    let known = all.values().fold(CpuSet::new(), |known, cpus| known.union(cpus));
    let mut others: BTreeMap<CgroupPath, CpuSet> = BTreeMap::new();
    for (path, cpus) in all {
        let inside = path.ancestors().any(|above| others.contains_key(&above));
        if !is_ours(path) && !inside {
            others.insert(path.clone(), cpus);
        }
    }
    // Whatever the kernel shows of CPUs that it was booted to isolate, no partition has taken them.
    let isolated = &inputs.inventory.machine.isolated_cpus;
    let unseen = passes_on.map(|cpus| online.difference(cpus).difference(&known).difference(isolated));
    let unseen = unseen.unwrap_or_default();
    if !unseen.is_empty() && inputs.partitioned.begun.is_empty() {
        others.insert(root, unseen);
    }
    others
}

//! Which CPUs and nodes a workload may use.
//!
//! A cgroup without cpuset files has the effective sets of the nearest cgroup above it that has
//! them (Documentation/admin-guide/cgroup-v2.rst, cpuset). A thread may be narrower still by its
//! own affinity; the threads' union is what the workload can really run on.

use std::iter;

use crate::{
    sample::{CgroupSample, Sample, TaskSample},
    workload::CgroupPath,
};
use numa_topology::{
    Topology,
    set::{CpuSet, NodeSet},
};

/// The cgroup or the nearest one above it with a value that `pick` finds, and the value; `None` if one of
/// their files is unusable.
pub fn nearest_effective<'a, T>(
    sample: &'a Sample,
    cgroup: &CgroupPath,
    pick: impl Fn(&'a CgroupSample) -> Option<T>,
) -> Option<(CgroupPath, T)> {
    for path in iter::once(cgroup.clone()).chain(cgroup.ancestors()) {
        let Some(seen) = sample.cgroups.get(&path) else { continue };
        if let Some(value) = pick(seen) {
            return Some((path, value));
        }
        if seen.effective_garbled {
            return None;
        }
    }
    None
}

pub(super) fn cpus(sample: &Sample, cgroup: &CgroupPath, tasks: &[&TaskSample]) -> Option<CpuSet> {
    nearest_effective(sample, cgroup, effective_cpus)
        .map(|(_, cpus)| cpus.clone())
        .or_else(|| affinity(tasks))
}

pub(super) fn mems(sample: &Sample, cgroup: &CgroupPath) -> Option<NodeSet> {
    nearest_effective(sample, cgroup, effective_mems).map(|(_, mems)| mems.clone())
}

/// `cpuset.cpus.effective`, else the configured set.
fn effective_cpus(cgroup: &CgroupSample) -> Option<&CpuSet> {
    let filled = |set: &&CpuSet| !set.is_empty();
    cgroup.cpus_effective.as_ref().filter(filled).or_else(|| cgroup.cpus.as_ref().filter(filled))
}

/// `cpuset.mems.effective`, else the configured set.
fn effective_mems(cgroup: &CgroupSample) -> Option<&NodeSet> {
    let filled = |set: &&NodeSet| !set.is_empty();
    cgroup.mems_effective.as_ref().filter(filled).or_else(|| cgroup.mems.as_ref().filter(filled))
}

pub(super) fn cpu_nodes(machine: &Topology, cpus: Option<&CpuSet>, tasks: &[&TaskSample]) -> NodeSet {
    let narrowed = match (cpus, affinity(tasks)) {
        (Some(cpus), Some(affinity)) if !affinity.is_disjoint(cpus) => cpus.intersection(&affinity),
        (Some(cpus), _) => cpus.clone(),
        (None, affinity) => affinity.unwrap_or_default(),
    };
    machine.nodes_of(&narrowed)
}

/// Union of the threads' affinities; `None` if that of any thread is unknown.
fn affinity(tasks: &[&TaskSample]) -> Option<CpuSet> {
    let mut union = CpuSet::new();
    for task in tasks {
        union = union.union(task.cpus_allowed.as_ref()?);
    }
    Some(union).filter(|union| !union.is_empty())
}

//! CPUs that other cgroups are pinned to.
//!
//! Problem: an administrator or a runtime narrows a cpuset to reserve its CPUs for that cgroup, although
//! nothing guarantees them; a partition takes them for certain. Advice that puts a workload there trades one
//! fault for another. Idea: the kernel shows both. A cgroup with fewer CPUs than the one above it is pinned,
//! with all cgroups in it. A cgroup with CPUs that the one above lacks is a partition root, or in a partition
//! (`cpuset.cpus.effective` of the cgroup above lacks the partition's CPUs).
//!
//! Advice, the daemon's placement of declared workloads and the rebalance all ask here. Pinned CPUs are
//! avoided; those of partitions are taken ([`withhold_of_others`](super::taken::withhold_of_others)).
//!
//! Invariant: cgroups above or below the asking one, and those that the daemon places, are never among them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    model::nearest_effective,
    owner::Owner,
    sample::Sample,
    turn::Inputs,
    workload::{CgroupPath, Origin, Workload},
};
use numa_placement::{Allocations, Grant, Holder};
use numa_topology::set::CpuSet;

/// Pinned CPUs of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) cpus: CpuSet,
    /// True if a partition has taken them.
    pub(crate) partition: bool,
}

/// Pins by cgroup.
pub(crate) type Pins = BTreeMap<CgroupPath, Pin>;

impl Pin {
    pub(crate) fn in_words(&self, cgroup: &CgroupPath) -> String {
        let how = match (self.partition, self.cpus.len()) {
            (true, 1) => "belongs to the partition of",
            (true, _) => "belong to the partition of",
            (false, 1) => "is that of",
            (false, _) => "are those of",
        };
        let word = if self.cpus.len() == 1 { "CPU" } else { "CPUs" };
        format!("{word} {} {how} {cgroup}", self.cpus)
    }
}

/// Of [`all`], the CPUs that others are pinned to and that the asking cgroup, which has `own`, does not share
/// already.
pub(crate) fn beside(all: &Pins, asking: &CgroupPath, own: &CpuSet) -> Pins {
    let others = all.iter().filter(|(path, _)| !path.is_within(asking) && !asking.is_within(path));
    let pins = others.map(|(path, pin)| {
        let cpus = pin.cpus.difference(own);
        (path.clone(), Pin { cpus, partition: pin.partition })
    });
    pins.filter(|(_, pin)| !pin.cpus.is_empty()).collect()
}

/// All pinned workloads that the daemon does not place itself.
pub(crate) fn all(inputs: &Inputs<'_>) -> Pins {
    let of_containers: BTreeSet<&CgroupPath> = inputs.containers.cgroups().map(|(path, _)| path).collect();
    let placed = |path: &CgroupPath| {
        let (_, rule) = inputs.declarations.rule(inputs.policy, path)?;
        rule.enforce.then_some(())
    };
    let others = inputs.workloads.iter().filter(|workload| {
        !matches!(workload.origin, Origin::Process { .. })
            && placed(&workload.cgroup).is_none()
            && !is_counted_elsewhere(inputs, workload)
            && !of_containers.contains(&workload.cgroup)
    });
    others.filter_map(|one| nearest_pin(inputs.sample, &one.cgroup)).collect()
}

/// Exclusive CPUs of pods are claims of the kubelet or grants, and the others are shared; the daemon's own
/// cgroup needs no CPUs for itself. Every other owner tells of its CPUs by its cpusets alone.
fn is_counted_elsewhere(inputs: &Inputs<'_>, workload: &Workload) -> bool {
    inputs.owners.foreign(workload).is_some_and(|owned| {
        owned.owner == Owner::DaemonItself || matches!(workload.origin, Origin::Pod { .. })
    })
}

/// CPUs that a cgroup is pinned to, by its own files or by those of the nearest pinned cgroup above it, and
/// that cgroup: all cgroups in a narrowed cgroup run on its CPUs.
pub(crate) fn nearest_pin(sample: &Sample, cgroup: &CgroupPath) -> Option<(CgroupPath, Pin)> {
    let mut path = cgroup.clone();
    loop {
        if let Some(pin) = pin(sample, &path) {
            return Some((path, pin));
        }
        path = path.parent()?;
    }
}

/// All CPUs of these pins.
pub(crate) fn cpus(pins: &Pins) -> CpuSet {
    pins.values().fold(CpuSet::new(), |all, pin| all.union(&pin.cpus))
}

/// CPUs that a cgroup is pinned to, by its own files.
pub(super) fn pin(sample: &Sample, cgroup: &CgroupPath) -> Option<Pin> {
    let seen = sample.cgroups.get(cgroup).filter(|seen| seen.effective_from.is_none())?;
    let cpus = seen.cpus_effective.as_ref().filter(|cpus| !cpus.is_empty())?;
    let (_, above) = nearest_effective(sample, &cgroup.parent()?, |above| above.cpus_effective.as_ref())?;
    let partition = !cpus.is_subset(above);
    (cpus != above).then(|| Pin { cpus: cpus.clone(), partition })
}

/// Marks these CPUs as taken in the allocations.
pub(crate) fn hold(allocations: &mut Allocations, pins: &Pins) {
    for (cgroup, pin) in pins {
        let grant =
            Grant { engine: "others", policy: "others", exclusive: pin.cpus.clone(), ..Grant::default() };
        allocations.give(Holder::pinned(cgroup), grant);
    }
}

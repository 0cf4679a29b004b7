//! Grants of declared workloads: the kept ones first, then new places beside what others are pinned to.

use std::collections::BTreeMap;

use super::{
    declared::{DeclaredWorkload, WorkloadToPlace},
    measured_place, pins,
};
use crate::{
    hosted::{CgroupBounds, CgroupRequest},
    model::accessed_bytes,
    turn::{Inputs, Refusal, RefusalCause},
    workload::CgroupPath,
};
use numa_placement::{Allocations, Grant, Holder, Inventory, Rejection, Trace};
use numa_topology::set::CpuSet;

/// Reason why a container that was not placed at creation is left where it is.
pub(super) const NO_CPUS: &str =
    "its declaration names no CPUs, so that it can only be placed when it is created (nri.place)";

/// Lets every validly placed workload keep its place first, so that none makes room for a workload of an
/// earlier entry.
pub(super) fn keep_valid(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    candidates: &[WorkloadToPlace<'_>],
) -> BTreeMap<CgroupPath, Grant> {
    let mut kept = BTreeMap::new();
    // A workload that is being moved does not keep its old place.
    let aim = |one: &CgroupPath| inputs.history.rebalance.aim(one);
    let aims = candidates.iter().filter_map(|one| Some((one, aim(one.workload.cgroup)?)));
    for (one, grant) in aims {
        let cgroup = one.workload.cgroup;
        if !can_be_had(inputs.inventory, allocations, one, grant) {
            allocations.release(&Holder::cgroup(cgroup));
            continue;
        }
        allocations.give(Holder::cgroup(cgroup), grant.clone());
        kept.insert(cgroup.clone(), grant.clone());
    }
    let drift = &inputs.history.drift;
    for one in candidates {
        let cgroup = one.workload.cgroup;
        if kept.contains_key(cgroup) || one.is_away(drift, inputs.sample.cgroup_id(cgroup)) {
            continue;
        }
        let kept_place = one.request.as_ref().and_then(|it| it.keep(inputs.inventory, allocations));
        if let Some(grant) = kept_place {
            allocations.give(Holder::cgroup(cgroup), grant.clone());
            kept.insert(cgroup.clone(), grant);
        }
    }
    kept
}

/// Is the aim of a workload still available? CPUs go offline, are granted to others, and cgroups above
/// narrow.
fn can_be_had(
    inventory: &Inventory,
    allocations: &Allocations,
    one: &WorkloadToPlace<'_>,
    aim: &Grant,
) -> bool {
    let bounds = one.limits.bounds();
    let above =
        |within: fn(&CgroupBounds, &Grant) -> bool| bounds.as_ref().is_none_or(|bounds| within(bounds, aim));
    let holder = Holder::cgroup(one.workload.cgroup);
    let mut others = allocations.iter().filter(|(other, _)| **other != holder);
    aim.exclusive.is_subset(&inventory.allowed_cpus)
        && aim.mems.is_subset(&inventory.machine.memory_nodes())
        && above(|above, aim| above.cpus.as_ref().is_none_or(|cpus| aim.exclusive.is_subset(cpus)))
        && above(|above, aim| above.mems.as_ref().is_none_or(|mems| aim.mems.is_subset(mems)))
        && others.all(|(_, grant)| grant.exclusive.is_disjoint(&aim.exclusive))
}

/// The grant that a declared workload keeps or gets.
pub(super) fn grant(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    one: &WorkloadToPlace<'_>,
    (kept, pins): (&BTreeMap<CgroupPath, Grant>, &pins::Pins),
    trace: &mut Trace,
) -> Result<Grant, Refusal> {
    let workload = one.workload;
    // Before placement: the place of a workload without figures is unknown.
    measured_place(workload.cgroup, workload.figures)?;
    let no_place =
        |reason| Refusal { workload: workload.cgroup.clone(), cause: RefusalCause::NoPlace, reason };
    match (kept.get(workload.cgroup), one.request.as_ref()) {
        (Some(kept), _) => Ok(kept.clone()),
        (None, Some(request)) => {
            beside_pins(inputs, allocations, workload, request, pins, trace).map_err(|rejection| {
                no_place(match one.limits.narrows(&inputs.inventory.machine) {
                    Some(above) => format!("{rejection}; {above}"),
                    None => rejection.to_string(),
                })
            })
        }
        (None, None) => Err(no_place(NO_CPUS.to_owned())),
    }
}

/// A place without CPUs that others are pinned to, if that moves no more of its memory: on the node of its
/// place without pins, or on any node if it has next to no memory there. Without one it shares pinned CPUs,
/// because its declaration outweighs a pin that was not declared.
fn beside_pins(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    one: &DeclaredWorkload<'_>,
    request: &CgroupRequest<'_>,
    pins: &pins::Pins,
    trace: &mut Trace,
) -> Result<Grant, Rejection> {
    let own = one.figures.and_then(|figures| figures.cpus.clone()).unwrap_or_default();
    // An affinity to all CPUs says nothing about its place.
    let own = if inputs.inventory.machine.online_cpus().is_subset(&own) { CpuSet::new() } else { own };
    let mut pins = pins::beside(pins, one.cgroup, &own);
    // CPUs of partitions are held already.
    pins.retain(|_, pin| !pin.partition);
    if pins.is_empty() {
        return request.place_traced(inputs.inventory, allocations, trace);
    }
    let before = allocations.clone();
    let mut grant = request.place_traced(inputs.inventory, allocations, trace)?;
    let shared = pins.iter().find(|(_, pin)| !pin.cpus.is_disjoint(&grant.exclusive));
    let Some((cgroup, pin)) = shared else { return Ok(grant) };
    let bytes = one.figures.and_then(|figures| figures.bytes_by_node.as_ref()).into_iter().flatten();
    let there = bytes.filter(|(node, _)| grant.mems.contains(**node));
    let there = there.fold(0u64, |sum, (_, bytes)| sum.saturating_add(accessed_bytes(bytes)));
    let apart = CgroupRequest { avoids: pins::cpus(&pins), ..request.clone() };
    let elsewhere = (there < inputs.policy.thresholds.min_memory.0).then(|| apart.clone());
    let same_nodes = CgroupRequest { nodes: Some(&grant.mems), ..apart };
    for request in elsewhere.into_iter().chain([same_nodes]) {
        let (mut trial, mut of_trial) = (before.clone(), Trace::wanted());
        if let Ok(found) = request.place_traced(inputs.inventory, &mut trial, &mut of_trial) {
            (*allocations, *trace) = (trial, of_trial);
            return Ok(found);
        }
    }
    grant.reason = format!("{}; {}, and no place is free beside them", grant.reason, pin.in_words(cgroup));
    allocations.give(Holder::cgroup(one.cgroup), grant.clone());
    Ok(grant)
}

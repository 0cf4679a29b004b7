//! Cpuset partitions for workloads with CPUs that no other cgroup of the host may use.
//!
//! Problem: a partition needs its CPUs in `cpuset.cpus.exclusive` of every cgroup above it, siblings may not
//! name the same CPU there, and all of it must follow workloads that come, change and end. Idea: the wanted
//! and the live partitions determine the exact set of each cgroup above. Surplus CPUs are removed from the
//! bottom up, then missing ones are added from the top down. A partition begins when a sample shows the
//! complete sets; a partition with changing CPUs ends first and begins again later. The kernel takes or
//! refuses a write as a whole and does not name the CPU, so each step adds what one partition needs: a
//! refusal belongs to that partition.
//!
//! Invariants: no CPUs are removed above a live partition (6.12 loses them for the whole host when it then
//! ends); a set above that another program wrote is not changed; a partition begins only after its cpuset is
//! as it should be, and not again after the kernel has refused just that
//! ([`PartitionAttempts`]). Without a partition the workload keeps its exclusive CPUs as a plain cpuset.
//!
//! Cost: a look at each cgroup above a partition; nothing without partitions.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    partition::Partition,
    plan::{Action, Step},
    policy::WorkloadRule,
    sample::{CgroupSample, Sample},
    turn::{AddedAbove, Decision, Inputs, PartitionAttempts, Partitioned, WantedPartition},
    workload::CgroupPath,
};
use numa_topology::set::CpuSet;

/// The partition that this workload should have with these CPUs; `None` if its entry asks for none.
pub(super) fn wanted_partition(
    rule: Option<&WorkloadRule>,
    cgroup_id: Option<u64>,
    cpus: Option<&CpuSet>,
    exclusive: &CpuSet,
) -> Option<WantedPartition> {
    let kind = rule?.partition.filter(|kind| *kind != Partition::Member)?;
    // Shared CPUs are not its own.
    let cpus = cpus.filter(|cpus| *cpus == exclusive && !cpus.is_empty())?.clone();
    Some(WantedPartition { cgroup_id, cpus, kind })
}

/// Ends the partition of a cgroup before its CPUs change.
pub(super) fn end_before(sample: &Sample, set: &Partitioned, cgroup: &CgroupPath) -> Option<Step> {
    lives(sample, set, cgroup).then(|| end(cgroup, "its CPUs change; it begins again when they are set"))
}

/// Adds the steps of partitions around those of workloads, and records wanted partitions that do not exist.
pub(super) fn add_partition_steps(inputs: &Inputs<'_>, decision: &mut Decision) {
    let (sample, partitioned, attempts) = (inputs.sample, inputs.partitioned, &inputs.history.partitions);
    if decision.partitions.is_empty() && *partitioned == Partitioned::default() {
        return;
    }
    let unwanted = partitioned
        .begun
        .iter()
        .filter(|cgroup| !decision.partitions.contains_key(*cgroup) && lives(sample, partitioned, cgroup));
    let ended: Vec<Step> = unwanted.map(|cgroup| end(cgroup, "no entry wants it any longer")).collect();
    let mut needed = Needed::new();
    let mut need = |cgroup: &CgroupPath, cpus: &CpuSet| {
        for ancestor in ancestors(cgroup) {
            needed.entry(ancestor).or_default().entry(cgroup.clone()).or_default().extend(cpus);
        }
    };
    living(sample, partitioned).for_each(|(cgroup, cpus)| need(cgroup, &cpus));
    let changed: BTreeSet<&CgroupPath> =
        decision.plan.steps.iter().map(|step| step.action.cgroup()).collect();
    let (mut narrow, mut begin) = (Vec::new(), Vec::new());
    for (cgroup, wanted) in &decision.partitions {
        let refusal = || attempts.refusal(cgroup);
        // A refusal above does not matter for a live partition.
        let reason = (!lives(sample, partitioned, cgroup)).then(refusal).flatten();
        if let Some(reason) = reason.or_else(|| taken_above(sample, partitioned, cgroup, wanted)) {
            decision.without_partition.insert(cgroup.clone(), reason);
            continue;
        }
        need(cgroup, &wanted.cpus);
        let seen = sample.cgroups.get(cgroup);
        let in_effect = !changed.contains(cgroup)
            && seen.is_some_and(|seen| seen.cpus_effective.as_ref() == Some(&wanted.cpus));
        let set = seen.and_then(|seen| seen.cpus.as_ref());
        let begins = seen.and_then(|seen| seen.partition.as_ref()).is_some_and(|it| !it.is(wanted.kind));
        if !in_effect || !begins {
            continue;
        }
        if set.is_some_and(|set| *set != wanted.cpus) {
            narrow.extend(end_before(sample, partitioned, cgroup));
            narrow.push(narrow_to(cgroup, wanted));
        } else if allowed_above(sample, cgroup, wanted) {
            begin.push(Step {
                reason: format!("CPUs {} are its own, and declared to be exclusive", wanted.cpus),
                action: Action::SetPartition { cgroup: cgroup.clone(), kind: wanted.kind },
            });
        }
    }
    let mut steps = ended;
    steps.append(&mut decision.plan.steps);
    steps.append(&mut narrow);
    let (above, added) = exclusive_above(sample, partitioned, attempts, &needed);
    steps.extend(above);
    decision.added_above = added;
    steps.append(&mut begin);
    decision.plan.steps = steps;
}

/// A step that narrows the cpuset to the wanted CPUs. It may name CPUs that another partition has now, so
/// that only the effective set was exact; a partition would name them too.
fn narrow_to(cgroup: &CgroupPath, wanted: &WantedPartition) -> Step {
    let reason = format!("its cpuset names more than the CPUs {} that are to be exclusive", wanted.cpus);
    let action = Action::SetCpus { cgroup: cgroup.clone(), cpus: wanted.cpus.clone() };
    Step { action, reason }
}

/// CPUs that each cgroup above needs, by the partition below that needs them.
type Needed = BTreeMap<CgroupPath, BTreeMap<CgroupPath, CpuSet>>;

/// New sets of the cgroups above: removals from the bottom up, then additions from the top down, with the
/// partition that each addition is for.
fn exclusive_above(
    sample: &Sample,
    partitioned: &Partitioned,
    attempts: &PartitionAttempts,
    needed: &Needed,
) -> (Vec<Step>, AddedAbove) {
    let (mut less, mut more) = (Vec::new(), Vec::new());
    let mut added = AddedAbove::new();
    let needed_in = |cgroup: &CgroupPath| needed.get(cgroup).into_iter().flatten();
    let now = |cgroup: &CgroupPath| sample.cgroups.get(cgroup)?.cpus_exclusive.as_ref();
    let all: BTreeSet<&CgroupPath> = needed.keys().chain(&partitioned.exclusive).collect();
    // CPUs that each cgroup keeps; a sibling may get the others later.
    let mut kept = BTreeMap::<&CgroupPath, CpuSet>::new();
    for cgroup in all {
        let Some(now) = now(cgroup) else { continue };
        // The set of another program suffices, or `taken_above` has refused.
        if !partitioned.exclusive.contains(cgroup) && !now.is_empty() {
            continue;
        }
        let all = needed_in(cgroup).fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
        let stays = now.intersection(&all);
        if stays != *now {
            let gone = now.difference(&stays);
            less.push(set(cgroup, &stays, format!("no partition below it has CPUs {gone} any longer")));
        }
        kept.insert(cgroup, stays);
    }
    for (cgroup, stays) in &kept {
        let beside = kept.iter().filter(|(other, _)| other != &cgroup && other.parent() == cgroup.parent());
        let taken = beside.fold(CpuSet::new(), |taken, (_, theirs)| taken.union(theirs));
        let mut has = stays.clone();
        // A refusal stops the steps after it, so partitions that were refused before come last.
        let mut in_arrival_order: Vec<_> = needed_in(cgroup).collect();
        in_arrival_order.sort_by_key(|(partition, _)| attempts.refusal(partition).is_some());
        for (partition, cpus) in in_arrival_order {
            let then = has.union(&cpus.difference(&taken));
            if then != has {
                more.push(set(cgroup, &then, format!("{partition} is to have CPUs {cpus} for itself alone")));
                added.insert(((*cgroup).clone(), then.clone()), partition.clone());
                has = then;
            }
        }
    }
    let depth = |step: &Step| step.action.cgroup().depth();
    less.sort_by_key(|step| std::cmp::Reverse(depth(step)));
    more.sort_by_key(depth);
    less.append(&mut more);
    (less, added)
}

fn set(cgroup: &CgroupPath, cpus: &CpuSet, reason: String) -> Step {
    Step { reason, action: Action::SetExclusive { cgroup: cgroup.clone(), cpus: cpus.clone() } }
}

/// The reason if another program has set a cgroup above to fewer CPUs than needed.
fn taken_above(
    sample: &Sample,
    partitioned: &Partitioned,
    cgroup: &CgroupPath,
    wanted: &WantedPartition,
) -> Option<String> {
    ancestors(cgroup).find_map(|ancestor| {
        let set = sample.cgroups.get(&ancestor)?.cpus_exclusive.as_ref()?;
        let others = !set.is_empty() && !partitioned.exclusive.contains(&ancestor);
        (others && !wanted.cpus.is_subset(set)).then(|| {
            format!(
                "another program has set cpuset.cpus.exclusive of {ancestor} to {set}, which lacks some of {}",
                wanted.cpus
            )
        })
    })
}

/// Do the cgroups above allow the partition to begin, by the last sample?
fn allowed_above(sample: &Sample, cgroup: &CgroupPath, wanted: &WantedPartition) -> bool {
    ancestors(cgroup).all(|ancestor| {
        let seen = sample.cgroups.get(&ancestor);
        seen.and_then(|seen| seen.cpus_exclusive.as_ref()).is_some_and(|set| wanted.cpus.is_subset(set))
    })
}

/// CPUs that the daemon's partitions have taken from a cgroup above them.
pub(super) fn taken_from(sample: &Sample, partitioned: &Partitioned, above: &CgroupPath) -> CpuSet {
    let below = living(sample, partitioned).filter(|(cgroup, _)| cgroup.is_within(above));
    below.fold(CpuSet::new(), |taken, (_, cpus)| taken.union(&cpus))
}

/// Live partitions that the daemon began, with all CPUs that they may have: an invalid one may become valid
/// again.
fn living<'a>(
    sample: &'a Sample,
    partitioned: &'a Partitioned,
) -> impl Iterator<Item = (&'a CgroupPath, CpuSet)> {
    partitioned.begun.iter().filter_map(move |cgroup| {
        let seen = sample.cgroups.get(cgroup).filter(|seen| is_root_of_one(seen))?;
        let cpus = [&seen.cpus, &seen.cpus_effective].into_iter().flatten();
        Some((cgroup, cpus.fold(CpuSet::new(), |all, cpus| all.union(cpus))))
    })
}

/// Is the cgroup a live partition of the daemon?
fn lives(sample: &Sample, partitioned: &Partitioned, cgroup: &CgroupPath) -> bool {
    let begun = partitioned.begun.contains(cgroup);
    begun && sample.cgroups.get(cgroup).is_some_and(is_root_of_one)
}

fn is_root_of_one(seen: &CgroupSample) -> bool {
    seen.partition.as_ref().is_some_and(|state| state.kind != Partition::Member)
}

fn end(cgroup: &CgroupPath, why: &str) -> Step {
    Step {
        reason: format!("the partition ends: {why}"),
        action: Action::SetPartition { cgroup: cgroup.clone(), kind: Partition::Member },
    }
}

/// The cgroups above a cgroup, without the root, which has no such files.
pub(super) fn ancestors(cgroup: &CgroupPath) -> impl Iterator<Item = CgroupPath> + use<> {
    cgroup.ancestors().filter(|path| !path.is_root())
}

#[cfg(test)]
mod tests;

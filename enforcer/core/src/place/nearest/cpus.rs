//! Choosing CPUs of one node.
//!
//! Problem: take N of the free CPUs so that the workload shares caches with itself and not with
//! others, and so that what is left stays useful. Idea: keep what it has; then fill whole cores
//! before halves, within the smallest last-level cache that holds all that is missing; lowest ids
//! first. Cost: O(caches + cores) per choice, a node has tens of each.

use crate::{
    set::CpuSet,
    topology::{Cpu, Topology},
};

/// `count` of the free CPUs, those in `keep` first; none when there are not enough.
pub(super) fn choose(machine: &Topology, free: &CpuSet, count: usize, keep: &CpuSet) -> Option<CpuSet> {
    if free.len() < count {
        return None;
    }
    let kept = free.intersection(keep);
    if kept.len() >= count {
        return Some(from_caches(machine, &kept, count, CpuSet::new()));
    }
    Some(from_caches(machine, free, count, kept))
}

fn from_caches(machine: &Topology, free: &CpuSet, count: usize, mut chosen: CpuSet) -> CpuSet {
    let mut groups: Vec<CpuSet> = machine.llcs.iter().map(|llc| llc.cpus.clone()).collect();
    // CPUs whose cache is not known come last, as one group.
    groups.push(groups.iter().fold(free.clone(), |rest, group| rest.difference(group)));
    while chosen.len() < count {
        let missing = count - chosen.len();
        let left = free.difference(&chosen);
        let Some(group) = best_group(&groups, &left, missing, &chosen) else { break };
        fill_cores(machine, &group, missing, &mut chosen);
    }
    chosen
}

/// Free CPUs of the group to take from next: one that is already in use, else the smallest that
/// holds what is missing, else the largest.
fn best_group(groups: &[CpuSet], left: &CpuSet, missing: usize, chosen: &CpuSet) -> Option<CpuSet> {
    groups
        .iter()
        .map(|group| (group, group.intersection(left)))
        .filter(|(_, free)| !free.is_empty())
        .min_by_key(|(group, free)| {
            let foreign = group.is_disjoint(chosen);
            let room = free.len();
            if room >= missing { (foreign, false, room) } else { (foreign, true, usize::MAX - room) }
        })
        .map(|(_, free)| free)
}

/// Takes up to `missing` CPUs of the group: the rest of cores already begun, whole cores, then the
/// smallest core that covers the remainder.
fn fill_cores(machine: &Topology, group: &CpuSet, mut missing: usize, chosen: &mut CpuSet) {
    let mut left = group.clone();
    while missing > 0 {
        let Some(core) = best_core(machine, &left, missing, chosen) else { return };
        for cpu in core.iter().take(missing) {
            chosen.insert(cpu);
            left.remove(cpu);
            missing -= 1;
        }
    }
}

/// Free CPUs of the core to take from next.
fn best_core(machine: &Topology, left: &CpuSet, missing: usize, chosen: &CpuSet) -> Option<CpuSet> {
    machine
        .cpus
        .iter()
        .filter(|cpu| left.contains(cpu.id))
        .map(|cpu| (siblings(cpu), siblings(cpu).intersection(left)))
        .min_by_key(|(core, free)| {
            let foreign = core.is_disjoint(chosen);
            let whole = free == core;
            let order = if missing >= core.len() { (!whole, 0) } else { (whole, free.len()) };
            (foreign, order, free.first())
        })
        .map(|(_, free)| free)
}

/// The threads of a CPU's core; itself where the platform does not say.
fn siblings(cpu: &Cpu) -> CpuSet {
    let mut core = cpu.siblings.clone();
    core.insert(cpu.id);
    core
}

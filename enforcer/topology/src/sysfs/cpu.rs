//! Packages, dies, clusters, cores and threads, from `cpuN/topology`
//! (Documentation/admin-guide/cputopology.rst).
//!
//! Ids are no names of groups: `core_id` is unique within a package only, `physical_package_id` is
//! -1 for every package of some POWER machines and repeats across the books of s390. So groups come
//! from the sibling sets, and ids are labels on them. All threads of a core share their ids, and
//! these are read once for the core; only where two siblings have different `core_id`s is each asked.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{Cpu, Package, id::CpuId, parse::scalar, set::CpuSet};

use super::source::{Source, SourceEffect};

const TOPOLOGY: SourceEffect = SourceEffect {
    source: "cpu-topology",
    effect: "packages, cores and threads are not known for some CPUs",
};

/// What the kernel gives where a CPU is in no cluster (`topology_cluster_id` of x86 and arm64).
const NO_CLUSTER: [i32; 3] = [-1, 0xffff, i32::MAX];

/// The online CPUs, ascending; their nodes are still open.
pub(super) fn read_cpus(source: &mut Source<'_>, online: &CpuSet) -> Vec<Cpu> {
    let mut open = online.clone();
    let mut cpus = BTreeMap::new();
    let mut clusters = CpuSet::new();
    for first in online.iter() {
        if !open.contains(first) {
            continue;
        }
        let core = read_core(source, first, &open, &mut clusters);
        open = open.difference(&core.siblings);
        let numbers = core_numbers(source, &core);
        for id in core.siblings.iter() {
            let number = numbers.get(&id).copied().or(core.core);
            cpus.insert(id, Cpu { id, core: number, ..core.clone() });
        }
    }
    if cpus.values().all(|cpu| cpu.package.is_none() && cpu.core.is_none()) {
        let path = source.files.sys().join("devices/system/cpu");
        source.lost(&TOPOLOGY, format_args!("{}: no CPU has a topology", path.display()));
    }
    cpus.into_values().collect()
}

/// The core of a CPU, as seen by that CPU; threads that another core claimed stay there.
fn read_core(source: &mut Source<'_>, id: CpuId, open: &CpuSet, clusters: &mut CpuSet) -> Cpu {
    let dir = directory(source, id);
    let lists = ["thread_siblings_list", "core_cpus_list"];
    let siblings = source.ids(&TOPOLOGY, &dir, &lists, &["thread_siblings", "core_cpus"]);
    let alone: CpuSet = std::iter::once(id).collect();
    let siblings = match siblings {
        Some(siblings) if siblings.contains(id) => siblings.intersection(open),
        Some(siblings) => {
            let path = dir.display();
            source.lost(&TOPOLOGY, format_args!("{path}: thread siblings `{siblings}` lack the CPU itself"));
            alone
        }
        None => alone,
    };
    let mut number = |name: &str| source.value(&TOPOLOGY, &dir.join(name), scalar::signed);
    let (package, die, core) = (number("physical_package_id"), number("die_id"), number("core_id"));
    let cluster = number("cluster_id").filter(|id| !NO_CLUSTER.contains(id));
    let cluster = cluster.filter(|_| clusters.contains(id) || is_cluster(source, id, &siblings, clusters));
    Cpu { id, node: None, package, die: die.filter(|&die| die >= 0), cluster, core, siblings }
}

/// The `core_id` of each sibling, where they are not all alike: the two integer cores of a Bulldozer module
/// are siblings with numbers of their own. The second sibling answers for the others.
fn core_numbers(source: &mut Source<'_>, core: &Cpu) -> BTreeMap<CpuId, i32> {
    let mut number = |id| source.value(&TOPOLOGY, &directory(source, id).join("core_id"), scalar::signed);
    let others: Vec<CpuId> = core.siblings.iter().filter(|id| *id != core.id).collect();
    let Some((&second, more)) = others.split_first() else { return BTreeMap::new() };
    match number(second) {
        Some(own) if core.core.is_some_and(|first| first != own) => {
            let more = more.iter().filter_map(|id| Some((*id, number(*id)?)));
            more.chain([(second, own)]).collect()
        }
        _ => BTreeMap::new(),
    }
}

/// Is the cluster of this CPU more than its core and less than its package? Its CPUs are noted, so
/// that one CPU answers for all of them.
fn is_cluster(source: &mut Source<'_>, id: CpuId, siblings: &CpuSet, clusters: &mut CpuSet) -> bool {
    let dir = directory(source, id);
    let members: CpuSet =
        source.ids(&TOPOLOGY, &dir, &["cluster_cpus_list"], &["cluster_cpus"]).unwrap_or_default();
    if members.is_empty() || members.is_subset(siblings) {
        return false;
    }
    let package = package_siblings(source, id).unwrap_or_default();
    let real = !package.is_subset(&members);
    if real {
        *clusters = clusters.union(&members);
    }
    real
}

/// Packages in ascending order of their first CPU, from CPUs with known nodes.
pub(super) fn read_packages(source: &mut Source<'_>, cpus: &[Cpu]) -> Vec<Package> {
    let mut open: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
    let mut packages = Vec::new();
    for cpu in cpus {
        if !open.contains(cpu.id) {
            continue;
        }
        let siblings = package_siblings(source, cpu.id);
        if siblings.is_none() && cpu.package.is_none() {
            continue;
        }
        let is_member = |other: &&Cpu| {
            let near = siblings.as_ref().is_none_or(|siblings| siblings.contains(other.id));
            other.id == cpu.id || (near && other.package == cpu.package && open.contains(other.id))
        };
        let members: Vec<&Cpu> = cpus.iter().filter(is_member).collect();
        let package = Package {
            id: cpu.package.unwrap_or(-1),
            cpus: members.iter().map(|cpu| cpu.id).collect(),
            nodes: members.iter().filter_map(|cpu| cpu.node).collect(),
        };
        open = open.difference(&package.cpus);
        packages.push(package);
    }
    packages
}

fn package_siblings(source: &mut Source<'_>, id: CpuId) -> Option<CpuSet> {
    let dir = directory(source, id);
    let lists = ["package_cpus_list", "core_siblings_list"];
    source.ids(&TOPOLOGY, &dir, &lists, &["package_cpus", "core_siblings"])
}

fn directory(source: &Source<'_>, id: CpuId) -> PathBuf {
    source.files.sys().join(format!("devices/system/cpu/cpu{id}/topology"))
}

//! Groups of CPUs: packages, dies, clusters, last-level caches, nodes, cores; and faster or slower CPUs.
//!
//! Only meaningful groups are kept: a cluster or a cache that is a single core, a whole die or a whole
//! package adds nothing. Groups are ordered by their lowest CPU. [`super::speed`] determines fast and slow
//! CPUs.

use std::collections::BTreeMap;

use super::speed::Speeds;
use crate::Inventory;
use numa_topology::{Cpu, Topology, set::CpuSet};

/// The groups of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct CpuGroups {
    /// Packages.
    pub(super) packages: Vec<CpuSet>,
    /// Dies; equal to the packages if each is one die.
    pub(super) dies: Vec<CpuSet>,
    /// Clusters of several cores in a die.
    pub(super) clusters: Vec<CpuSet>,
    /// Last-level caches of several cores in a die.
    pub(super) caches: Vec<CpuSet>,
    /// Nodes.
    pub(super) nodes: Vec<CpuSet>,
    /// Cores.
    pub(super) cores: Vec<CpuSet>,
    /// CPUs faster than the others.
    pub(super) fast: CpuSet,
    /// CPUs slower than the others.
    pub(super) slow: CpuSet,
}

impl CpuGroups {
    /// Computes the groups of the machine.
    pub(in super::super) fn of(inventory: &Inventory) -> Self {
        let layout = &inventory.layout;
        let sets = |groups: &[(u32, CpuSet)]| sorted(groups.iter().map(|(_, cpus)| cpus.clone()));
        let Speeds { fast, slow } = Speeds::of(&inventory.machine);
        let groups = Self {
            packages: sets(&layout.sockets),
            dies: grouped(&inventory.machine, |cpu| cpu.die),
            clusters: grouped(&inventory.machine, |cpu| cpu.cluster),
            caches: sets(&layout.llcs),
            nodes: sorted(layout.nodes.iter().map(|(_, cpus)| cpus.clone())),
            cores: sets(&layout.cores),
            fast,
            slow,
        };
        groups.with_meaning()
    }

    /// Removes groups that add nothing.
    fn with_meaning(mut self) -> Self {
        if self.dies.is_empty() {
            self.dies.clone_from(&self.packages);
        }
        let wide: Vec<&CpuSet> = self.packages.iter().chain(&self.dies).collect();
        let says = |group: &CpuSet| !wide.contains(&group) && !self.cores.contains(group);
        let clusters = self.clusters.iter().filter(|group| says(group)).cloned().collect();
        let caches = self.caches.iter().filter(|group| says(group)).cloned().collect();
        (self.clusters, self.caches) = (clusters, caches);
        self
    }
}

/// CPUs by package, die and `id`; CPUs without that id are left out.
fn grouped(machine: &Topology, id: impl Fn(&Cpu) -> Option<i32>) -> Vec<CpuSet> {
    let mut groups = BTreeMap::<_, CpuSet>::new();
    for cpu in &machine.cpus {
        if let Some(id) = id(cpu) {
            groups.entry((cpu.package, cpu.die, id)).or_default().insert(cpu.id);
        }
    }
    sorted(groups.into_values())
}

fn sorted(groups: impl Iterator<Item = CpuSet>) -> Vec<CpuSet> {
    let mut groups: Vec<CpuSet> = groups.collect();
    groups.sort_by_key(CpuSet::first);
    groups
}

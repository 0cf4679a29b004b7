//! Divides the machine into pools by its hardware.
//!
//! Problem: packages, dies and NUMA nodes nest in different orders: a package can have several nodes, a node
//! can have several packages (virtual machines with CPUs as sockets, cells of large servers). Idea: all
//! groups of CPUs that do not cross one another form one tree, larger ones above smaller ones. If groups
//! cross, memory decides: nodes stay, then packages, then dies.
//!
//! This module ignores what may be given. Last-level caches divide groups without other parts.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::PoolKind;
use crate::settings::PoolLevel;
use numa_topology::{Topology, set::CpuSet};

/// CPUs of one group at one level.
#[derive(Debug, Clone)]
struct CpuGroup {
    kind: PoolKind,
    cpus: CpuSet,
}

/// A pool before it has an id.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) kind: PoolKind,
    pub(super) stands_for: BTreeSet<PoolLevel>,
    pub(super) cpus: CpuSet,
    pub(super) children: Vec<Draft>,
}

/// Drafts the whole tree by hardware.
pub(super) fn draft(machine: &Topology) -> Draft {
    let mut root = Draft::new(CpuGroup { kind: PoolKind::Root, cpus: machine.online_cpus() });
    root.nest(nested_groups(machine));
    root.cut_by_caches(&caches(machine));
    root
}

/// Groups that do not cross: NUMA nodes with memory, packages, dies. All or no dies of a package are
/// included.
fn nested_groups(machine: &Topology) -> Vec<CpuGroup> {
    let mut accepted: Vec<CpuGroup> = Vec::new();
    let sockets = machine
        .packages
        .iter()
        .map(|package| CpuGroup { kind: PoolKind::Socket(package.id.max(0)), cpus: package.cpus.clone() });
    let dies = machine.packages.iter().map(|package| dies(machine, package.id, &package.cpus));
    let levels = nodes(machine).map(|node| vec![node]).chain(sockets.map(|socket| vec![socket])).chain(dies);
    for groups in levels {
        let nests = |group: &CpuGroup| accepted.iter().all(|other| !crosses(&group.cpus, &other.cpus));
        if groups.iter().all(nests) {
            accepted.extend(groups.into_iter().filter(|group| !group.cpus.is_empty()));
        }
    }
    accepted
}

/// Do two sets share CPUs without one containing the other?
fn crosses(one: &CpuSet, other: &CpuSet) -> bool {
    !one.is_disjoint(other) && !one.is_subset(other) && !other.is_subset(one)
}

/// Nodes with CPUs and memory.
fn nodes(machine: &Topology) -> impl Iterator<Item = CpuGroup> + '_ {
    let with_memory = machine.nodes.iter().filter(|node| node.takes_ordinary_memory());
    with_memory.map(|node| CpuGroup { kind: PoolKind::Numa(node.id), cpus: node.cpus.clone() })
}

/// Dies of a package; CPUs without a known die are on die 0.
fn dies(machine: &Topology, package: i32, within: &CpuSet) -> Vec<CpuGroup> {
    let mut dies = BTreeMap::<i32, CpuSet>::new();
    for cpu in machine.cpus.iter().filter(|cpu| within.contains(cpu.id)) {
        dies.entry(cpu.die.unwrap_or(0).max(0)).or_default().insert(cpu.id);
    }
    dies.into_iter().map(|(die, cpus)| CpuGroup { kind: PoolKind::Die(package.max(0), die), cpus }).collect()
}

/// Last-level caches, numbered by their lowest CPU. A cache of level 2 counts as private.
fn caches(machine: &Topology) -> Vec<CpuGroup> {
    let mut caches: Vec<&CpuSet> =
        machine.llcs.iter().filter(|llc| llc.level >= 3).map(|llc| &llc.cpus).collect();
    caches.sort_by_key(|cpus| cpus.first());
    let numbered = caches.into_iter().enumerate();
    numbered.map(|(index, cpus)| CpuGroup { kind: PoolKind::L3(index), cpus: cpus.clone() }).collect()
}

impl Draft {
    fn new(group: CpuGroup) -> Self {
        Self {
            stands_for: BTreeSet::from([group.kind.level()]),
            kind: group.kind,
            cpus: group.cpus,
            children: Vec::new(),
        }
    }

    /// Nests groups that do not cross below it; those with the same CPUs become part of it.
    fn nest(&mut self, mut groups: Vec<CpuGroup>) {
        groups.sort_by_key(|group| (Reverse(group.cpus.len()), group.kind.precedence()));
        let mut parts: Vec<(Self, Vec<CpuGroup>)> = Vec::new();
        for group in groups {
            if group.cpus == self.cpus {
                self.stand_for(group.kind);
            } else if let Some((_, inside)) =
                parts.iter_mut().find(|(part, _)| group.cpus.is_subset(&part.cpus))
            {
                inside.push(group);
            } else {
                parts.push((Self::new(group), Vec::new()));
            }
        }
        parts.sort_by_key(|(part, _)| (part.kind, part.cpus.first()));
        self.children = parts
            .into_iter()
            .map(|(mut part, inside)| {
                part.nest(inside);
                part
            })
            .collect();
        let holds_packages = |child: &Self| child.stands_for.contains(&PoolLevel::Package);
        if self.stands_for.contains(&PoolLevel::Numa) && self.children.iter().any(holds_packages) {
            // Groups across packages are not confined to parts of a node.
            self.stands_for.insert(PoolLevel::Package);
        }
    }

    /// Of several names for the same CPUs one is used.
    fn stand_for(&mut self, kind: PoolKind) {
        self.stands_for.insert(kind.level());
        if kind.precedence() < self.kind.precedence() {
            self.kind = kind;
        }
    }

    /// Divides pools without parts by caches, if these are meaningful.
    fn cut_by_caches(&mut self, caches: &[CpuGroup]) {
        if !self.children.is_empty() {
            self.children.iter_mut().for_each(|child| child.cut_by_caches(caches));
            return;
        }
        if let Some(cache) = caches.iter().find(|cache| self.cpus.is_subset(&cache.cpus)) {
            self.stand_for(cache.kind);
            return;
        }
        // A cache that is only partly inside is meaningless for this pool, and a single one adds nothing.
        let inside: Vec<&CpuGroup> = caches.iter().filter(|cache| cache.cpus.is_subset(&self.cpus)).collect();
        if inside.len() > 1 {
            self.children = inside.into_iter().cloned().map(Self::new).collect();
        }
    }
}

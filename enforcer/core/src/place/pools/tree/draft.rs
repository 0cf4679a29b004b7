//! Cutting the machine into pools by its hardware.
//!
//! Levels are lists of groups of CPUs; each cuts the parts that the level above has left. Nothing here
//! knows what may be given away.

use std::collections::{BTreeMap, BTreeSet};

use super::PoolKind;
use crate::{policy::placement::PoolLevel, set::CpuSet, topology::Topology};

/// CPUs that belong together on one level.
#[derive(Debug, Clone)]
struct Group {
    kind: PoolKind,
    cpus: CpuSet,
}

/// A pool before it has a number.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) kind: PoolKind,
    pub(super) stands_for: BTreeSet<PoolLevel>,
    pub(super) cpus: CpuSet,
    pub(super) children: Vec<Draft>,
}

/// The whole tree by hardware.
pub(super) fn draft(machine: &Topology) -> Draft {
    let mut root = Draft::new(Group { kind: PoolKind::Root, cpus: machine.online_cpus() });
    let caches = caches(machine);
    let sockets = machine.packages.iter().map(|package| {
        let kind = PoolKind::Socket(package.id.max(0));
        let mut socket = Draft::new(Group { kind, cpus: package.cpus.clone() });
        let (nodes, dies) = (nodes(machine, &package.cpus), dies(machine, package.id, &package.cpus));
        let hold = |outer: &[Group], inner: &[Group]| {
            inner.iter().all(|inner| outer.iter().any(|outer| inner.cpus.is_subset(&outer.cpus)))
        };
        let with_memory: Vec<Group> = nodes
            .iter()
            .filter(|group| {
                machine.nodes.iter().any(|n| PoolKind::Numa(n.id) == group.kind && n.takes_ordinary_memory())
            })
            .cloned()
            .collect();
        if hold(&dies, &nodes) {
            socket.cut(&[&dies, &with_memory, &caches]);
        } else if hold(&nodes, &dies) {
            socket.cut(&[&with_memory, &dies, &caches]);
        } else {
            socket.cut(&[&with_memory, &caches]);
        }
        socket
    });
    let mut sockets: Vec<Draft> = sockets.filter(|socket| !socket.cpus.is_empty()).collect();
    sockets.sort_by_key(|socket| socket.kind);
    if sockets.is_empty() {
        root.cut(&[&nodes(machine, &root.cpus.clone()), &caches]);
    } else {
        root.adopt(sockets);
    }
    root
}

fn nodes(machine: &Topology, within: &CpuSet) -> Vec<Group> {
    let parts = machine
        .nodes
        .iter()
        .map(|node| Group { kind: PoolKind::Numa(node.id), cpus: node.cpus.intersection(within) });
    parts.filter(|group| !group.cpus.is_empty()).collect()
}

/// The dies of a package; CPUs that do not say theirs are on die 0.
fn dies(machine: &Topology, package: i32, within: &CpuSet) -> Vec<Group> {
    let mut dies = BTreeMap::<i32, CpuSet>::new();
    for cpu in machine.cpus.iter().filter(|cpu| within.contains(cpu.id)) {
        dies.entry(cpu.die.unwrap_or(0).max(0)).or_default().insert(cpu.id);
    }
    dies.into_iter().map(|(die, cpus)| Group { kind: PoolKind::Die(package.max(0), die), cpus }).collect()
}

/// The last-level caches, numbered by their lowest CPU. One of level 2 is as good as private.
fn caches(machine: &Topology) -> Vec<Group> {
    let mut caches: Vec<&CpuSet> =
        machine.llcs.iter().filter(|llc| llc.level >= 3).map(|llc| &llc.cpus).collect();
    caches.sort_by_key(|cpus| cpus.first());
    let numbered = caches.into_iter().enumerate();
    numbered.map(|(index, cpus)| Group { kind: PoolKind::L3(index), cpus: cpus.clone() }).collect()
}

impl Draft {
    fn new(group: Group) -> Self {
        Self {
            stands_for: BTreeSet::from([group.kind.level()]),
            kind: group.kind,
            cpus: group.cpus,
            children: Vec::new(),
        }
    }

    /// Cuts the pool by the levels, from the outermost to the innermost.
    fn cut(&mut self, levels: &[&[Group]]) {
        let Some((level, inner)) = levels.split_first() else { return };
        let parts = level.iter().filter(|group| !group.cpus.is_disjoint(&self.cpus)).filter_map(|group| {
            let whole = self.cpus.is_subset(&group.cpus);
            let cpus = if whole { self.cpus.clone() } else { group.cpus.intersection(&self.cpus) };
            // A cache that is only partly in here says nothing about this pool.
            let torn = matches!(group.kind, PoolKind::L3(_)) && !whole && cpus != group.cpus;
            (!torn).then_some(Group { kind: group.kind, cpus })
        });
        let parts: Vec<Group> = parts.collect();
        let lone_cache =
            matches!(parts.as_slice(), [one] if matches!(one.kind, PoolKind::L3(_)) && one.cpus != self.cpus);
        if parts.is_empty() || lone_cache {
            return self.cut(inner);
        }
        let children = parts.into_iter().map(|group| {
            let mut child = Self::new(group);
            child.cut(inner);
            child
        });
        self.adopt(children.collect());
    }

    /// Takes pools below it; one that is the same as itself becomes part of it.
    fn adopt(&mut self, mut children: Vec<Self>) {
        if let [only] = children.as_mut_slice()
            && only.cpus == self.cpus
        {
            self.stands_for.append(&mut only.stands_for);
            if only.kind.precedence() < self.kind.precedence() {
                self.kind = only.kind;
            }
            self.children = std::mem::take(&mut only.children);
        } else {
            self.children = children;
        }
    }
}

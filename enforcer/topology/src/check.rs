//! Checks that a machine from a file is consistent.
//!
//! A topology read from a host is consistent by construction; one from a file may contain anything. The
//! checks cover what other code relies on: ids are ordered and in range, two lists agree on the node of each
//! CPU, and the distance matrix has a row per node.

use thiserror::Error;

use super::Topology;
use crate::{
    id::Id,
    set::{CpuSet, NodeSet},
};

/// An inconsistency in the description of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Inconsistency(String);

impl Topology {
    /// Checks that all parts are consistent.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), Inconsistency> {
        let refused = |problem: String| Err(Inconsistency(problem));
        if self.nodes.is_empty() || self.cpus.is_empty() {
            return refused("a machine needs at least one NUMA node and one CPU".into());
        }
        ascending("nodes", self.nodes.iter().map(|node| node.id))?;
        ascending("cpus", self.cpus.iter().map(|cpu| cpu.id))?;
        let online = self.online_cpus();
        for node in &self.nodes {
            if !node.cpus.is_subset(&online) {
                let missing = node.cpus.difference(&online);
                return refused(format!("node {} has CPUs {missing}, which are not in `cpus`", node.id));
            }
        }
        for cpu in &self.cpus {
            let mut listing = self.nodes.iter().filter(|node| node.cpus.contains(cpu.id));
            // Some firmware lists a CPU with two nodes.
            let agrees = match cpu.node {
                Some(own) => listing.any(|node| node.id == own),
                None => listing.next().is_none(),
            };
            if !agrees {
                return refused(format!("CPU {} and the nodes disagree about its node", cpu.id));
            }
        }
        self.check_lists(&online)?;
        let mut of_kinds = CpuSet::new();
        for kind in &self.cpu_kinds {
            if !kind.cpus.is_subset(&online) {
                let missing = kind.cpus.difference(&online);
                return refused(format!("`cpuKinds` has CPUs {missing}, which are not in `cpus`"));
            }
            if !kind.cpus.is_disjoint(&of_kinds) {
                let twice = kind.cpus.intersection(&of_kinds);
                return refused(format!("CPUs {twice} are of two `cpuKinds`"));
            }
            of_kinds.extend(&kind.cpus);
        }
        let width = self.nodes.len();
        if !self.distances.is_empty()
            && (self.distances.len() != width || self.distances.iter().any(|row| row.len() != width))
        {
            return refused(format!("distances: {width} rows of {width} are expected"));
        }
        Ok(())
    }

    /// Do all lists contain only existing CPUs and nodes?
    fn check_lists(&self, online: &CpuSet) -> Result<(), Inconsistency> {
        let nodes: NodeSet = self.nodes.iter().map(|node| node.id).collect();
        let siblings = self.cpus.iter().map(|cpu| (format!("siblings of CPU {}", cpu.id), &cpu.siblings));
        let packages = self.packages.iter().map(|one| (format!("package {}", one.id), &one.cpus));
        let caches = self.llcs.iter().map(|one| ("a last-level cache".to_owned(), &one.cpus));
        for (what, cpus) in siblings.chain(packages).chain(caches) {
            if !cpus.is_subset(online) {
                let missing = cpus.difference(online);
                return Err(Inconsistency(format!("{what} names CPUs {missing}, which are not in `cpus`")));
            }
        }
        let packages = self.packages.iter().map(|one| (format!("package {}", one.id), one.nodes.clone()));
        let tiers =
            self.memory_tiers.iter().map(|one| (format!("memory tier {}", one.id), one.nodes.clone()));
        let closest = self.nodes.iter().map(|node| {
            (format!("`closestCpuNode` of node {}", node.id), node.closest_cpu_node.into_iter().collect())
        });
        for (what, named) in packages.chain(tiers).chain(closest) {
            if !named.is_subset(&nodes) {
                let missing = named.difference(&nodes);
                return Err(Inconsistency(format!("{what} names nodes {missing}, which are not in `nodes`")));
            }
        }
        Ok(())
    }
}

fn ascending<T: Id>(what: &str, ids: impl Iterator<Item = T>) -> Result<(), Inconsistency> {
    let mut last = None;
    for id in ids {
        if id.number() > T::GREATEST || last.is_some_and(|last| last >= id) {
            let (greatest, id) = (T::GREATEST, id.number());
            return Err(Inconsistency(format!(
                "{what}: ids up to {greatest} in ascending order are expected, not {id}"
            )));
        }
        last = Some(id);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CpuKind,
        id::{CpuId, NodeId},
        synth::Machine,
    };

    fn of_kind(cpus: &str) -> CpuKind {
        CpuKind { cpus: cpus.parse().unwrap(), ..CpuKind::default() }
    }

    #[test]
    fn what_was_built_fits_together() {
        let machine = Machine::new().sockets(2).dies(2).nodes_per_socket(2).offline("3").build();
        assert_eq!(machine.check(), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        type Damage = fn(&mut Topology);
        let broken: [(&str, Damage); 13] = [
            ("at least one NUMA node", |machine| machine.nodes.clear()),
            ("nodes: ids up to 1023 in ascending order are expected, not 0", |machine| {
                machine.nodes.reverse();
            }),
            ("cpus: ids up to 8191", |machine| machine.cpus[7].id = CpuId(70_000)),
            ("node 1 has CPUs 9, which are not in `cpus`", |machine| {
                machine.nodes[1].cpus.insert(CpuId(9));
            }),
            ("CPU 0 and the nodes disagree", |machine| machine.cpus[0].node = Some(NodeId(1))),
            ("`cpuKinds` has CPUs 8-9, which are not in `cpus`", |machine| {
                machine.cpu_kinds.push(of_kind("7-9"));
            }),
            ("CPUs 2 are of two `cpuKinds`", |machine| {
                machine.cpu_kinds = vec![of_kind("0-2"), of_kind("2-3")];
            }),
            ("siblings of CPU 0 names CPUs 99", |machine| {
                machine.cpus[0].siblings.insert(CpuId(99));
            }),
            ("package 0 names CPUs 99", |machine| {
                machine.packages[0].cpus.insert(CpuId(99));
            }),
            ("a last-level cache names CPUs 99", |machine| {
                machine.llcs[0].cpus.insert(CpuId(99));
            }),
            ("package 1 names nodes 7", |machine| {
                machine.packages[1].nodes.insert(NodeId(7));
            }),
            ("`closestCpuNode` of node 1 names nodes 7", |machine| {
                machine.nodes[1].closest_cpu_node = Some(NodeId(7));
            }),
            ("distances: 2 rows of 2", |machine| machine.distances[1].push(None)),
        ];
        for (said, break_it) in broken {
            let mut machine = Machine::new().sockets(2).cores(2).build();
            break_it(&mut machine);
            let error = machine.check().unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}

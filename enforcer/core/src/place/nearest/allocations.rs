//! What is given away.
//!
//! One state is shared by all engines, so that two of them never give the same CPU to two
//! workloads. It is ordered by cgroup: equal allocations are equal values, whatever the order they
//! were made in. Releasing is forgetting; nothing else has to be undone.

use std::collections::BTreeMap;

use super::Assignment;
use crate::{id::NodeId, set::CpuSet, workload::CgroupPath};

/// Assignments by workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocations(BTreeMap<CgroupPath, Assignment>);

impl Allocations {
    /// Notes what a workload was given, in place of what it had.
    pub fn give(&mut self, workload: CgroupPath, assignment: Assignment) {
        self.0.insert(workload, assignment);
    }

    /// Takes back what a workload was given.
    pub fn release(&mut self, workload: &CgroupPath) -> Option<Assignment> {
        self.0.remove(workload)
    }

    /// Forgets every workload for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&CgroupPath) -> bool) {
        self.0.retain(|workload, _| stays(workload));
    }

    /// What a workload was given.
    pub fn get(&self, workload: &CgroupPath) -> Option<&Assignment> {
        self.0.get(workload)
    }

    /// All of them, in order of cgroup.
    pub fn iter(&self) -> impl Iterator<Item = (&CgroupPath, &Assignment)> {
        self.0.iter()
    }

    /// CPUs given to others than this workload.
    pub fn cpus_of_others(&self, workload: &CgroupPath) -> CpuSet {
        self.others(workload).fold(CpuSet::new(), |sum, other| sum.union(&other.cpus))
    }

    /// Bytes of a node promised to others than this workload. What may lie on several nodes counts
    /// in full on each: a promise must hold wherever the pages go.
    pub fn bytes_of_others(&self, workload: &CgroupPath, node: NodeId) -> u64 {
        self.others(workload)
            .filter(|other| other.mems.contains(node))
            .fold(0, |sum, other| sum.saturating_add(other.memory_bytes))
    }

    fn others(&self, workload: &CgroupPath) -> impl Iterator<Item = &Assignment> {
        self.0.iter().filter(move |(owner, _)| *owner != workload).map(|(_, assignment)| assignment)
    }
}

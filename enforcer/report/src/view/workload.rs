//! The workloads of an audit as rows: typed values, and the words that every face shows.

use std::{cmp::Reverse, collections::BTreeMap};

use enforcer_core::{
    audit::AuditedWorkload,
    model::accessed_bytes,
    owner::{Owner, Ownership},
    sample::NodeBytes,
};
use numa_topology::id::NodeId;

use super::{
    distinct::{NamedWorkload, distinct},
    verdicts::rank,
};
use crate::units;

/// A workload of an audit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkloadRow<'a> {
    /// Its position in the audit.
    pub(crate) place: usize,
    /// Its figures.
    pub(crate) workload: &'a AuditedWorkload,
    /// What tells it from others of its name; `None` for a name that is there once.
    pub(crate) distinct: Option<String>,
}

/// The workloads in the order of the audit.
pub(crate) fn rows(workloads: &[AuditedWorkload]) -> Vec<WorkloadRow<'_>> {
    let named = workloads.iter().map(NamedWorkload::from);
    let rows = workloads.iter().zip(distinct(named)).enumerate();
    rows.map(|(place, (workload, distinct))| WorkloadRow { place, workload, distinct }).collect()
}

/// The same, worst first; equal ones keep their order.
pub(crate) fn worst_first(workloads: &[AuditedWorkload]) -> Vec<WorkloadRow<'_>> {
    let mut rows = rows(workloads);
    rows.sort_by_key(|row| Reverse(rank(row.workload.verdict)));
    rows
}

impl WorkloadRow<'_> {
    /// Owner of its cpuset.
    pub(crate) fn owner(&self) -> Owner {
        owner(self.workload.owner.as_ref())
    }

    /// Its CPUs in at most `width` characters.
    pub(crate) fn cpus(&self, width: usize) -> String {
        units::known(self.workload.cpus.as_ref(), |cpus| units::ids(cpus, width))
    }

    /// The nodes of its CPUs in at most `width` characters.
    pub(crate) fn nodes(&self, width: usize) -> String {
        units::ids(&self.workload.numa_nodes, width)
    }

    /// Share of its memory on other nodes than its CPUs.
    pub(crate) fn remote_residency(&self) -> String {
        units::known(self.workload.remote_residency, units::percent)
    }

    /// Share of its memory accesses that go to another node, 0 to 1; `None` without a sample.
    pub(crate) fn remote_ratio(&self) -> Option<f64> {
        self.workload.traffic.as_ref().map(|traffic| traffic.remote_ratio)
    }
}

/// The owner of a cpuset that has or has none.
pub(crate) fn owner(ownership: Option<&Ownership>) -> Owner {
    ownership.map_or(Owner::Unowned, |ownership| ownership.owner)
}

/// Nodes with any memory, most first.
pub(crate) fn most_first(by_node: &BTreeMap<NodeId, NodeBytes>) -> Vec<(NodeId, u64)> {
    let sizes = by_node.iter().map(|(node, of)| (*node, bytes(of)));
    let mut sizes: Vec<(NodeId, u64)> = sizes.filter(|(_, size)| *size > 0).collect();
    sizes.sort_by_key(|(node, size)| (Reverse(*size), *node));
    sizes
}

/// Bytes on one node; `shmem` is part of `file` and must not be counted twice.
pub(crate) fn bytes(bytes: &NodeBytes) -> u64 {
    accessed_bytes(bytes).saturating_add(bytes.kernel.unwrap_or(0))
}
